"""A violation on a `PythonProgram`, and its folder: JSON for us, a script for everybody."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aliasproof.corpus.python_bugs import PythonBug
from aliasproof.ir.errors import UserError
from aliasproof.ir.python_program import PythonProgram, words
from aliasproof.ir.serialization import read_text
from aliasproof.oracles.verdict import Violation

FILE = "finding.json"
FORMAT = 2
_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("target", "oracle", "kind", "place", "torch", "known", "line"), str),
    "capability": str,
    **dict.fromkeys(("seed", "number", "drawn_lines", "tried", "compiled"), int),
    "confirmed": (bool, type(None)),
    "evidence": dict,
}
_PATH = r"(?!__)\w+(?:\.(?!__)\w+|\[-?\d+\]|\['[\w ]*'\])*"
_PLACE = re.compile(rf"{_PATH}(?:, {_PATH})*")


@dataclass(frozen=True, slots=True)
class PythonFinding:
    """A reduced program that a target computes otherwise than eager does.

    `place` is the expression of the first difference. `seed` and `number` draw the program again;
    `drawn_lines` is how many lines it had. Its reduction `tried` so many candidates, and `compiled`
    those that eager accepts. `confirmed` says what a fresh process showed: None if it was not
    asked. `known` is the name of the known bug that it is, or empty. `line` is what `fuzz` calls
    the violation, if the program is a line of ATen calls, or empty. `part` is the part of the
    compiler that experiments name, `capability` that of the CPU (`devices.cpu_capability`).
    """

    program: PythonProgram
    target: str
    oracle: str
    kind: str
    place: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0
    number: int = 0
    drawn_lines: int = 0
    tried: int = 0
    compiled: int = 0
    torch: str = ""
    confirmed: bool | None = None
    known: str = ""
    line: str = ""
    part: str = ""
    capability: str = ""

    @property
    def violation(self) -> Violation:
        """What differs, as an oracle says it."""
        return Violation(self.oracle, self.kind, self.place, self.evidence)

    @property
    def silent(self) -> bool:
        """Whether the target gives a wrong result and raises nothing."""
        return self.oracle != "errors"

    @property
    def identifier(self) -> str:
        """Equal for findings that differ in names and numbers alone; if `fuzz` has a name, that."""
        if self.line:
            return self.line
        said = "\n".join((self.target, self.oracle, self.kind, *sorted(words(self.program))))
        target = re.sub(r"[^\w.-]+", ".", self.target)
        return f"{target}-{self.oracle}-{hashlib.sha256(said.encode()).hexdigest()[:8]}"

    def is_of(self, bug: PythonBug) -> bool:
        """Whether it is this known bug."""
        cause = (self.target, self.oracle, self.symptom)
        return bug.explains(cause, self.place, self.program, self.part)

    @property
    def symptom(self) -> str:
        """The kind; with the message of eager's error, if the target does not raise it."""
        message = str(self.evidence.get("message", "")).partition("\n")[0]
        return f"{self.kind}: {message}" if self.kind.startswith("does not raise") else self.kind

    def to_json(self) -> dict[str, object]:
        """As JSON values; `of_json` reads it."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "program"}
        return {"format": FORMAT, "program": self.program.source, **values}

    @classmethod
    def of_json(cls, given: object) -> PythonFinding:
        """The finding. Raises `UserError` if it is none, or its program is not in the language."""
        names = {*cls.__slots__} - {"program"}
        if isinstance(given, dict):
            given = {"capability": "", **given}  # older findings do not name it
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            raise UserError(f"a finding of a Python program has 'format' {FORMAT}")
        if given.keys() != {*names, "format", "program"}:
            raise UserError(f"a finding has exactly the keys {sorted(names)}, format, program")
        values: dict[str, Any] = {name: given[name] for name in names}
        for name, kinds in _TYPES.items():
            if not isinstance(values[name], kinds):
                raise UserError(f"'{name}' of a finding is {values[name]!r}")
        # Scripts evaluate it.
        if not _PLACE.fullmatch(values["place"]):
            raise UserError(f"'place' of a finding is no path: {values['place']!r}")
        return cls(PythonProgram(str(given["program"])), **values)

    @classmethod
    def load(cls, folder: Path) -> PythonFinding:
        """The finding in a folder. Raises `UserError` if there is none."""
        try:
            return cls.of_json(json.loads(read_text(folder / FILE, within=folder)))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{folder / FILE}: {error}") from None


def is_of_python(folder: Path) -> bool:
    """Whether a folder has a finding of a Python program, and not of a `Program`."""
    return (folder / FILE).is_file() and not (folder / "program.json").exists()
