"""A shard: the unit of work of a campaign, a pure function of its description."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from campaigns.failure import Failure
from campaigns.latent import latent_failure
from campaigns.statistics import Statistics
from campaigns.suspicions import Suspicions
from corpus.known_bugs import KNOWN_BUGS, mended
from generators.features import swarm
from generators.strategies import sample
from programs.devices import on_device
from programs.errors import require_no_loss
from programs.program import Program
from targets.registry import target as target_named
from trials.examination import examine
from trials.trial import Case
from trials.value_search import CAMPAIGN_BUDGET

PROGRAMS_PER_SHARD = 25


@dataclass(frozen=True, slots=True)
class Shard:
    """`count` programs of one seed through one target. The seed also decides the swarm features.

    The programs with the indices in `skip` do not run: a worker died or hung on them before. With
    `past_known`, torch runs with the known bugs mended. The programs are on `device`.
    """

    seed: int
    target: str
    count: int = PROGRAMS_PER_SHARD
    skip: frozenset[int] = frozenset()
    past_known: bool = False
    device: str = "cpu"

    def program(self, index: int) -> Program:
        """The program with that index."""
        drawn = list(sample(swarm(self.seed), self.seed, index + 1))[index]
        return on_device(drawn, self.device)


@dataclass(slots=True)
class ShardResult:
    """What a shard found, and the seconds of processor time that it took.

    `recognizing` are the seconds spent on whether failures are known bugs, `searching` all others.
    """

    shard: Shard
    statistics: Statistics = field(default_factory=Statistics)
    failures: list[Failure] = field(default_factory=list)
    suspicions: Suspicions = field(default_factory=Suspicions)
    searching: float = 0.0
    recognizing: float = 0.0


def run_shard(shard: Shard, announce: Callable[[int], None] = lambda index: None) -> ShardResult:
    """Draw the programs, examine each, and collect those that violate the contract.

    `announce` is called with the index of the program that is about to run, so that the scheduler
    can attribute the death of the worker to this program. Raises `InternalError` for an error of
    aliasproof itself.
    """
    result, before = ShardResult(shard), time.process_time()
    programs = sample(swarm(shard.seed), shard.seed, shard.count, result.statistics.instructions)
    for index in range(shard.count):
        start = time.perf_counter()
        # Also if it is skipped: the others must stay the same.
        program = on_device(next(programs), shard.device)
        result.statistics.spent.generation += time.perf_counter() - start
        if index not in shard.skip:
            announce(index)
            # Entered for each program: what a program draws must not depend on mends.
            with mended(KNOWN_BUGS.values() if shard.past_known else ()):
                _run_program(program, result)
    result.searching = time.process_time() - before - result.recognizing
    return result


def _run_program(program: Program, result: ShardResult) -> None:
    """Examine one program and add what it shows to the result."""
    shard = result.shard
    target = target_named(shard.target)
    found = examine(Case.of(program), target, search=CAMPAIGN_BUDGET)
    if found.shown is not None:  # with these values, it is a failure like any other
        program = found.shown.as_program(program)
        found = examine(Case.of(program), target)
    for ended in (found.rejected, found.mistake):
        if ended is not None:  # it may quote an error after which no program runs in this process
            require_no_loss(ended)
    result.statistics.count(found)
    # After an error of ours no verdict of this shard is to be trusted.
    if found.mistake is not None:
        raise found.mistake
    if found.symptom is None:
        return
    start = time.process_time()
    if not found.suspicious:
        failure = Failure.of(found.symptom, program, shard.seed, past_known=shard.past_known)
        result.failures.append(failure)
    else:
        result.suspicions.add(found.symptom, program)
        if found.symptom.latent:
            latent = latent_failure(found.symptom, program, shard.seed)
            result.failures += [] if latent is None else [latent]
    result.recognizing += time.process_time() - start
