"""`Store`: the folder of a run. All its files can be read with any editor.

`findings/<identifier>/` has `program.json` (the reduced program), `finding.json` (all the rest),
`reproducer.py`, and `issue.md` for PyTorch's tracker. `unconfirmed/<identifier>/` has the first
three for a failure that its reproducer did not show, or not yet. `suspicions/<name>/` has a
`program.json`. `run.json` is the outcome. Reading a store executes and unpickles nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns.finding import Finding
from campaigns.shard import Shard
from programs.errors import UserError
from programs.program import Program
from programs.serialization import dumps, loads
from targets.variants import folder_name


@dataclass(frozen=True, slots=True)
class Store:
    """Writes the folder of one run. Each file appears in one step, so it is complete or absent."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> Store:
        """A store in a folder that is new or empty. Raises `UserError` if it is neither."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise UserError(
                    f"run folder {folder} is not empty; name a new one, so that nothing in it is"
                    " lost"
                )
            # This also shows, before any work is done, that the folder can be written.
            (folder / "findings").mkdir()
        except OSError as reason:
            raise UserError(
                f"run folder {folder} cannot be written: {reason.strerror}; name another with --run"
            ) from reason
        return cls(folder)

    def finding_folder(self, identifier: str) -> Path:
        """The folder of a finding."""
        return self.folder / "findings" / identifier

    def suspicion_folder(self, name: str) -> Path:
        """The folder of a suspicion."""
        return self.folder / "suspicions" / name

    def blame_file(self, shard: Shard) -> Path:
        """Where a worker notes which program of a shard it runs. Removed when the run ends."""
        return self.folder / f".shard-{folder_name(shard.target)}-{shard.seed}"

    def compiled_folder(self) -> Path:
        """Where compilers write. Removed when the run ends."""
        return self.folder / ".compiled"

    def write_unconfirmed(self, finding: Finding) -> None:
        """Write a finding that is to be confirmed."""
        write_finding(self._unconfirmed_folder(finding), finding)

    def write_reproducer(self, finding: Finding, script: str) -> Path:
        """Write the reproducer of an unconfirmed finding and return its path."""
        path = self._unconfirmed_folder(finding) / "reproducer.py"
        _write_text(path, script)
        return path

    def confirm(self, finding: Finding) -> None:
        """Move a finding from the unconfirmed ones to the findings, in one step."""
        self._unconfirmed_folder(finding).rename(self.finding_folder(finding.identifier))

    def write_issue(self, finding: Finding, issue: str | None, script: str) -> None:
        """Write the issue of a confirmed finding, if any, and the reproducer that it quotes."""
        folder = self.finding_folder(finding.identifier)
        _write_text(folder / "reproducer.py", script)
        if issue is not None:
            _write_text(folder / "issue.md", issue)

    def rewrite_finding(self, finding: Finding) -> None:
        """Write a confirmed finding again, with its final count."""
        # While a campaign runs, the count on disk is 1: it is not worth a write per violation.
        write_finding(self.finding_folder(finding.identifier), finding)

    def write_suspicion(self, name: str, program: Program) -> None:
        """Write the program of a suspicion."""
        folder = self.suspicion_folder(name)
        folder.mkdir(parents=True)
        _write_text(folder / "program.json", dumps(program))

    def write_latent(self, finding: Finding) -> None:
        """Write a latent finding, beside the suspicions: nothing confirmed it."""
        write_finding(self.suspicion_folder(finding.identifier), finding)

    def write_outcome(self, outcome: Mapping[str, object]) -> None:
        """Write `run.json`, the last file of a run."""
        _write_text(self.folder / "run.json", json.dumps(outcome, indent=1) + "\n")

    def remove_leftovers(self) -> None:
        """Remove the files that only a running campaign needs, and an empty `unconfirmed/`."""
        for leftover in self.folder.glob(".shard-*"):
            leftover.unlink()
        shutil.rmtree(self.compiled_folder(), ignore_errors=True)
        unconfirmed = self.folder / "unconfirmed"
        if unconfirmed.is_dir() and not any(unconfirmed.iterdir()):
            unconfirmed.rmdir()

    def _unconfirmed_folder(self, finding: Finding) -> Path:
        return self.folder / "unconfirmed" / finding.identifier


def write_finding(folder: Path, finding: Finding) -> None:
    """Write `program.json` and `finding.json` into a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_text(folder / "program.json", dumps(finding.program) + "\n")
    _write_text(folder / "finding.json", json.dumps(finding.to_json(), indent=1) + "\n")


def read_finding(folder: Path) -> Finding:
    """Read a finding back.

    Raises `UserError` naming the file if something is missing or malformed.
    """
    program_file, finding_file = folder / "program.json", folder / "finding.json"
    for path in (program_file, finding_file):
        if not path.is_file():
            raise UserError(f"{folder} is not a finding: it has no {path.name}")
    # The program first: its errors name the instruction at fault.
    program = loads(_read_text(program_file), str(program_file))
    try:
        data: Any = json.loads(_read_text(finding_file))
    except ValueError as reason:
        raise UserError(
            f"{finding_file} is not a finding of aliasproof: {type(reason).__name__}: {reason}"
        ) from reason
    return Finding.from_json(data, program, str(finding_file))


def read_findings(run: Path) -> list[Finding]:
    """All findings in the folder of a run, by identifier."""
    return [read_finding(path.parent) for path in sorted(run.glob("findings/*/finding.json"))]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        raise UserError(f"{path} cannot be read as text: {reason}") from reason


def _write_text(path: Path, text: str) -> None:
    """Write a file in one step: a reader sees all of it or none of it."""
    # In the same folder, since a file can only be renamed within one file system.
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
