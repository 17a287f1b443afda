"""Known bugs of torch that a `PythonProgram` shows: the files in `corpus/python`.

A file is the program, after a comment that tells the bug:

    # title: a sentence
    # link: the upstream issue, or nothing
    # target: aot-eager
    # oracle: values, or several: values structure
    # kind: a regular expression for the kind of the violation
    # needs: words that a program with this bug has (operators, attributes, kinds of statements)
    # lacks: words that it does not have; this line can be left out, and the next, too
    # place: gradient, or value for what is no gradient
    # part: the part of the compiler that experiments name; without this line, it does not count
    # sufficient: why `needs` tells the cause, whatever else a reduced program has

`kind` also meets the message of an error that eager raises and the target does not. The word
`write` is any write to a tensor, `writes_class` one to an attribute of a class in `program`,
`writes_attribute` one to any attribute there; `control_flow`, `generator`, `grad_mode` and
`membership` are one of several words each.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from aliasproof.ir.python_program import PythonProgram, mechanisms, traits

# An assertion names its cause, whatever led to it.
_ASSERTION = r"^raises .*\bAssertionError: .|INTERNAL ASSERT"
FOLDER = Path(__file__).parent / "python"
_LINE = re.compile(
    r"^# (title|link|target|oracle|kind|needs|lacks|place|part|sufficient): ?(.*)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class PythonBug:
    """A bug with its program. See the module."""

    identifier: str
    title: str
    link: str
    target: str
    oracles: frozenset[str]
    kind: str
    needs: frozenset[str]
    program: PythonProgram
    lacks: frozenset[str] = frozenset()
    place: str = ""
    part: str = ""
    sufficient: str = ""

    def explains(
        self, cause: tuple[str, str, str], place: str, reduced: PythonProgram, part: str
    ) -> bool:
        """Whether a violation is this bug: its target, oracle and kind, its place and program.

        The program has what the bug needs. It was reduced, so it fails by all that it has: a
        mechanism that this bug does without is a sign of another cause, unless an assertion of
        torch says that the cause is the same, or what the bug needs is `sufficient`.
        """
        target, oracle, kind = cause
        there = traits(reduced)
        return (
            self.target == target
            and oracle in self.oracles
            and re.search(self.kind, kind) is not None
            and self.needs <= there
            and not self.lacks & there
            and self.place in ("", role(place, reduced))
            and self.part in ("", part)
            and self._is_enough(kind, reduced)
        )

    def _is_enough(self, kind: str, reduced: PythonProgram) -> bool:
        return (
            bool(self.sufficient)
            or re.search(_ASSERTION, kind) is not None
            or mechanisms(reduced) <= mechanisms(self.program)
        )


def role(place: str, program: PythonProgram) -> str:
    """What is at a place: the gradient of something, or any other value."""
    name = place.partition(".")[0].partition("[")[0]
    made = re.search(rf"^ +{re.escape(name)}(,[\w, ]*)? = .*\bgrad\(", program.source, re.MULTILINE)
    return "gradient" if place.endswith(".grad") or (name and made) else "value"


@functools.cache
def python_bugs() -> tuple[PythonBug, ...]:
    """All of them, by name."""
    return tuple(_read(path) for path in sorted(FOLDER.glob("*.txt")))


def _read(path: Path) -> PythonBug:
    text = path.read_text(encoding="utf-8")
    said = dict(_LINE.findall(text))
    source = "".join(line for line in text.splitlines(keepends=True) if not _LINE.match(line))
    return PythonBug(
        path.stem,
        said["title"],
        said["link"].strip(),
        said["target"],
        frozenset(said["oracle"].split()),
        said["kind"],
        frozenset(said["needs"].split()),
        PythonProgram(source.strip() + "\n"),
        frozenset(said.get("lacks", "").split()),
        said.get("place", ""),
        said.get("part", ""),
        said.get("sufficient", ""),
    )
