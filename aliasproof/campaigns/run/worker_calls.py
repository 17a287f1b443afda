"""What a worker process of a campaign or a hunt is called for: its start, shards and reductions."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from aliasproof.campaigns.failure.failure import Failure
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
from aliasproof.campaigns.store.python_store import JudgedPrograms, ReducedProgram
from aliasproof.corpus.bug_files import known_bugs, python_bugs
from aliasproof.corpus.known_bug import patched
from aliasproof.generators.python_drawing import sample_python
from aliasproof.ir.devices import cpu_capability
from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.python_trial import EAGER, Cause, FailsAlike, examine_python, part_of
from aliasproof.judge.trial import processor_seconds, start_worker
from aliasproof.processes import isolation, outcome
from aliasproof.reduction.syntax_reducer import SyntaxReducer
from aliasproof.targets.inductor import forget_compiled

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
        return run_shard(shard, announce)


def reduce(work: Failure | IsolatedReduction) -> Reduction:
    """Reduce a failure. The seconds are those of the processor."""
    before = processor_seconds()
    with cleaned_worker():
        if isinstance(work, IsolatedReduction):
            runner = isolated_runner(work.failure)
            reduced = reduce_isolated(work.failure, runner)
        else:
            runner = Runner()
            reduced = reduce_failure(work, runner)
    return Reduction(reduced, processor_seconds() - before, tuple(runner.mistakes))


# --- python calls ---------------------------------------------------------------------------------
#
# What a worker process of a hunt is called for: to judge Python programs, and to reduce them.


MOST = 400  # candidates
SECONDS = 150.0  # after them, no candidate is asked; the limit of a call is above
OURS = "no bug of torch, but a mistake of aliasproof, or a program that depends on chance"


def start_python(targets: Sequence[str], compiled: str) -> None:
    """Prepare this process for these targets. Compilers write into the folder `compiled`."""
    start_worker(targets)
    own_cache(compiled)


def judge_programs(seed: int, numbers: range, target: str, past_known: bool) -> JudgedPrograms:
    """Draw the programs with these numbers and judge each."""
    judged = JudgedPrograms()
    with cleaned_worker(), patched(known_bugs().values() if past_known else ()):
        for number, program in zip(numbers, sample_python(seed, numbers), strict=True):
            try:
                cause = examine_python(program, target).cause
            except Rejected:
                judged.outcomes["undefined"] += 1
                continue
            except InternalError as mistake:
                judged.outcomes["mistakes"] += 1
                judged.notes.append(f"program {number}: {mistake}")
                continue
            if cause is not None and target == EAGER:
                judged.outcomes["mistakes"] += 1
                what = f"{cause.oracle}: {cause.kind}"
                judged.notes.append(f"program {number}: two eager runs differ ({what}): {OURS}")
            elif cause is not None:
                judged.outcomes["violated"] += 1
                judged.failing.append((number, cause))
            else:
                judged.outcomes["holds"] += 1
    return judged


def reduce_program(
    seed: int, number: int, cause: Cause, past_known: bool, most: int = MOST
) -> ReducedProgram:
    """Reduce a failing program with so many candidates; no finding if it does not fail again."""
    (drawn,) = sample_python(seed, [number])
    with cleaned_worker():
        with patched(known_bugs().values() if past_known else ()):
            finding = reduced(drawn, cause, most)
        if finding is None:
            return ReducedProgram()
        finding = replace(finding, seed=seed, number=number)
        try:
            return named(finding)
        except InternalError as mistake:  # what was found stays, without the name of a known bug
            return ReducedProgram(finding, mistake=str(mistake))


def reduced(drawn: PythonProgram, cause: Cause, most: int = MOST) -> PythonFinding | None:
    """Reduce a failing program with so many candidates; None if it does not fail any more."""
    fails = FailsAlike(cause)
    if not fails(drawn):
        return None
    end = time.monotonic() + SECONDS
    reducer = SyntaxReducer(drawn, lambda it: time.monotonic() < end and fails(it), most)
    program = reducer.run()
    found = examine_python(program, cause.target)
    main = found.main
    if main is None:
        return None
    return PythonFinding(
        program,
        found.target,
        main.oracle,
        main.kind,
        main.place,
        dict(main.evidence),
        drawn_lines=drawn.lines,
        tried=reducer.tried,
        compiled=fails.compiled,
        torch=str(torch.__version__),
        capability=cpu_capability(),
        part=part_of(program, Cause(found.target, main.oracle, main.kind)),
    )


def named(finding: PythonFinding) -> ReducedProgram:
    """The finding with the known bug that it is, and the name that `fuzz` has for it."""
    line = straight_line(finding.program)
    name = line and name_of_line(line, finding.target, finding.oracle)
    if name and name.documented:
        return ReducedProgram(documented=name.documented)
    known = next((name for name, bug in python_bugs().items() if finding.is_of(bug)), "")
    if name:
        return ReducedProgram(replace(finding, line=name.identifier, known=known or name.known))
    return ReducedProgram(replace(finding, known=known))
