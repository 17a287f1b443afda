"""`Tasks`: attempts at shards and reductions, each result kept in the store at once.

A task whose result is in the store does not run again. So a campaign that was killed starts its
fold over the results anew, and comes to the state in which it was.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from aliasproof.campaigns.failure.careful_reduction import ends_process
from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.run.executor import (
    ENDED_FROM_OUTSIDE,
    CarefulReduction,
    Executor,
    Mistake,
    Reduction,
    Result,
    WorkerEnd,
)
from aliasproof.campaigns.run.full_disk import require_room
from aliasproof.campaigns.run.shard import Shard, ShardResult
from aliasproof.campaigns.store.finding import Finding
from aliasproof.campaigns.store.json_forms import (
    finding_from_json,
    finding_to_json,
    result_from_json,
    result_to_json,
    shard_to_json,
)
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.campaigns.store.store import KeptFailure, Store


class FinishedReduction(NamedTuple):
    """What became of a reduction; `finding` is None if the program did not fail again."""

    finding: Finding | None
    seconds: float


ShardOutcome: TypeAlias = ShardResult | WorkerEnd | Mistake
ReductionOutcome: TypeAlias = FinishedReduction | WorkerEnd | Mistake


@dataclass(slots=True)
class Ticket:
    """A task that was scheduled. `outcome` is None until it is done."""

    work: Shard | KeptFailure
    name: str
    outcome: Any = None


def task_name(shard: Shard, attempt: int) -> str:
    """The name of an attempt at a shard in the store: equal ones have equal results."""
    return json.dumps(shard_to_json(shard) | {"attempt": attempt})


@dataclass(slots=True)
class Tasks:
    """Runs tasks in an executor. Results go into the store.

    If not `careful`, programs at whose candidates processes end are not reduced.
    """

    store: Store
    folder: RunFolder
    executor: Executor
    careful: bool = False
    _running: dict[int, Ticket] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    # --- start a task, or take its result from the store ---

    def has_result(self, shard: Shard, attempt: int = 1) -> bool:
        """Whether an attempt at a shard need not run."""
        return self.store.result(task_name(shard, attempt)) is not None

    def run_shard(self, shard: Shard, attempt: int = 1) -> Ticket:
        """Start an attempt at a shard."""
        ticket = Ticket(shard, task_name(shard, attempt))
        stored = self.store.result(ticket.name)
        if stored is not None:
            ticket.outcome = self._shard_outcome(ticket, stored)
        else:
            self._submit(ticket)
        return ticket

    def reduce(self, kept: KeptFailure) -> Ticket:
        """Start the reduction of a failure."""
        ticket = Ticket(kept, kept.task)
        stored = self.store.reduction(kept)
        if stored is not None:
            ticket.outcome = self._reduction_outcome(stored)
        else:
            self._submit(ticket)
        return ticket

    def give_up(self, kept: KeptFailure, finding: Finding) -> None:
        """Keep a failure as it is, since its reduction ends workers."""
        self.store.keep_reduction(kept, {"reduced": finding_to_json(finding), "seconds": 0.0})

    def _submit(self, ticket: Ticket) -> None:
        number, work = next(self._numbers), ticket.work
        self._running[number] = ticket
        if isinstance(work, Shard):
            self.executor.start(number, work)
        elif self.careful and _is_deadly(work):
            self.executor.start(number, CarefulReduction(work.failure))
        else:
            self.executor.start(number, work.failure)

    # --- take results ---

    def settle(self) -> None:
        """Keep the results that are there, in any order."""
        for number, result in self.executor.finished():
            self._keep(self._running.pop(number), result)

    def _keep(self, ticket: Ticket, result: Result) -> None:
        if isinstance(result, WorkerEnd):
            self._keep_end(ticket, result)
        elif isinstance(result, Mistake):
            self._keep_mistake(ticket, result.text)
        elif isinstance(result, ShardResult):
            assert isinstance(ticket.work, Shard)
            self._keep_shard(ticket, ticket.work, result)
        else:
            assert isinstance(ticket.work, KeptFailure)
            self._keep_reduction(ticket, ticket.work, result)

    def _keep_reduction(self, ticket: Ticket, kept: KeptFailure, result: Reduction) -> None:
        finding = None if result.reduced is None else Finding.of(result.reduced)
        stored = {
            "reduced": None if finding is None else finding_to_json(finding),
            "seconds": result.seconds,
        }
        self.store.keep_reduction(kept, stored)
        ticket.outcome = self._reduction_outcome(stored)

    def _keep_shard(self, ticket: Ticket, shard: Shard, result: ShardResult) -> None:
        company = [
            Failure(found.symptom, found.program, shard.seed, company=True)
            for found in result.company
        ]
        failures = [*result.failures, *company]
        for failure in failures:
            seen = failure.violation.evidence if failure.violation else {}
            require_room(f"{failure.symptom.kind} {seen.get('message')}", self.folder.folder)
        stored = result_to_json(result)
        self.store.keep_result(ticket.name, (shard.target, shard.seed), stored, failures)
        ticket.outcome = result

    def _keep_end(self, ticket: Ticket, end: WorkerEnd) -> None:
        work = ticket.work
        if isinstance(work, Shard):
            blamed = [end.blamed.start, end.blamed.stop]
            stored: dict[str, object] = end._asdict() | {"blamed": blamed}
            self.store.keep_result(ticket.name, (work.target, work.seed), {"end": stored})
        else:
            ticket.work = self.store.keep_death(work, end.kind)
        ticket.outcome = end

    def _keep_mistake(self, ticket: Ticket, text: str) -> None:
        require_room(text, self.folder.folder)
        work, stored = ticket.work, {"mistake": text}
        if isinstance(work, Shard):
            self.store.keep_result(ticket.name, (work.target, work.seed), stored)
        else:
            self.store.keep_reduction(work, stored)
        ticket.outcome = Mistake(text)

    # --- read results ---

    def failures(self, ticket: Ticket) -> list[KeptFailure]:
        """The failures of an attempt at a shard that is done, as they are kept."""
        return self.store.failures(ticket.name)

    def _shard_outcome(self, ticket: Ticket, stored: dict[str, Any]) -> ShardOutcome:
        assert isinstance(ticket.work, Shard)
        if "mistake" in stored:
            return Mistake(str(stored["mistake"]))
        if "end" in stored:
            end = stored["end"]
            blamed = range(*map(int, end["blamed"]))
            return WorkerEnd(str(end["kind"]), str(end["text"]), blamed, bool(end["outside"]))
        failures = [kept.failure for kept in self.failures(ticket)]
        result: ShardResult = self.store.checked(result_from_json, stored, ticket.work, failures)
        return result

    def _reduction_outcome(self, stored: dict[str, Any]) -> ReductionOutcome:
        if "mistake" in stored:
            return Mistake(str(stored["mistake"]))
        reduced, where = stored["reduced"], str(self.store.file)
        finding = None if reduced is None else self.store.checked(finding_from_json, reduced, where)
        return FinishedReduction(finding, float(stored["seconds"]))


def _is_deadly(kept: KeptFailure) -> bool:
    """Whether the reduction of a failure must expect that candidates end their process.

    Workers that were ended from outside say nothing about that.
    """
    return ends_process(kept.failure) or any(
        death not in ENDED_FROM_OUTSIDE for death in kept.deaths
    )
