"""What a worker process of a campaign is called for: its start, shards and reductions."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from aliasproof.campaigns.failure.failure import AnyFailure, PythonFailure
from aliasproof.campaigns.failure.reduction import (
    Runner,
    isolated_runner,
    reduce_failure,
    reduce_isolated,
)
from aliasproof.campaigns.failure.straight_line import name_of_line, straight_line
from aliasproof.campaigns.run.executor import IsolatedReduction, Reduction
from aliasproof.campaigns.run.shard import ShardResult, run_shard
from aliasproof.campaigns.store.finding import PythonFinding
from aliasproof.campaigns.store.plan import Shard
from aliasproof.corpus.bug_files import known_bugs, python_bugs
from aliasproof.corpus.known_bug import patched
from aliasproof.generators.python_drawing import sample_python
from aliasproof.ir.devices import cpu_capability
from aliasproof.ir.errors import InternalError
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.attribution import FailsAlike, Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.groups import Announce
from aliasproof.judge.localization import part_of
from aliasproof.judge.python_case import EAGER, PythonCase
from aliasproof.judge.trial import processor_seconds, start_worker
from aliasproof.processes import isolation, outcome
from aliasproof.reduction.reducer import Reducer
from aliasproof.reduction.syntax_passes import PYTHON
from aliasproof.targets.inductor import forget_compiled
from aliasproof.targets.registry import target as target_named

CACHE = "TORCHINDUCTOR_CACHE_DIR"
_own_cache: list[str] = []  # this worker's folder; torch puts its own into the environment, too


def start(targets: Sequence[str], compiled: str, limit: float) -> None:
    """Prepare this process for these targets, and for programs of at most `limit` seconds each.

    Compilers write into the folder `compiled`.
    """
    # A target may print. Standard output is for results, and standard error for progress.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    isolation.tell_programs_alone()
    outcome.set_limit(limit)
    start_worker(targets)
    own_cache(compiled)


def own_cache(compiled: str) -> None:
    """Let compilers write into the folder of this worker in `compiled`: each deletes its own."""
    os.environ[CACHE] = str(Path(compiled) / str(os.getpid()))
    _own_cache[:] = [os.environ[CACHE]]


@contextlib.contextmanager
def cleaned_worker() -> Iterator[None]:
    """Afterwards, delete what this worker has compiled: a campaign compiles without end."""
    try:
        yield
    finally:
        outcome.end()
        forget_compiled()
        for folder in _own_cache:
            shutil.rmtree(folder, ignore_errors=True)


def examine_shard(shard: Shard) -> ShardResult:
    """Run a shard, and say which programs run."""

    def announce(indices: Sequence[int]) -> None:
        outcome.begin(1 if len(indices) == 1 else 2)
        isolation.begin_programs(indices)

    with cleaned_worker():
        return (run_shard if shard.python is None else judge_programs)(shard, announce)


def reduce(work: AnyFailure | IsolatedReduction) -> Reduction:
    """Reduce a failure. The seconds are those of the processor."""
    before = processor_seconds()
    isolated = isinstance(work, IsolatedReduction)
    failure = work.failure if isinstance(work, IsolatedReduction) else work
    with cleaned_worker():
        if isinstance(failure, PythonFailure):
            # The candidates of one that ended its process before would end it again.
            done = reduce_program(failure, 0 if isolated else PYTHON.most)
        else:
            runner = isolated_runner(failure) if isolated else Runner()
            shrink = reduce_isolated if isolated else reduce_failure
            done = Reduction(shrink(failure, runner), 0.0, tuple(runner.mistakes))
    return done._replace(seconds=processor_seconds() - before)


# --- python calls ---------------------------------------------------------------------------------
#
# Python programs: to judge those of a shard, and to reduce one.


SECONDS = 150.0  # of the processor; after them, no candidate is asked; the limit of a call is above
OURS = "no bug of torch, but a mistake of aliasproof, or a program that depends on chance"


def judge_programs(shard: Shard, announce: Announce = lambda numbers: None) -> ShardResult:
    """Draw the Python programs of a shard and judge each.

    Those that are skipped end their process. Drawing runs eager, so eager may be what ends it.
    """
    result, before = ShardResult(shard), processor_seconds()
    count, skipped = result.statistics, shard.skip.intersection(shard.numbers)
    count.programs, count.dies = shard.count, len(skipped)
    with patched(known_bugs().values() if shard.past_known else ()):
        for number in shard.numbers:
            if number in skipped:
                continue
            announce([number])
            (program,) = sample_python(shard.seed, [number])
            try:
                found = examine(PythonCase(program), target_named(shard.target))
                cause = found.symptom
                if cause is not None and not FailsAlike(cause)(program):
                    cause = None  # a second run does not show it
            except InternalError as mistake:
                result.mistakes.append(f"program {number}: {mistake}")
                continue
            if found.rejected is not None:
                count.discarded += 1
            elif cause is not None and shard.target == EAGER:
                what = f"{cause.oracle}: {cause.kind}"
                result.mistakes.append(f"program {number}: two eager runs differ ({what}): {OURS}")
            elif cause is not None:
                count.violating += 1
                drawn = shard.seed, number, shard.target, shard.past_known
                result.failures.append(PythonFailure(*drawn, cause))
    count.mistaken = len(result.mistakes)
    result.searching = processor_seconds() - before
    return result


def reduce_program(failure: PythonFailure, most: int = PYTHON.most) -> Reduction:
    """Reduce a failing program, trying `most` candidates; no finding if it does not fail again."""
    (drawn,) = sample_python(failure.seed, [failure.number])
    with patched(known_bugs().values() if failure.past_known else ()):
        finding = reduced(drawn, failure.cause, most)
    if finding is None:
        return Reduction(None, 0.0)
    finding = replace(finding, seed=failure.seed, number=failure.number)
    try:
        name = named(finding)
    except InternalError as mistake:  # what was found stays, without the name of a known bug
        return Reduction(finding, 0.0, (str(mistake),))
    return Reduction(name.finding, 0.0, documented=name.documented)


def reduced(drawn: PythonProgram, symptom: Symptom, most: int = PYTHON.most) -> PythonFinding | None:
    """Reduce a failing program, trying `most` candidates; None if it does not fail any more."""
    fails = FailsAlike(symptom)
    if not fails(drawn):
        return None
    end = processor_seconds() + SECONDS
    problem = replace(PYTHON, most=most)
    reducer = Reducer(problem, drawn, lambda it: processor_seconds() < end and fails(it))
    program = reducer.run()
    found = examine(PythonCase(program), target_named(symptom.target))
    main, symptom_left = found.main, found.symptom
    if main is None or symptom_left is None:
        return None
    return PythonFinding(
        program,
        symptom_left.target,
        main.oracle,
        main.kind,
        main.place,
        dict(main.evidence),
        drawn_lines=drawn.lines,
        tried=reducer.tried,
        compiled=fails.compiled,
        torch=str(torch.__version__),
        capability=cpu_capability(),
        part=part_of(program, symptom_left),
    )


class NamedFinding(NamedTuple):
    """A finding with its names; or none, and why the documentation allows what it shows."""

    finding: PythonFinding | None = None
    documented: str = ""


def named(finding: PythonFinding) -> NamedFinding:
    """The finding with the known bug that it is, and the name that `fuzz` has for it."""
    line = straight_line(finding.program)
    name = line and name_of_line(line, finding.target, finding.oracle)
    if name and name.documented:
        return NamedFinding(documented=name.documented)
    known = next((name for name, bug in python_bugs().items() if finding.is_of(bug)), "")
    if name:
        return NamedFinding(replace(finding, line=name.identifier, known=known or name.known))
    return NamedFinding(replace(finding, known=known))
