"""`Executor`: where the tasks of a campaign run: shards, and reductions of failures.

A task is a pure function of its description. So an executor may run one twice, anywhere, and give
results in any order: the fold over the results (`campaigns.run.scheduler`) does not know.
"""

from __future__ import annotations

import heapq
import signal
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from aliasproof.campaigns.failure.failure import Failure, ReducedFailure
from aliasproof.campaigns.run.shard import ShardResult
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.campaigns.store.run_folder import RunFolder

# A user or the kernel sends these to a worker; no program sends them to itself.
OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ENDED_FROM_OUTSIDE = {f"dies of signal {number:d}" for number in OUTSIDE}


class IsolatedReduction(NamedTuple):
    """The reduction of a failure at whose candidates processes may end."""

    failure: Failure


Work: TypeAlias = Shard | Failure | IsolatedReduction


class WorkerEnd(NamedTuple):
    """How a worker ended, as the kind of a violation, and in words.

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


class Reduction(NamedTuple):
    """A reduced failure, None if the program did not fail again, and seconds of the processor.

    `mistakes` are the messages of errors of aliasproof itself on candidates.
    """

    reduced: ReducedFailure | None
    seconds: float
    mistakes: tuple[str, ...] = ()


Result: TypeAlias = ShardResult | Reduction | WorkerEnd | Mistake


@dataclass(slots=True)
class WaitingTasks:
    """Tasks for which no worker was free yet.

    A known bug goes first, since it has its reduced program already, and so does the first failure
    of a bucket. Other reductions follow, and then shards.
    """

    _heap: list[tuple[int, int, Work]] = field(default_factory=list)
    _buckets: set[Hashable] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, number: int, work: Work) -> None:
        """Add a task, which this number names."""
        heapq.heappush(self._heap, (self._rank(work), number, work))

    def _rank(self, work: Work) -> int:
        if isinstance(work, Shard):
            return 2
        failure = work.failure if isinstance(work, IsolatedReduction) else work
        seen = failure.known is None and failure.bucket in self._buckets
        self._buckets.add(failure.bucket)
        return int(seen)

    def pop(self) -> tuple[int, Work]:
        """The task to run next: of tasks of one sort, the oldest."""
        _, number, work = heapq.heappop(self._heap)
        return number, work


class Executor(Protocol):
    """Runs tasks in worker processes. It is used by one thread, and does not wait for tasks."""

    @property
    def workers(self) -> int:
        """How many tasks run at the same time, now."""

    def start(self, number: int, work: Work) -> None:
        """Run a task, which this number names."""

    def finished(self) -> Iterable[tuple[int, Result]]:
        """The results that came since the last call, each once.

        Raises `UserError` if tasks cannot run.
        """

    def wait(self, seconds: float) -> None:
        """Wait until there may be a result, so many seconds at most."""

    def stop(self) -> None:
        """End the workers, whatever they are doing."""


# Makes an executor for a plan. It may write into the folder of the run, and says what happens.
MakeExecutor: TypeAlias = Callable[[Plan, RunFolder, Callable[[str], None]], Executor]
