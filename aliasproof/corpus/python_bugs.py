"""Known bugs of torch that a `PythonProgram` shows: the files in `corpus/python`.

A file is the program, after a comment that tells the bug:

    # title: a sentence
    # link: the upstream issue, or nothing
    # target: aot-eager
    # oracle: values
    # kind: a regular expression for the kind of the violation
    # needs: words that a program with this bug has (operators, attributes, kinds of statements)
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from aliasproof.programs.python_program import PythonProgram

FOLDER = Path(__file__).parent / "python"
_LINE = re.compile(r"^# (title|link|target|oracle|kind|needs): ?(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PythonBug:
    """A bug with its program. See the module."""

    identifier: str
    title: str
    link: str
    target: str
    oracle: str
    kind: str
    needs: frozenset[str]
    program: PythonProgram

    def explains(self, target: str, oracle: str, kind: str, words: Collection[str]) -> bool:
        """Whether a violation with these words in its reduced program is this bug."""
        return (
            (self.target, self.oracle) == (target, oracle)
            and re.search(self.kind, kind) is not None
            and self.needs <= frozenset(words)
        )


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
        said["oracle"],
        said["kind"],
        frozenset(said["needs"].split()),
        PythonProgram(source.strip() + "\n"),
    )
