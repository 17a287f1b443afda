"""`Scheduler`: the fold of a campaign over the results of shards and reductions.

Shards are taken in the order of the plan, whichever ends first. Reductions are numbered in the
order in which these shards asked for them, and taken as they end: of two with one signature, the
lower number is the evidence. So a campaign with the same seed and number of programs finds the
same, whatever the number of workers and their speed, and however often it was interrupted and
resumed.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from aliasproof.campaigns.failure.failure import AnyFailure
from aliasproof.campaigns.failure.finding import AnyFinding
from aliasproof.campaigns.failure.recognition import FrequentBugs
from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.executor import Mistake, Reduction, WorkerEnd
from aliasproof.campaigns.run.languages import as_drawn, failure_of_end, is_waited_for
from aliasproof.campaigns.run.tasks import TRIES, Tasks, Ticket
from aliasproof.campaigns.store.plan import Shard
from aliasproof.campaigns.store.store import KNOWN, KeptFailure

POLL = 0.05  # seconds between two polls for results
DONE_EARLY = 100  # shards that may wait for an earlier one; about 1 MB
# The share of a campaign's time in which it draws programs while other work waits; that share while
# something is due; and the seconds that are always enough for the waiting work at the end.
DRAWING, DRAWING_IF_DUE, ENOUGH = 0.85, 0.5, 300.0
# Shards that go before the reduction of a latent failure, which is no finding and takes as long as
# five shards.
LATENT_WAITS = 100
# How often a worker must end at a program, or in a reduction, before these are at fault. A user or
# the kernel can end any worker, so that a few such ends say little.
TRIES_IF_FROM_OUTSIDE = 5


class FoundFailure(NamedTuple):
    """A failure with its finding, reduced if possible. Shards asked for it as the `number`-th."""

    finding: AnyFinding
    failure: KeptFailure
    number: int


class _Suspects(NamedTuple):
    """Programs of a shard, one or a group, that a worker was running when it ended."""

    language: str
    target: str
    seed: int
    programs: range


@dataclass(slots=True)
class Scheduler:
    """Schedules the shards of a plan and the reductions of their failures; counts in `campaign`.

    A worker that dies or hangs costs one program. The scheduler attributes the death to the program
    that the worker was running, once that has ended two workers, and runs the shard again without
    it. If several programs ran together, it runs them one by one. If none of them ends a worker by
    itself, the group is at fault. `before` are the seconds that the campaign ran until it was
    resumed. `others_wait` says that findings wait to be confirmed.
    """

    campaign: Campaign
    tasks: Tasks
    started: float = field(default_factory=time.monotonic)
    before: float = 0.0
    others_wait: bool = False
    _shards: Iterator[Shard] = field(init=False)
    _next: Shard | None = None
    _scheduled: int = 0
    _frequent: FrequentBugs = field(default_factory=FrequentBugs)
    _queue: deque[Ticket[Shard]] = field(default_factory=deque)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _reductions: list[Ticket[KeptFailure]] = field(default_factory=list)
    # Latent failures that wait, each with the number of shards that go first.
    _latent: deque[tuple[int, KeptFailure]] = field(default_factory=deque)
    _violations: Counter[Hashable] = field(default_factory=Counter)
    _reduced: set[Hashable] = field(default_factory=set)  # buckets
    # Of failures that are alike, the second, in case the reduction of the first is `_in_vain`.
    _spares: dict[Hashable, tuple[KeptFailure, int]] = field(default_factory=dict)
    _in_vain: set[Hashable] = field(default_factory=set)
    _ends: dict[_Suspects, list[WorkerEnd]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._shards = self.campaign.plan.shards()
        self._next = next(self._shards, None)

    @property
    def elapsed(self) -> float:
        """Seconds that the campaign has run, including those before it was resumed."""
        return self.before + time.monotonic() - self.started

    @property
    def at_work(self) -> bool:
        """Whether shards or reductions are under way."""
        return bool(self._queue or self._reductions)

    @property
    def is_due(self) -> bool:
        """Whether the first shard is under way, or the first reduced failure of a bucket."""
        failures = [ticket.work.failure for ticket in self._reductions]
        buckets = {it.bucket for it in failures if is_waited_for(it)}
        return bool(buckets - self._reduced or (self._queue and not self.campaign.total.programs))

    @property
    def _taken(self) -> int:
        return self._scheduled - len(self._queue)

    @property
    def can_take(self) -> bool:
        """Whether a result is there."""
        reduced = any(ticket.outcome is not None for ticket in self._reductions)
        return self._finished_shard is not None or reduced

    @property
    def _finished_shard(self) -> Ticket[Shard] | None:
        """The shard to take next, if it is done."""
        # Only the first shard counts: this makes the order independent of timing. But what later
        # ones found must not be lost at the end of a timed campaign if the first one is slow.
        in_turn = itertools.islice(self._queue, None if self._is_ending(DRAWING) else 1)
        return next((ticket for ticket in in_turn if ticket.outcome is not None), None)

    def fill(self) -> bool:
        """Schedule shards. Returns False if the search is over."""
        while self._latent and (self._next is None or self._latent[0][0] <= self._taken):
            self._submit(self._latent.popleft()[1], next(self._numbers))
        self.campaign.latent_waiting = len(self._latent)
        while self._next is not None and self._is_room():
            patches = self._frequent.patched(self._scheduled)
            if patches is None:  # still open
                break
            shard = self._next
            if not self.campaign.plan.past_known:
                shard = replace(shard, patched=patches)
            # A result in the store is always taken: it is a part of the campaign. And a campaign
            # judges at least one shard, however long its start takes.
            if self._scheduled and self._time_is_up() and not self.tasks.has_result(shard):
                break
            self._queue.append(self.tasks.run_shard(shard))
            self._scheduled += 1
            self._next = next(self._shards, None)
        # While findings wait for confirmation, the campaign uses the rest of its time.
        seconds = self.campaign.plan.seconds
        later = self._next is not None and self.others_wait and seconds is not None
        return self.at_work or (later and self.elapsed <= (seconds or 0.0))

    def _is_room(self) -> bool:
        """Whether to schedule another shard: two per worker, and more if a worker would be idle.

        Per worker, one shard runs and another one waits, so that no worker is idle while the parent
        writes. More would only prolong the end of a timed campaign, and delay the reductions. But
        no worker waits for a shard or a reduction that takes long.
        """
        waiting = len(self._queue)
        few = waiting < 2 * self.tasks.executor.workers
        return few or (self._would_idle and waiting < DONE_EARLY)

    @property
    def _would_idle(self) -> bool:
        """Whether a worker has nothing to do without another shard."""
        undone = sum(it.outcome is None for it in self._queue)
        undone += sum(it.outcome is None for it in self._reductions)
        return undone < self.tasks.executor.workers

    def take(self) -> FoundFailure | None:
        """Take the next shard or reduction that is done, or wait a moment if there is none.

        Returns the failure to confirm, if the shard or reduction led to one.
        """
        self.tasks.settle()
        if (shard := self._finished_shard) is not None:
            waiting = len(self._queue)
            self._queue.remove(shard)
            failure = self._take_shard(shard)
            if len(self._queue) < waiting:  # no further attempt was queued
                self._frequent.take()
            return failure
        for ticket in self._reductions:
            if ticket.outcome is not None:
                self._reductions.remove(ticket)
                found = self._take_reduction(ticket)
                self.campaign.reducing = len(self._reductions)
                return found
        self.tasks.executor.wait(POLL)
        return None

    def _time_is_up(self) -> bool:
        # A campaign ends on time, so its last seconds are for failures and findings that wait.
        found_waits = self.others_wait or any(
            not ticket.work.failure.symptom.latent for ticket in self._reductions
        )
        drawing = DRAWING_IF_DUE if self.is_due else DRAWING if found_waits else 1.0
        if self._reductions and self._would_idle:  # each that is under way has its worker
            drawing = 1.0
        return self._is_ending(drawing)

    def _is_ending(self, drawing: float) -> bool:
        """Whether the time of a timed campaign is up, except for its part after the drawing."""
        seconds = self.campaign.plan.seconds
        if seconds is None:
            return False
        return self.elapsed > seconds - min(seconds * (1 - drawing), ENOUGH)

    # --- shards ---

    def _take_shard(self, ticket: Ticket[Shard]) -> FoundFailure | None:
        result = ticket.outcome
        self.campaign.add_outcome(ticket.work, result)
        if isinstance(result, WorkerEnd):
            return self._handle_end(ticket, result)
        if isinstance(result, Mistake):
            return None
        for kept in self.tasks.store.failures(ticket.name):
            if kept.failure.known is not None:
                self.campaign.known[kept.failure.known] += 1
                self._frequent.hit([kept.failure.known])
            self._reduce(kept)
        return self._died_together(ticket)

    def _handle_end(self, ticket: Ticket[Shard], end: WorkerEnd) -> FoundFailure | None:
        """Run the rest of a shard whose worker died or hung. The program at fault is a failure."""
        shard, suspects = ticket.work, end.suspects
        key = _Suspects(shard.language, shard.target, shard.seed, suspects)
        ends = self._ends.setdefault(key, [])
        ends.append(end)
        alone = len(suspects) == 1
        enough = TRIES_IF_FROM_OUTSIDE if end.outside or not suspects else TRIES if alone else 1
        if sum(earlier.outside == end.outside for earlier in ends) < enough:  # not often enough yet
            self._queue.appendleft(self.tasks.run_shard(shard, ticket.number + 1))
            return None
        if not suspects:
            self.campaign.add_outcome(shard, Mistake(f"{end.kind} at its start"))
            return None
        if alone:
            rest = replace(shard, skip=shard.skip | {*suspects})
        else:  # one by one, to find which of them it was
            rest = replace(shard, group=1, suspects=suspects)
        self._queue.appendleft(self.tasks.run_shard(rest))  # first, so that the order stays
        if not alone:
            return None
        failure = failure_of_end(shard, suspects, end)
        if failure is None:
            self.campaign.notes.append(f"program {suspects[0]} of {shard.target} {end.kind}")
            return None
        # It counts as a program of the campaign, like those that did not end their worker.
        self.campaign.add_deadly(shard.target)
        return self._death(ticket, failure)

    def _died_together(self, ticket: Ticket[Shard]) -> FoundFailure | None:
        """The failure of programs that ended a worker as a group, while none does by itself."""
        shard = ticket.work
        if not shard.suspects or shard.skip & {*shard.suspects}:
            return None
        together = _Suspects(shard.language, shard.target, shard.seed, shard.suspects)
        end = self._ends[together][-1]
        failure = failure_of_end(shard, shard.suspects, end)
        return None if failure is None else self._death(ticket, failure)

    def _death(self, ticket: Ticket[Shard], failure: AnyFailure) -> FoundFailure | None:
        kept = self.tasks.store.keep_failure(ticket.name, failure)
        if not self.tasks.isolating:
            reason = f"each candidate could end its process on {ticket.work.device}"
            return _unreduced_failure(kept, reason, next(self._numbers))
        self._reduce(kept)
        return None

    # --- reductions ---

    def _reduce(self, kept: KeptFailure) -> None:
        failure = kept.failure
        # Past the known bugs, a known bug is one that cannot be patched, and is only counted.
        if failure.known is not None and self.campaign.plan.past_known:
            return
        self._violations[failure.alike] += 1
        if failure.worth_reducing(self._violations[failure.alike]):
            if failure.symptom.latent:
                self._latent.append((self._taken + LATENT_WAITS, kept))
            else:
                self._submit(kept, next(self._numbers))
            return
        # A known bug is counted elsewhere, and needs only one program as evidence.
        self.campaign.repeats += failure.known is None
        if self._violations[failure.alike] == 2:
            self._spares[failure.alike] = kept, next(self._numbers)
            self._reduce_spare(failure.alike)

    def _reduce_spare(self, alike: Hashable) -> None:
        """Reduce the second of failures that are alike, if that of the first was in vain."""
        if alike in self._in_vain and alike in self._spares:
            kept, number = self._spares.pop(alike)
            self.campaign.repeats -= kept.failure.known is None
            self._submit(kept, number)

    def _submit(self, kept: KeptFailure, number: int) -> None:
        self._reductions.append(self.tasks.reduce(kept, number))
        self.campaign.reducing = len(self._reductions)

    def _take_reduction(self, ticket: Ticket[KeptFailure]) -> FoundFailure | None:
        kept, result = ticket.work, ticket.outcome
        failure = kept.failure
        if isinstance(result, WorkerEnd):
            self._reductions.append(self.tasks.reduce(kept, ticket.number))
            return None
        self.campaign.deaths += len(kept.deaths)
        if isinstance(result, Mistake) or result.reduced is None:
            self._in_vain.add(failure.alike)
            self._reduce_spare(failure.alike)
        what = f"reduction of {failure.symptom.kind} from shard {failure.seed}"
        if isinstance(result, Mistake):
            self.campaign.mistakes.append(f"{what}: {result.text}")
            return None
        assert isinstance(result, Reduction)
        self.campaign.mistakes += [f"{what}, a candidate: {text}" for text in result.mistakes]
        self.campaign.spent.reducing += result.seconds
        if result.reduced is None and failure.ends_process:
            reason = "it does not end a new process in this way"
            return _unreduced_failure(kept, reason, ticket.number)
        if result.documented:
            self.campaign.add_documented(kept.target)
            return None
        if result.reduced is None:
            self.campaign.not_reproduced += 1
            return None
        if failure.known is None and result.reduced.known:
            self.campaign.known[result.reduced.known] += 1
            self.tasks.store.keep_occurrence(f"{KNOWN}{result.reduced.known}", *kept[1:3])
            # Only the reduced program showed that it is a known bug.
            if self.campaign.plan.past_known:
                return None
        self._reduced.add(failure.bucket)
        return FoundFailure(result.reduced, kept, ticket.number)


def _unreduced_failure(kept: KeptFailure, reason: str, number: int) -> FoundFailure:
    """A failure as it was drawn, with the reason why it was not reduced."""
    finding = as_drawn(kept.failure, reason)
    assert finding is not None, "only what ends its process is kept unreduced"
    return FoundFailure(finding, kept, number)
