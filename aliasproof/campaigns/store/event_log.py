"""`EventLog`: what happened in a run, one JSON object per line."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

NAME = "events.jsonl"


@dataclass(slots=True)
class EventLog:
    """Appends to `events.jsonl`. Each line is written at once, so that a reader sees it whole."""

    _descriptor: int

    @classmethod
    def open(cls, folder: Path) -> EventLog:
        """The log of a run folder, to be continued."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        log = cls(os.open(folder / NAME, flags, 0o644))
        size = os.fstat(log._descriptor).st_size
        # A full disk can cut a line.
        if size and os.pread(log._descriptor, 1, size - 1) != b"\n":
            os.write(log._descriptor, b"\n")
        return log

    def note(self, event: str, **details: object) -> None:
        """Append one event."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, "event": event, **details})
        os.write(self._descriptor, line.encode() + b"\n")

    def close(self) -> None:
        """End the log."""
        os.close(self._descriptor)
