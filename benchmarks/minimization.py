"""What `minimize` needs for long programs, beside the minifier of `torch._functorch.fx_minifier`.

`python -m benchmarks minimization`. The programs are those of `minimization_subjects`: 50 of about
200 instructions and 5 of about 2,000, drawn from a seed. Both reducers get the same program, and
ask the same question: the main violation has the oracle and the kind of the first one. Ours asks
for the target at fault and the known bug, too, as the command `minimize` does.

How to read a row:

- *candidates* were asked about; *compiled* are those that the target built. The others are
  undefined in eager, or raise there.
- *cause*: the result still fails, and the right pass is right on it (a planted fault), or it is
  right while the known bug is mended.
- *seconds* are of processor time. The minifier is stopped after `MINIFIER_SECONDS`, and the best
  graph until there counts.
"""

from __future__ import annotations

import contextlib
import io
import operator
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._functorch.fx_minifier import minifier

from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.execution import as_graph
from aliasproof.ir.program import Program
from aliasproof.ir.values import input_tensors
from aliasproof.judge import trial
from aliasproof.judge.attribution import grades_of
from aliasproof.judge.trial import Case, Trial, quiet_torch, run_trial
from aliasproof.reduction.reducer import Reducer
from benchmarks import minimization_subjects
from benchmarks.minimization_subjects import LongProgram
from benchmarks.tables import Table

MINIFIER_SECONDS = 10
LONG = 1000  # instructions: programs with more count as those of 2,000
SEED = 0
FX = ("functionalize", "aot", "fx-reinplace")  # they take a tenth of what Inductor does


@dataclass(frozen=True, slots=True)
class Shortened:
    """What one reducer made of a program; `why` says why it made nothing."""

    instructions: int = 0
    candidates: int = 0
    compiled: int = 0
    seconds: float = 0.0
    cause: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class BothShortened:
    """A long program, and what both reducers made of it."""

    name: str
    kind: str
    instructions: int
    ours: Shortened
    torchs: Shortened


@dataclass(frozen=True, slots=True)
class Minimizations:
    """A row for each program."""

    rows: Sequence[BothShortened]

    def tables(self) -> list[Table]:
        """One row per program, and the medians of both lengths."""
        columns = ("program", "before", "after", "candidates", "compiled", "seconds", "cause kept")
        further = ("minifier: after", "compiled", "seconds", "cause kept")
        rows = [
            (f"{row.kind}: {row.name}", str(row.instructions), *_cells(row.ours, row.torchs))
            for row in self.rows
        ]
        for title, some in (
            (f"median up to {LONG:,}", [it for it in self.rows if it.instructions <= LONG]),
            (f"median above {LONG:,}", [it for it in self.rows if it.instructions > LONG]),
        ):
            if some:
                accepted = [it.torchs for it in some if not it.torchs.why]
                medians = [_medians([it.ours for it in some]), _medians(accepted)]
                rows.append(
                    (title, f"{len(some)} programs", *medians[0], *_without_asked(medians[1]))
                )
        refused = [f"minifier, {it.name}: {it.torchs.why}" for it in self.rows if it.torchs.why]
        return [Table("reductions of long programs", (*columns, *further), rows, refused)]


def _cells(ours: Shortened, torchs: Shortened) -> list[str]:
    return [*_figures(ours), *_without_asked(_figures(torchs))]


def _without_asked(cells: Sequence[str]) -> list[str]:
    """The cells without candidates: the minifier compiles each of them."""
    return [cells[0], *cells[2:]]


def _figures(it: Shortened) -> list[str]:
    if it.why:
        return ["-"] * 5
    kept = "yes" if it.cause else "no"
    return [*map(str, (it.instructions, it.candidates, it.compiled)), f"{it.seconds:.0f}", kept]


def _medians(some: Sequence[Shortened]) -> list[str]:
    if not some:
        return ["-"] * 5
    names = ("instructions", "candidates", "compiled", "seconds")
    medians = [statistics.median(getattr(it, name) for it in some) for name in names]
    kept = f"{sum(it.cause for it in some)} of {len(some)}"
    return [*(f"{it:g}" for it in medians[:-1]), f"{medians[-1]:.0f}", kept]


