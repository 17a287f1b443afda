"""The functions that worker processes of a campaign run: their start, shards and reductions."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from aliasproof.campaigns.failure.failure import AnyFailure
from aliasproof.campaigns.run import languages
from aliasproof.campaigns.run.executor import IsolatedReduction, Reduction
from aliasproof.campaigns.run.shard import ShardResult
from aliasproof.campaigns.store.plan import Shard
from aliasproof.judge.trial import processor_seconds, start_worker
from aliasproof.processes import isolation, outcome
from aliasproof.targets.inductor import forget_compiled

CACHE = "TORCHINDUCTOR_CACHE_DIR"
_own_cache: list[str] = []  # the folder of this worker; torch may put its own into the environment


def start(targets: Sequence[str], compiled: str, limit: float) -> None:
    """Prepare this process for these targets, and for programs of at most `limit` seconds each.

    Compilers write into the folder `compiled`.
    """
    # A target may print, but standard output is for results, and standard error for progress.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    isolation.tell_programs_alone()
    outcome.set_limit(limit)
    start_worker(targets)
    # Compilers write into a folder of this worker, so that it can delete them by itself.
    os.environ[CACHE] = str(Path(compiled) / str(os.getpid()))
    _own_cache[:] = [os.environ[CACHE]]


@contextlib.contextmanager
def cleaned_worker() -> Iterator[None]:
    """At the end, delete what this worker has compiled: a campaign compiles without limit."""
    try:
        yield
    finally:
        outcome.end()
        forget_compiled()
        for folder in _own_cache:
            shutil.rmtree(folder, ignore_errors=True)


def examine_shard(shard: Shard) -> ShardResult:
    """Run a shard, and announce which programs are about to run."""

    def announce(indices: Sequence[int]) -> None:
        outcome.begin(1 if len(indices) == 1 else 2)
        isolation.begin_programs(indices)

    with cleaned_worker():
        return languages.judge(shard, announce)


def reduce(work: AnyFailure | IsolatedReduction) -> Reduction:
    """Reduce a failure; its `seconds` are processor time."""
    before = processor_seconds()
    isolated = isinstance(work, IsolatedReduction)
    failure = work.failure if isinstance(work, IsolatedReduction) else work
    with cleaned_worker():
        done = languages.reduce(failure, isolated=isolated)
    return done._replace(seconds=processor_seconds() - before)
