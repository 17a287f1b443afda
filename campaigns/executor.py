"""`Executor`: where the tasks of a campaign run: shards, and reductions of failures.

A task is a pure function of its description. So an executor may run one twice, anywhere, and give
results in any order: the fold over the results (`campaigns.scheduler`) does not know.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeAlias

from campaigns.failure import Failure, ReducedFailure
from campaigns.plan import Plan
from campaigns.run_folder import RunFolder
from campaigns.shard import Shard, ShardResult
from trials.forked import kind_of_end

# A user or the kernel sends these to a worker; no program sends them to itself.
OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# A worker of a pool that is asked to end exits with the number of the signal.
ENDED_FROM_OUTSIDE = {*(kind_of_end(-each) for each in OUTSIDE), kind_of_end(signal.SIGTERM)}


class CarefulReduction(NamedTuple):
    """The reduction of a failure at whose candidates processes may end."""

    failure: Failure


Work: TypeAlias = Shard | Failure | CarefulReduction


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


class Reduction(NamedTuple):
    """A reduced failure, None if the program did not fail again, and seconds of the processor."""

    reduced: ReducedFailure | None
    seconds: float


Result: TypeAlias = ShardResult | Reduction | WorkerEnd | Mistake


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

    def stop(self) -> None:
        """End the workers, whatever they are doing."""


# Makes an executor for a plan. It may write into the folder of the run, and says what happens.
MakeExecutor: TypeAlias = Callable[[Plan, RunFolder, Callable[[str], None]], Executor]
