"""`Finding`: a reduced violation in the store, and the store: a folder for each, readable with any editor.

`runs/<run>/findings/<identifier>/` holds `program.json` (the reduced program), `finding.json` (all
else) and `reproducer.py`. Nothing here is executed or unpickled when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from campaigns.shard import Reduced
from programs.errors import UserError
from programs.program import Program
from programs.serialization import dumps, from_json, loads, to_json

VERSION = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """A bug, shown by a reduced program. `count` violations of this run have its signature."""

    identifier: str
    target: str
    oracle: str
    kind: str
    place: str
    evidence: Mapping[str, object]
    program: Program
    original: Program
    seed: int
    tried: int
    accepted: int
    count: int
    torch_version: str

    @classmethod
    def of(cls, reduced: Reduced, seed: int, count: int = 1) -> Finding:
        """The finding for a reduced violation of the shard with that seed."""
        symptom, violation = reduced.signature.symptom, reduced.violation
        return cls(
            reduced.signature.identifier,
            symptom.target,
            symptom.oracle,
            symptom.kind,
            violation.place,
            dict(violation.evidence),
            reduced.program,
            reduced.original,
            seed,
            reduced.tried,
            reduced.accepted,
            count,
            torch.__version__,
        )

    @property
    def silent(self) -> bool:
        """True if the target gives a wrong result without raising."""
        return self.oracle != "errors"

    def to_json(self) -> dict[str, object]:
        """All but the reduced program, as JSON values."""
        return {
            "version": VERSION,
            "identifier": self.identifier,
            "target": self.target,
            "oracle": self.oracle,
            "kind": self.kind,
            "place": self.place,
            "silent": self.silent,
            "evidence": dict(self.evidence),
            "instructions": len(self.program),
            "count": self.count,
            "reduction": {
                "candidates tried": self.tried,
                "accepted": self.accepted,
                "from": len(self.original),
            },
            "seed": self.seed,
            "torch": self.torch_version,
            "original": to_json(self.original),
        }


def write_finding(folder: Path, finding: Finding) -> None:
    """Write `program.json` and `finding.json`.

    Each is complete or not there: it is renamed into place.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "program.json", dumps(finding.program) + "\n")
    write_text(folder / "finding.json", json.dumps(finding.to_json(), indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file in one step."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def read_finding(folder: Path) -> Finding:
    """Read a finding back.

    Raises `UserError` naming the file if something is missing or malformed.
    """
    program_file, finding_file = folder / "program.json", folder / "finding.json"
    for path in (program_file, finding_file):
        if not path.is_file():
            raise UserError(f"{folder} is no finding: it has no {path.name}")
    program = loads(_read_text(program_file), str(program_file))
    try:
        data: Any = json.loads(_read_text(finding_file))
        if data["version"] != VERSION:
            raise UserError(
                f"{finding_file} has version {data['version']}, this aliasproof reads version {VERSION}"
            )
        return Finding(
            identifier=str(data["identifier"]),
            target=str(data["target"]),
            oracle=str(data["oracle"]),
            kind=str(data["kind"]),
            place=str(data["place"]),
            evidence=dict(data["evidence"]),
            program=program,
            original=from_json(data["original"]),
            seed=int(data["seed"]),
            tried=int(data["reduction"]["candidates tried"]),
            accepted=int(data["reduction"]["accepted"]),
            count=int(data["count"]),
            torch_version=str(data["torch"]),
        )
    except (ValueError, KeyError, TypeError) as reason:
        raise UserError(
            f"{finding_file} is no finding of aliasproof: {type(reason).__name__}: {reason}"
        ) from reason


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        raise UserError(f"{path} cannot be read as text: {reason}") from reason


def read_findings(run: Path) -> list[Finding]:
    """All findings of a run, by name."""
    return [read_finding(each.parent) for each in sorted(run.glob("findings/*/finding.json"))]
