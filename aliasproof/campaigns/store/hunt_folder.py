"""`PythonRunFolder`: the folder of a run of `hunt`, with the layout of `RunFolder`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aliasproof.campaigns.store.python_finding import PythonFinding
from aliasproof.campaigns.store.store_schema import NAME as STORE
from aliasproof.programs.errors import UserError

OUTCOME = "run.json"
ISSUE = "issue.md"


@dataclass(frozen=True, slots=True)
class PythonRunFolder:
    """`findings`, `unconfirmed` for what no script confirms, and the outcome in `run.json`."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> PythonRunFolder:
        """Make the folder, or use one of `hunt`. Raises `UserError` if it cannot be used."""
        try:
            (folder / "findings").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"run folder {folder} cannot be made: {error.strerror}") from error
        if (folder / STORE).exists():
            raise UserError(f"{folder} is a run of 'aliasproof fuzz'; name another with --run")
        return cls(folder)

    def path(self, finding: PythonFinding) -> Path:
        """The folder of a finding."""
        kind = "findings" if finding.confirmed else "unconfirmed"
        return self.folder / kind / finding.signature

    def write(self, finding: PythonFinding, texts: Mapping[str, str]) -> None:
        """Write a finding and these files beside it; an issue only for what is confirmed."""
        own = finding.save(self.path(finding).parent)
        for name, text in texts.items():
            if finding.confirmed or name != ISSUE:
                (own / name).write_text(text, encoding="utf-8")

    def write_outcome(self, outcome: Mapping[str, object]) -> None:
        """Write the outcome of the run."""
        text = json.dumps(outcome, indent=1) + "\n"
        (self.folder / OUTCOME).write_text(text, encoding="utf-8")
