"""`Tasks`: attempts at shards and reductions, in worker processes, each result kept at once.

A task whose result is in the store does not run again. So a campaign that was killed starts its
fold over the results anew, and comes to the state in which it was.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from pebble import ProcessExpired, ProcessFuture, ProcessPool
from pebble.pool.process import WORKERS_NAME

from campaigns.blame import Blame
from campaigns.careful_reduction import ends_process
from campaigns.failure import Failure
from campaigns.finding import Finding
from campaigns.full_disk import require_room
from campaigns.json_forms import (
    finding_from_json,
    finding_to_json,
    result_from_json,
    result_to_json,
    shard_to_json,
)
from campaigns.run_folder import RunFolder
from campaigns.shard import Shard, ShardResult
from campaigns.store import KeptFailure, Store
from campaigns.worker_calls import LOST, reduce_in_forks, run_with_blame, timed_reduction
from programs.errors import InternalError
from trials.forked import kind_of_end
from trials.isolation import DEVICE_LOST

# Seconds. A shard takes 1 to 5 and a reduction 1 to 20, so one that takes longer than this hangs.
TASK_TIMEOUT = 600.0
# A careful reduction starts a process per candidate, some of which hang.
CAREFUL_TIMEOUT = 1800.0
PATIENCE = 60.0  # seconds in which a worker must have begun with a task that waits


class WorkerEnd(NamedTuple):
    """How a worker ended, as the kind of a violation, and in the words of the pool.

    `blamed` are the indices of the programs that it was running. `outside` says that a signal ended
    it that programs do not cause.
    """

    kind: str
    text: str
    blamed: range
    outside: bool


class Mistake(NamedTuple):
    """The message of an error of aliasproof itself."""

    text: str


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
    future: ProcessFuture[Any] | None = None


def task_name(shard: Shard, attempt: int) -> str:
    """The name of an attempt at a shard in the store: equal ones have equal results."""
    return json.dumps(shard_to_json(shard) | {"attempt": attempt})


@dataclass(slots=True)
class Tasks:
    """Runs tasks in a pool, which `start` makes anew if it breaks. Results go into the store.

    Reductions at whose candidates processes end run in a pool of their own, which `start_careful`
    makes. Without that, such programs stay as they were drawn.
    """

    store: Store
    folder: RunFolder
    start: Callable[[], ProcessPool]
    start_careful: Callable[[], ProcessPool] | None = None
    pool: ProcessPool | None = None
    careful_pool: ProcessPool | None = None
    _running: list[Ticket] = field(default_factory=list)
    _progress: float = field(default_factory=time.monotonic)

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
        self._running.append(ticket)
        try:
            ticket.future = self._schedule(ticket.work)
        except RuntimeError as error:  # the pool broke since
            ticket.future = ProcessFuture()
            ticket.future.set_exception(BrokenProcessPool(str(error)))

    def _schedule(self, work: Shard | KeptFailure) -> ProcessFuture[Any]:
        if self.start_careful is not None and not isinstance(work, Shard) and _is_deadly(work):
            self.careful_pool = self.careful_pool or self.start_careful()
            return self.careful_pool.schedule(
                reduce_in_forks, args=(work.failure,), timeout=CAREFUL_TIMEOUT
            )
        self.pool = self.pool or self.start()
        if not isinstance(work, Shard):
            return self.pool.schedule(timed_reduction, args=(work.failure,), timeout=TASK_TIMEOUT)
        # Made anew for each attempt, so that it never names a program of an earlier one.
        blame = str(self.folder.blame_file(work))
        Blame.create(blame)
        return self.pool.schedule(run_with_blame, args=(work, blame), timeout=TASK_TIMEOUT)

    # --- take results ---

    def settle(self) -> None:
        """Keep the results of all tasks that are done, in any order."""
        for ticket in [each for each in self._running if _future(each).done()]:
            try:
                result = _future(ticket).result()
            except BrokenProcessPool:
                self._start_anew()
                return
            except (ProcessExpired, TimeoutError) as death:
                self._keep_end(ticket, death)
            except InternalError as mistake:
                self._keep_mistake(ticket, str(mistake))
            else:
                self._keep(ticket, result)
            self._running.remove(ticket)
        self._look_at_the_pool()

    def _look_at_the_pool(self) -> None:
        """Start a new pool if this one makes no progress.

        A worker that is killed while it takes a task takes the task, and the lock of the pool, with
        it. The others then wait for ever.
        """
        if not self._running or any(_future(ticket).running() for ticket in self._running):
            self._progress = time.monotonic()
        elif time.monotonic() - self._progress > PATIENCE:
            self._start_anew()

    def _start_anew(self) -> None:
        self.store.events.note("the pool of workers is started anew")
        self.stop()
        self.pool = self.careful_pool = None
        running, self._running = self._running, []
        for ticket in running:
            self._submit(ticket)
        self._progress = time.monotonic()

    def _keep(self, ticket: Ticket, result: Any) -> None:
        if isinstance(ticket.work, Shard):
            self._keep_shard(ticket, ticket.work, result)
        else:
            reduced, seconds = result
            finding = None if reduced is None else Finding.of(reduced)
            stored = {
                "reduced": None if finding is None else finding_to_json(finding),
                "seconds": seconds,
            }
            self.store.keep_reduction(ticket.work, stored)
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
        self.folder.blame_file(shard).unlink(missing_ok=True)
        ticket.outcome = result

    def _keep_end(self, ticket: Ticket, death: ProcessExpired | TimeoutError) -> None:
        work, blamed = ticket.work, range(0)
        if isinstance(work, Shard):
            blamed = Blame.read(str(self.folder.blame_file(work)))
        end = WorkerEnd(_kind_of(death), str(death), blamed, _from_outside(death))
        if isinstance(work, Shard):
            stored: dict[str, object] = end._asdict() | {"blamed": [blamed.start, blamed.stop]}
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

    # --- the end ---

    def stop(self) -> None:
        """End the workers, whatever they are doing."""
        pools = [pool for pool in (self.pool, self.careful_pool) if pool is not None]
        for pool in pools:
            pool.stop()
        # Asked to end, a worker in a long call would take seconds. It has nothing to lose.
        for process in multiprocessing.active_children():
            if process.name == WORKERS_NAME:
                process.kill()
        for pool in pools:
            pool.join()


def _future(ticket: Ticket) -> ProcessFuture[Any]:
    assert ticket.future is not None  # only a task that runs has one
    return ticket.future


def _kind_of(death: ProcessExpired | TimeoutError) -> str:
    """How a worker ended, as the kind of a violation."""
    if isinstance(death, TimeoutError):
        return "hangs"
    return DEVICE_LOST if death.exitcode == LOST else kind_of_end(death.exitcode)


# A user or the kernel sends these to a worker; no program sends them to itself.
_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _from_outside(death: ProcessExpired | TimeoutError) -> bool:
    """Whether a user or the kernel ended the worker."""
    if not isinstance(death, ProcessExpired):
        return False
    # A worker of the pool that is asked to end exits with the number of the signal.
    return -death.exitcode in _OUTSIDE or death.exitcode == signal.SIGTERM


def _is_deadly(kept: KeptFailure) -> bool:
    """Whether the reduction of a failure must expect that candidates end their process.

    Workers that were ended from outside say nothing about that.
    """
    outside = {kind_of_end(-number) for number in _OUTSIDE} | {kind_of_end(signal.SIGTERM)}
    return ends_process(kept.failure) or any(death not in outside for death in kept.deaths)
