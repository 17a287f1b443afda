"""`Tasks`: attempts at shards and reductions, each result kept in the store at once.

A task whose result is in the store does not run again. So a campaign that was killed repeats its
fold over the stored results, and reaches the same state.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from aliasproof.campaigns.failure.codec import decoded, encoded
from aliasproof.campaigns.failure.failure import AnyFailure
from aliasproof.campaigns.failure.finding import finding_from_json, finding_to_json
from aliasproof.campaigns.run.executor import (
    ENDED_FROM_OUTSIDE,
    Executor,
    IsolatedReduction,
    Mistake,
    Reduction,
    WorkerEnd,
)
from aliasproof.campaigns.run.languages import as_drawn
from aliasproof.campaigns.run.shard import ShardResult, Statistics, Suspicions
from aliasproof.campaigns.store.full_disk import require_room
from aliasproof.campaigns.store.plan import Shard
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.campaigns.store.store import KeptFailure, Store
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom

# How often a worker must end at a program, or in a reduction, before that is at fault.
TRIES = 2
# A worker ended by a user or the kernel says nothing about a reduction, which takes long. This
# limit only prevents an endless repetition.
TRIES_OF_REDUCTION_IF_FROM_OUTSIDE = 20

_Suspicion: TypeAlias = tuple[Symptom, int, Program]
ShardOutcome: TypeAlias = ShardResult | WorkerEnd | Mistake
ReductionOutcome: TypeAlias = Reduction | WorkerEnd | Mistake
W = TypeVar("W", Shard, KeptFailure)


@dataclass(slots=True, eq=False)
class Ticket(Generic[W]):
    """A task that was scheduled: the `number`-th attempt at a shard, or the `number`-th reduction.

    `outcome` is None until it is done.
    """

    work: W
    number: int
    name: str
    outcome: Any = None


def task_name(shard: Shard, attempt: int) -> str:
    """The name of an attempt at a shard in the store: attempts of one name have equal results."""
    return json.dumps(encoded(shard) | {"attempt": attempt})


def shard_of(task: str) -> Shard:
    """The shard with an attempt of this name. Raises like `decoded` if the name is damaged."""
    shard: Shard = decoded(Shard, json.loads(task))
    return shard


def outcome_to_json(outcome: ShardOutcome) -> dict[str, object]:
    """The outcome of a shard except its failures, which have rows of their own."""
    if isinstance(outcome, WorkerEnd):
        return {"end": encoded(outcome)}
    if isinstance(outcome, Mistake):
        return {"mistake": outcome.text}
    return {
        "statistics": encoded(outcome.statistics),
        "suspicions": [
            encoded((symptom, *seen)) for symptom, seen in outcome.suspicions.found.items()
        ],
        "searching": outcome.searching,
        "recognizing": outcome.recognizing,
        **({"mistakes": outcome.mistakes} if outcome.mistakes else {}),
    }


def outcome_from_json(data: Any, shard: Shard, failures: Sequence[AnyFailure] = ()) -> ShardOutcome:
    """The outcome that `outcome_to_json` wrote, with its failures."""
    if "mistake" in data:
        return Mistake(str(data["mistake"]))
    if "end" in data:
        end: WorkerEnd = decoded(WorkerEnd, data["end"])
        return end
    suspicions = Suspicions()
    for symptom, count, program in decoded(tuple[_Suspicion, ...], data["suspicions"]):
        suspicions.add(symptom, program, count)
    return ShardResult(
        shard,
        decoded(Statistics, data["statistics"]),
        [*failures],
        suspicions,
        float(data["searching"]),
        float(data["recognizing"]),
        [*map(str, data.get("mistakes", ()))],
    )


@dataclass(slots=True)
class Tasks:
    """Runs tasks in an executor, and keeps their results in the store.

    If not `isolating`, failures whose candidates may end their process are not reduced.
    """

    store: Store
    folder: RunFolder
    executor: Executor
    isolating: bool = False
    _running: dict[int, Ticket[Any]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    # --- start a task, or take its result from the store ---

    def has_result(self, shard: Shard) -> bool:
        """Whether the first attempt at a shard need not run."""
        return self.store.result(task_name(shard, 1)) is not None

    def run_shard(self, shard: Shard, attempt: int = 1) -> Ticket[Shard]:
        ticket = Ticket(shard, attempt, task_name(shard, attempt))
        stored = self.store.result(ticket.name)
        if stored is not None:
            failures = [kept.failure for kept in self.store.failures(ticket.name)]
            ticket.outcome = self.store.checked(outcome_from_json, stored, shard, failures)
        else:
            self._submit(ticket)
        return ticket

    def reduce(self, kept: KeptFailure, number: int) -> Ticket[KeptFailure]:
        ticket = Ticket(kept, number, kept.task)
        stored = self.store.reduction(kept)
        if stored is not None:
            ticket.outcome = self.store.checked(self._reduction_outcome, stored)
        else:
            self._submit(ticket)
        return ticket

    def _submit(self, ticket: Ticket[Any]) -> None:
        number, work = next(self._numbers), ticket.work
        self._running[number] = ticket
        if isinstance(work, Shard):
            self.executor.start(number, work)
            return
        # Workers that were ended from outside say nothing about the candidates.
        deadly = work.failure.ends_process or {*work.deaths} - ENDED_FROM_OUTSIDE
        isolated = IsolatedReduction(work.failure)
        self.executor.start(number, isolated if self.isolating and deadly else work.failure)

    # --- take results ---

    def settle(self) -> None:
        """Keep the finished results, in any order."""
        for number, result in self.executor.finished():
            ticket = self._running.pop(number)
            if isinstance(result, Mistake):
                require_room(result.text, self.folder.folder)
            if isinstance(ticket.work, KeptFailure):
                assert not isinstance(result, ShardResult)
                self._keep_reduction(ticket, ticket.work, result)
                continue
            assert not isinstance(result, Reduction)
            failures = result.failures if isinstance(result, ShardResult) else []
            for failure in failures:
                seen = failure.violation.evidence if failure.violation else {}
                require_room(f"{failure.symptom.kind} {seen.get('message')}", self.folder.folder)
            shard = ticket.work.target, ticket.work.seed
            self.store.keep_result(ticket.name, shard, outcome_to_json(result), failures)
            ticket.outcome = result

    def _keep_reduction(
        self, ticket: Ticket[Any], kept: KeptFailure, result: Reduction | WorkerEnd | Mistake
    ) -> None:
        if isinstance(result, WorkerEnd):
            ticket.work = kept = self.store.keep_death(kept, result.kind)
            from_outside = sum(death in ENDED_FROM_OUTSIDE for death in kept.deaths)
            others = len(kept.deaths) - from_outside
            if from_outside < TRIES_OF_REDUCTION_IF_FROM_OUTSIDE and others < TRIES:
                ticket.outcome = result
                return
            reason = f"each worker that reduced it {kept.deaths[-1]}"
            unreduced = as_drawn(kept.failure, reason)
            result = Mistake(reason) if unreduced is None else Reduction(unreduced, 0.0)
        if isinstance(result, Mistake):
            stored: dict[str, Any] = {"mistake": result.text}
        else:
            reduced = result.reduced and finding_to_json(result.reduced)
            stored = {"reduced": reduced, "seconds": result.seconds}
            stored |= {"mistakes": result.mistakes} if result.mistakes else {}
            stored |= {"documented": result.documented} if result.documented else {}
        self.store.keep_reduction(kept, stored)
        ticket.outcome = self._reduction_outcome(stored)

    # --- read results ---

    def _reduction_outcome(self, stored: dict[str, Any]) -> ReductionOutcome:
        if "mistake" in stored:
            return Mistake(str(stored["mistake"]))
        reduced, where = stored["reduced"], str(self.store.file)
        finding = None if reduced is None else self.store.checked(finding_from_json, reduced, where)
        mistakes = tuple(map(str, stored.get("mistakes", ())))
        documented = str(stored.get("documented", ""))
        return Reduction(finding, float(stored["seconds"]), mistakes, documented)
