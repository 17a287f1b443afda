"""`RunLock`: one campaign per folder."""

from __future__ import annotations

import fcntl
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from programs.errors import UserError

NAME = ".lock"


@dataclass(slots=True)
class RunLock:
    """The lock of a run folder, from `take` to `release` or to the end of the process.

    The kernel holds it, so that it ends with its process, however that ends. The file names the
    holder. `stale` is the name of a holder that ended without a word, or empty.
    """

    stale: str
    _descriptor: int

    @classmethod
    def take(cls, folder: Path) -> RunLock:
        """Take the lock. Raises `UserError` with the holder's pid if another process has it."""
        descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _read(descriptor)
            os.close(descriptor)
            raise UserError(
                f"run folder {folder} is in use by {holder or 'another process'}; wait for its end,"
                " or name another folder with --run"
            ) from error
        stale = _read(descriptor)
        _write(descriptor, f"pid {os.getpid()} on {socket.gethostname()}")
        return cls(stale, descriptor)

    def release(self) -> None:
        """Let others have the folder."""
        # The file stays: if it were removed, two processes could each lock a file of this name.
        _write(self._descriptor, "")
        os.close(self._descriptor)


def _read(descriptor: int) -> str:
    return os.pread(descriptor, 200, 0).decode(errors="replace").strip()


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