def measure(seconds: int | None = None) -> Minimizations:
    """Reduce the programs, and begin none after so many seconds."""
    quiet_torch()
    ends = time.monotonic() + (seconds or float("inf"))
    rows = []
    for subject in subjects(SEED):
        ours, torchs = shortened(subject), minified(subject)
        row = BothShortened(subject.name, subject.kind, len(subject.program), ours, torchs)
        print(row, flush=True)
        rows.append(row)
        if time.monotonic() > ends:
            break
    return Minimizations(rows)


def subjects(seed: int) -> Iterator[LongProgram]:
    """50 programs of about 200 instructions and 5 of about 2,000, the kinds in turn."""
    sources: list[tuple[int, Iterator[LongProgram]]] = [
        (17, minimization_subjects.spliced(200, seed, FX)),
        (12, minimization_subjects.in_models(3, seed + 1, FX)),
        (13, minimization_subjects.planted(200, seed + 2)),
        (3, minimization_subjects.in_models(32, seed + 3, FX)),
        (8, minimization_subjects.spliced(200, seed + 4, ("inductor-fx",))),
        (2, minimization_subjects.spliced(2000, seed + 5, FX)),
    ]
    while sources:
        for count, source in list(sources):
            subject = next(source, None)
            sources = [it for it in sources if it[1] is not source]
            if subject is not None:
                yield subject
                if count > 1:
                    sources.append((count - 1, source))


class _Builds:
    """Counts what targets build, and the questions for which they build something."""

    def __init__(self) -> None:
        self.made = self.questions = 0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count in this context."""
        run_target = trial.run_target

        def counting(*given: Any) -> Any:
            self.made += 1
            return run_target(*given)

        with mock.patch.object(trial, "run_target", counting):
            yield

    def about(self, question: Callable[[], int]) -> int:
        """The answer to a question."""
        before = self.made
        try:
            return question()
        finally:
            self.questions += self.made > before


def shortened(subject: LongProgram) -> Shortened:
    """What our reducer makes of a program."""
    builds, started = _Builds(), time.process_time()

    def predicate(candidate: Program) -> int:
        return builds.about(lambda: subject.grade(candidate))

    best = len(grades_of(subject.symptom))
    reducer = Reducer(subject.program, predicate, best_grade=best)
    with builds.counted():
        result = reducer.run()
    seconds, cause = time.process_time() - started, subject.keeps_cause(Case.of(result))
    return Shortened(len(result), reducer.tried, builds.questions, seconds, cause)


# --- the minifier of torch ------------------------------------------------------------------------


class _TooLong(Exception):
    pass


def minified(subject: LongProgram) -> Shortened:
    """What the minifier of torch makes of the graph of a program."""
    builds, started = _Builds(), time.process_time()
    best: list[tuple[fx.GraphModule, Sequence[torch.Tensor]]] = []

    def fails(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> bool:
        if time.process_time() - started > MINIFIER_SECONDS:
            raise _TooLong
        return bool(builds.about(lambda: int(_differs(subject, _case(module, inputs)))))

    def keep(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> None:
        best.append((module, inputs))

    silent = io.StringIO()
    with builds.counted(), contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        try:  # the code of a graph cannot name `random_.from`
            graph = fx.GraphModule(torch.nn.Module(), as_graph(subject.program))
            best.append(minifier(graph, input_tensors(subject.program), fails, keep))
        except _TooLong:
            pass
        except Exception as error:  # noqa: BLE001 - it has assertions of many kinds
            return Shortened(why=f"{type(error).__name__}: {' '.join(str(error).split())[:80]}")
    if not best:
        return Shortened(why=f"no first answer in {MINIFIER_SECONDS} s")
    module, inputs = best[-1]
    calls = [it for it in module.graph.nodes if it.op == "call_function"]
    calls = [it for it in calls if it.target is not operator.getitem]
    seconds = time.process_time() - started
    cause = subject.keeps_cause(_case(module, inputs))
    return Shortened(len(calls), builds.questions, builds.questions, seconds, cause)


def _case(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Case:
    return Case.of_function(module, list(inputs))


def _differs(subject: LongProgram, case: Case) -> bool:
    try:
        done: Trial = run_trial(case, subject.target)
    except (Rejected, InternalError):
        return False
    main = next(iter(done.judgement.violations), None)
    symptom = subject.symptom
    return main is not None and (main.oracle, main.kind) == (symptom.oracle, symptom.kind)
