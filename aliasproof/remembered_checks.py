"""Checks around a check of candidates: answers that are kept in a file, and several runs of one.

Both are called in several threads at once, as what they ask is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from aliasproof.ir.errors import UserError, shown
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import dumps
from aliasproof.ir.stored_text import read_text
from aliasproof.minimizing import CandidateCheck


@dataclass(slots=True)
class RememberedCheck:
    """Asks about each program once, and writes the answer to a file as soon as it is there.

    A reduction asks the same questions in the same order. So the command that goes on after an
    interruption gets the answers of before at once, and arrives where it was. `remembered` counts
    them. The first line of the file is the question that the others answer. Without a file, answers
    are remembered as long as this process runs.
    """

    check: CandidateCheck
    answers: dict[str, int] = field(default_factory=dict)
    remembered: int = 0
    _file: TextIO | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    @contextlib.contextmanager
    def with_file(
        cls, check: CandidateCheck, path: Path | None, question: Mapping[str, object]
    ) -> Iterator[RememberedCheck]:
        """Read the answers in a file, and append to it until the context ends.

        Raises `UserError` if they answer another question, or the file cannot be written.
        """
        if path is None:
            yield cls(check)
            return
        answers = _answers_of(path, question) if path.exists() else {}
        try:
            # Written anew: what was killed in the middle of a line left a part of one.
            lines = [json.dumps(question), *(f"{digest} {it}" for digest, it in answers.items())]
            partial = path.with_name(f"{path.name}.partial")
            partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
            partial.replace(path)
            file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise UserError(f"--resume {path} cannot be written: {error.strerror}") from error
        with file:
            yield cls(check, answers, _file=file)

    def __call__(self, candidate: Program, /) -> int:
        digest = hashlib.sha256(dumps(candidate.renamed()).encode()).hexdigest()
        known = self.answers.get(digest)
        if known is not None:
            self.remembered += 1
            return known
        grade = self.check(candidate)
        with self._lock:
            self.answers[digest] = grade
            if self._file is not None:
                self._file.write(f"{digest} {grade}\n")
                self._file.flush()
        return grade

    def stop(self) -> None:
        """Give up all checks that are under way."""
        self.check.stop()


def _answers_of(path: Path, question: Mapping[str, object]) -> dict[str, int]:
    first, _, rest = read_text(path).partition("\n")
    try:
        asked = json.loads(first)
    except (ValueError, RecursionError) as error:
        raise UserError(f"--resume {path}: this is no file of answers of a reduction") from error
    if asked != json.loads(json.dumps(question)):
        other = asked if isinstance(asked, dict) else {}
        differing = [key for key in question if other.get(key) != question[key]] or list(question)
        raise UserError(
            f"--resume {path}: its answers are to another question, with"
            f" {', '.join(f'{key} {shown(other.get(key))}' for key in differing)}; name a new file"
        )
    lines = (line.split(" ") for line in rest.splitlines())
    # The last line may be a part of one.
    return {it[0]: int(it[1]) for it in lines if len(it) == 2 and it[1].isdecimal()}


@dataclass(slots=True)
class RepeatedCheck:
    """Asks so many `times` about each program: it is interesting if all runs say so.

    A program that shows it in some runs alone is flaky. If that is the one to reduce, the others
    need to show it in one of the runs.
    """

    check: CandidateCheck
    times: int
    flaky: bool = False

    def showing(self, program: Program) -> int:
        """In how many of the runs a program is interesting."""
        return sum(self.check(program) > 0 for _ in range(self.times))

    def __call__(self, candidate: Program, /) -> int:
        grade = 0
        for _ in range(self.times):
            answer = self.check(candidate)
            if self.flaky and answer:
                return answer
            if not (self.flaky or answer):
                return 0
            grade = answer if not grade else min(grade, answer)
        return grade

    def stop(self) -> None:
        """Give up all checks that are under way."""
        self.check.stop()
