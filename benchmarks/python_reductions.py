"""What the reduction of Python programs costs and leaves: 30 findings of `hunt`, as drawn.

`python_reductions.json` has them, so that other forms of the generator do not change what is
measured. At most three have one target, oracle and kind.

How to read a row:

- *own* are the lines of the reduced program beside the four that each has: `import torch`, the
  first line of `program` and of `calls`, and `return locals()`. *lines* counts these, too.
- *candidates* ran in eager. *compiled* are those that eager accepts: only these cost a compilation.
- *known* is the file in `aliasproof/corpus/python` whose bug it is.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aliasproof.campaigns.run.python_calls import reduced
from aliasproof.campaigns.store.python_finding import PythonFinding
from aliasproof.corpus.known_bugs import KNOWN_BUGS, mended
from aliasproof.corpus.python_bugs import python_bugs
from aliasproof.programs.errors import UserError
from aliasproof.programs.python_program import PythonProgram
from aliasproof.trials.python_trial import examine_python
from aliasproof.trials.worker import quiet_torch
from benchmarks.tables import Table

FILE = Path(__file__).with_name("python_reductions.json")


@dataclass(frozen=True, slots=True)
class ReducedFinding:
    """The figures of one reduction."""

    name: str
    target: str
    oracle: str
    kind: str
    drawn: int
    lines: int
    own: int
    candidates: int
    compiled: int
    seconds: float
    known: str
    program: str


@dataclass(frozen=True, slots=True)
class Reductions:
    """All of them, and the names of those that did not fail any more."""

    reductions: list[ReducedFinding]
    gone: list[str]

    def tables(self) -> list[Table]:
        """One row for each, and the medians."""
        rows = [
            (
                f"{it.name} {it.target}: {it.kind[:60]}",
                *map(str, (it.drawn, it.lines, it.own, it.candidates, it.compiled)),
                f"{it.seconds:.1f}",
                it.known,
            )
            for it in self.reductions
        ]
        if self.reductions:
            names = ("drawn", "lines", "own", "candidates", "compiled", "seconds")
            medians = [
                statistics.median(getattr(it, name) for it in self.reductions) for name in names
            ]
            rows.append(("median", *(f"{it:g}" for it in medians[:-1]), f"{medians[-1]:.1f}", ""))
        columns = ("finding", "drawn", "lines", "own", "candidates", "compiled", "seconds", "known")
        gone = [f"not seen any more: {', '.join(self.gone)}"] if self.gone else []
        return [Table("reductions of Python programs", columns, rows, gone)]


def measure(only: Iterable[str] = ()) -> Reductions:
    """Reduce the findings, or those with these numbers. Raises `UserError` for another number."""
    quiet_torch()
    subjects = {str(it["number"]): it for it in json.loads(FILE.read_text(encoding="utf-8"))}
    unknown = sorted(set(only) - subjects.keys())
    if unknown:
        raise UserError(f"no finding {unknown[0]}; findings: {', '.join(subjects)}")
    reductions, gone = [], []
    with mended(KNOWN_BUGS.values()):
        for name in only or subjects:
            program, start = PythonProgram(subjects[name]["source"]), time.monotonic()
            cause = examine_python(program, subjects[name]["target"]).cause
            finding = None if cause is None else reduced(program, cause)
            if finding is None:
                gone.append(name)
            else:
                reductions.append(_figures(name, finding, time.monotonic() - start))
    return Reductions(reductions, gone)


def _figures(name: str, finding: PythonFinding, seconds: float) -> ReducedFinding:
    return ReducedFinding(
        name,
        finding.target,
        finding.oracle,
        finding.kind,
        finding.drawn_lines,
        finding.program.lines,
        finding.program.own_lines,
        finding.tried,
        finding.compiled,
        seconds,
        next((bug.identifier for bug in python_bugs() if finding.is_of(bug)), ""),
        finding.program.source,
    )
