"""`Scheduler`: shards and reductions in worker processes, results in a fixed order.

Shards are taken in the order of the plan, and reductions in the order in which shards asked for
them, whichever ends first. So a campaign with the same seed and number of programs finds the same,
whatever the number of workers and their speed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from campaigns.blame import Blame
from campaigns.campaign import Campaign
from campaigns.failure import Failure, ReducedFailure, reduce_failure
from campaigns.latent import reduce_latent
from campaigns.pool import cleaned_worker
from campaigns.shard import Shard, ShardResult, run_shard
from campaigns.store import Store
from oracles.verdict import Violation
from programs.errors import DeviceLost, InternalError
from programs.program import Program
from trials.attribution import Symptom
from trials.isolation import DEVICE_LOST
from trials.worker import processor_seconds

# Seconds. A shard takes 1 to 5 and a reduction 1 to 20, so one that takes longer than this hangs.
TASK_TIMEOUT = 600.0
GRACE = 20.0  # seconds that shards and reductions under way may take after the time is up
POLL = 0.02  # seconds between two looks at results that are not there yet


@dataclass(slots=True)
class Scheduler:
    """Schedules the shards of a plan and the reductions of their failures; counts in `campaign`.

    A worker that dies or hangs costs one program. The scheduler attributes the death to the program
    that the worker was running, and runs the shard again without that program. If several ran
    together, it runs them one by one. If none of them dies alone, their company is at fault.
    """

    campaign: Campaign
    store: Store
    pool: ProcessPool
    started: float = field(default_factory=time.monotonic)
    _shards: Iterator[Shard] = field(init=False)
    _queue: deque[tuple[Shard, ProcessFuture[ShardResult]]] = field(default_factory=deque)
    _reductions: deque[tuple[Failure, ProcessFuture[_Reduction]]] = field(default_factory=deque)
    _violations: Counter[Hashable] = field(default_factory=Counter)
    _deaths: dict[Hashable, ProcessExpired | TimeoutError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._shards = self.campaign.plan.shards()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def fill(self) -> bool:
        """Schedule shards, two per worker. Returns False if the search is over."""
        # One shard per worker runs, another one waits, so that no worker is idle while the parent
        # writes. More would only make the end of a timed campaign longer.
        while not self._time_is_up() and len(self._queue) < 2 * self.campaign.plan.workers:
            shard = next(self._shards, None)
            if shard is None:
                break
            self._queue.append((shard, self._schedule(shard)))
        return bool(self._queue or self._reductions) and not self._time_is_up(GRACE)

    def take(self) -> ReducedFailure | None:
        """Take the next shard or reduction that is done, or wait a moment if there is none.

        Returns the failure to confirm, if the shard or reduction led to one.
        """
        # Only the first of each queue is looked at: this makes the order independent of timing.
        if self._queue and self._queue[0][1].done():
            return self._take_shard(*self._queue.popleft())
        if self._reductions and self._reductions[0][1].done():
            return self._take_reduction(*self._reductions.popleft())
        time.sleep(POLL)
        return None

    def stop(self) -> None:
        """End the workers, whatever they are doing."""
        self.pool.stop()
        self.pool.join()

    def _time_is_up(self, grace: float = 0.0) -> bool:
        seconds = self.campaign.plan.seconds
        return seconds is not None and self.elapsed > seconds + grace

    # --- shards ---

    def _schedule(self, shard: Shard) -> ProcessFuture[ShardResult]:
        # Made anew for each attempt, so that it never names a program of an earlier one.
        blame = str(self.store.blame_file(shard))
        Blame.create(blame)
        return self.pool.schedule(_run_with_blame, args=(shard, blame), timeout=TASK_TIMEOUT)

    def _take_shard(
        self, shard: Shard, future: ProcessFuture[ShardResult]
    ) -> ReducedFailure | None:
        try:
            result = future.result()
        except (ProcessExpired, TimeoutError) as death:
            return self._handle_death(shard, death)
        except InternalError as mistake:
            self._note_mistake(mistake, f"shard {shard.seed} of {shard.target}")
            return None
        self.store.blame_file(shard).unlink(missing_ok=True)
        self.campaign.statistics[shard.target].add(result.statistics)
        for symptom, (count, program) in result.suspicions.found.items():
            self.campaign.suspicions.add(symptom, program, count)
        self.campaign.spent.searching += result.searching
        self.campaign.spent.recognizing += result.recognizing
        for failure in result.failures:
            if failure.known is not None:
                self.campaign.known[failure.known] += 1
            self._reduce(failure)
        for found in result.company:
            self._reduce(Failure(found.symptom, found.program, shard.seed, company=True))
        return self._died_in_company(shard)

    def _handle_death(
        self, shard: Shard, death: ProcessExpired | TimeoutError
    ) -> ReducedFailure | None:
        """Run the rest of a shard whose worker died or hung. The program at fault is a failure."""
        self.campaign.deaths += 1
        blamed = Blame.read(str(self.store.blame_file(shard)))
        if not blamed:  # the worker died before the first program, so no program is at fault
            return None
        self._deaths[shard.target, shard.seed, blamed] = death
        if len(blamed) > 1:  # one by one, to see which of them it was
            rest = replace(shard, group=1, company=blamed)
        else:
            rest = replace(shard, skip=shard.skip | {*blamed})
        self._queue.appendleft((rest, self._schedule(rest)))  # first, so that the order stays
        return None if len(blamed) > 1 else self._death(shard, blamed, shard.program(blamed[0]))

    def _died_in_company(self, shard: Shard) -> ReducedFailure | None:
        """The failure of programs that ended a worker together, and of which none does alone."""
        if not shard.company or shard.skip & {*shard.company}:
            return None
        return self._death(shard, shard.company, shard.together(shard.company))

    def _death(self, shard: Shard, blamed: range, program: Program) -> ReducedFailure:
        death = self._deaths[shard.target, shard.seed, blamed]
        kind = _kind_of(death)
        violation = Violation("errors", kind, "call", {"worker": str(death)})
        failure = Failure(Symptom(shard.target, "errors", kind), program, shard.seed)
        # Not reduced: each candidate could cost a worker, and a hang `TASK_TIMEOUT`.
        return ReducedFailure.unreduced(failure, violation, exact=True)

    def _note_mistake(self, mistake: InternalError, task: str) -> None:
        """An error of aliasproof itself costs one task, not the campaign; `run.json` names it."""
        self.campaign.mistakes.append(f"{task}: {mistake}")

    # --- reductions ---

    def _reduce(self, failure: Failure) -> None:
        # Past the known bugs, those that cannot be mended are only counted.
        if failure.known is not None and self.campaign.plan.past_known:
            return
        alike: Hashable = failure.known or failure.suspected or failure.symptom
        if failure.company:
            alike = "company", failure.symptom
        self._violations[alike] += 1
        if not worth_reducing(failure, self._violations[alike]):
            # A known bug is counted as such, and needs no more than one program as evidence.
            self.campaign.repeats += failure.known is None
            return
        task = self.pool.schedule(_timed_reduction, args=(failure,), timeout=TASK_TIMEOUT)
        self._reductions.append((failure, task))
        self.campaign.reducing = len(self._reductions)

    def _take_reduction(
        self, failure: Failure, future: ProcessFuture[_Reduction]
    ) -> ReducedFailure | None:
        self.campaign.reducing = len(self._reductions)
        symptom = failure.symptom
        try:
            reduced, seconds = future.result()
        except (ProcessExpired, TimeoutError) as death:
            # A candidate ended the worker. The failure itself is not lost: it is confirmed with the
            # program as it was drawn.
            self.campaign.deaths += 1
            # Without a run of the program, nothing says that its values are exact.
            evidence = {"reduction": str(death)}
            violation = Violation(symptom.oracle, symptom.kind, "call", evidence)
            return ReducedFailure.unreduced(failure, violation, exact=False)
        except InternalError as mistake:
            self._note_mistake(mistake, f"reduction of {symptom.kind} from shard {failure.seed}")
            return None
        self.campaign.spent.reducing += seconds
        if reduced is None:
            self.campaign.not_reproduced += 1
        elif failure.known is None and reduced.signature.known is not None:
            self.campaign.known[reduced.signature.known] += 1
            # Only the reduced program told that it is known.
            if self.campaign.plan.past_known:
                return None
        return reduced


def worth_reducing(failure: Failure, number: int) -> bool:
    """Whether to reduce the `number`-th failure that is alike, counted from 1.

    A reduction takes as long as a hundred programs. Of a known bug, one program is enough. Failures
    that only look like a known bug are reduced to tell: two of them, then one in eight. So it is
    with what several programs show together, as most of that is known of single ones. The message
    of an error is nearly its cause, so the first is enough, and a second one in case the first is
    not reproduced; so it is with what is latent. Silent violations of one symptom can have many
    causes: the first twelve are reduced, then one in four.
    """
    if failure.known is not None:
        return number == 1
    if failure.company:
        return number <= 2 or number % 8 == 0
    if failure.suspected is not None:
        return number <= 2 or number % 8 == 0
    few = failure.symptom.latent or failure.symptom.oracle == "errors"
    return number <= 2 if few else number <= 12 or number % 4 == 0


class _Reduction(NamedTuple):
    """The result of a reduction, and the seconds of processor time that it took."""

    reduced: ReducedFailure | None
    seconds: float


# The exit status of a worker that lost its device. No other part of a worker exits with it.
LOST = 71


@contextlib.contextmanager
def _ending_without_device() -> Iterator[None]:
    """End the worker if it loses its device: what it runs later would fail, whatever it is."""
    try:
        yield
    except DeviceLost:
        os._exit(LOST)


def _kind_of(death: ProcessExpired | TimeoutError) -> str:
    """How a worker ended, as the kind of a violation."""
    if isinstance(death, TimeoutError):
        return "hangs"
    return DEVICE_LOST if death.exitcode == LOST else f"dies of signal {-death.exitcode}"


def _timed_reduction(failure: Failure) -> _Reduction:
    start = processor_seconds()
    with _ending_without_device(), cleaned_worker():
        reduced = reduce_latent(failure) if failure.symptom.latent else reduce_failure(failure)
    return _Reduction(reduced, processor_seconds() - start)


def _run_with_blame(shard: Shard, blame: str) -> ShardResult:
    with _ending_without_device(), cleaned_worker():
        return run_shard(shard, Blame(blame))
