"""`locate` and `read_stored`: what a run has stored, found by folder, file or name.

Findings and unconfirmed failures are a `Finding`. A suspicion is a program; what is known of it
besides is in the `run.json` of its run.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aliasproof.campaigns.failure.finding import AnyFinding
from aliasproof.campaigns.store.run_folder import read_finding
from aliasproof.ir.errors import UserError, did_you_mean, printable_json
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import loads
from aliasproof.ir.stored_text import read_text
from aliasproof.targets.registry import user_code

RUNS = Path("runs")
KINDS = ("findings", "suspicions", "unconfirmed")  # folders of a run
MARKS = ("finding.json", "program.json")  # files, one of which each stored case has


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A program on which an oracle on graphs reported a violation, while its results were right.

    `count` programs of the run show the same.
    """

    identifier: str
    target: str
    oracle: str
    kind: str
    count: int
    program: Program

    def to_json(self) -> dict[str, object]:
        """Everything except the program, as JSON values."""
        return {
            "identifier": self.identifier,
            "target": self.target,
            "oracle": self.oracle,
            "kind": self.kind,
            "count": self.count,
        }


def locate(given: str) -> Path:
    """The folder of a stored case, from its path, the path of a file in it, or its name.

    If several runs have a case of that name, the newest is taken. Raises `UserError`.
    """
    path = Path(given)
    if path.is_file():
        path = path.parent
        if not any((path / mark).is_file() for mark in MARKS):
            raise UserError(
                f"{given} is not a file of a finding; give the folder or the name of one"
            )
    if path.is_dir():
        if (path / "findings").is_dir():
            names = sorted(folder.name for kind in KINDS for folder in (path / kind).glob("*/"))
            raise UserError(
                f"{path} is a run; name one of its findings: {', '.join(names) or 'it has none'}"
            )
        return path
    # By time: a name is the same in every run that found the bug.
    folders = sorted(
        (folder for kind in KINDS for folder in RUNS.glob(f"*/{kind}/*/")),
        key=lambda folder: folder.stat().st_mtime,
    )
    named = [folder for folder in folders if folder.name == given]
    if named:
        return named[-1]
    advice = "give its folder, such as runs/<run>/findings/<name>"
    hint = did_you_mean(given, [folder.name for folder in folders], otherwise=advice)
    raise UserError(f"no finding '{given}' here or under {RUNS}/*/findings{hint}")


def show_command(folder: Path, target: str) -> str:
    """What to type to see a finding. Code of the user is imported if it is named."""
    named = [] if user_code(target) is None else ["--target", target]
    return shlex.join(["aliasproof", "show", str(folder), *named])


def read_stored(folder: Path) -> AnyFinding | Suspicion:
    """What a folder has. Raises `UserError` with the file if something is missing or malformed."""
    try:
        if folder.parent.name == "suspicions" and not (folder / "finding.json").is_file():
            return _suspicion(folder)
        return read_finding(folder)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{folder} cannot be read: {error}") from error


def _suspicion(folder: Path) -> Suspicion:
    file, outcome = folder / "program.json", folder.parent.parent / "run.json"
    program = loads(read_text(file, within=folder), str(file))
    check = shlex.join(["aliasproof", "check", str(folder)])
    otherwise = f"`{check}` checks its program through all targets"
    if not outcome.is_file():
        raise UserError(f"{folder} is a suspicion of a run without run.json; {otherwise}")
    try:
        data: Any = printable_json(json.loads(read_text(outcome, within=outcome.parent)))
        entries = [
            element for element in data["suspicions"] if Path(element["folder"]).name == folder.name
        ]
        known = entries[0]
        return Suspicion(
            folder.name,
            str(known["target"]),
            str(known["oracle"]),
            str(known["kind"]),
            int(known["count"]),
            program,
        )
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as reason:
        raise UserError(
            f"{outcome} does not describe the suspicion {folder.name}"
            f" ({type(reason).__name__}: {reason}); {otherwise}"
        ) from reason
