"""`Executor`: where the tasks of a campaign run: shards, and reductions of failures.

A task is a pure function of its description. So an executor may run one twice, anywhere, and return
results in any order: the fold over the results (`campaigns.run.scheduler`) does not depend on it.
"""

from __future__ import annotations

import contextlib
import heapq
import multiprocessing
import re
import signal
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from aliasproof.campaigns.failure.failure import AnyFailure
from aliasproof.campaigns.failure.finding import AnyFinding
from aliasproof.campaigns.run.shard import ShardResult
from aliasproof.campaigns.run.worker_server import CALLS, start_worker_server
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.processes.isolation import CPU, Limits, memory_available
from aliasproof.processes.outcome import Outcome, Raised, Returned
from aliasproof.processes.pool import Pool, RemoteCall

# Only a user or the kernel sends these to a worker; no program sends them to itself.
OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ENDED_FROM_OUTSIDE = {f"dies of signal {number:d}" for number in OUTSIDE}


class IsolatedReduction(NamedTuple):
    """The reduction of a failure whose candidates may end their process."""

    failure: AnyFailure


Work: TypeAlias = Shard | AnyFailure | IsolatedReduction


class WorkerEnd(NamedTuple):
    """How a worker ended, as the kind of a violation, and in words.

    `suspects` are the indices of the programs that it was running. `outside` says that it was ended
    by a signal that programs do not cause.
    """

    kind: str
    text: str
    suspects: range
    outside: bool


class Mistake(NamedTuple):
    """The message of an error of aliasproof itself."""

    text: str


class Reduction(NamedTuple):
    """A reduced failure, None if the program did not fail again, and seconds of processor time.

    `mistakes` are the messages of errors of aliasproof itself on candidates. If the documentation
    allows what the reduced program shows, there is no reduced failure, and `documented` says why.
    """

    reduced: AnyFinding | None
    seconds: float
    mistakes: tuple[str, ...] = ()
    documented: str = ""


Result: TypeAlias = ShardResult | Reduction | WorkerEnd | Mistake


@dataclass(slots=True)
class WaitingTasks:
    """Tasks that wait for a free worker.

    A known bug goes first, since its reduced program exists already, and so does the first failure
    of a bucket. Other reductions follow, and then shards.
    """

    _heap: list[tuple[int, int, Work]] = field(default_factory=list)
    _buckets: set[Hashable] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, number: int, work: Work) -> None:
        heapq.heappush(self._heap, (self._rank(work), number, work))

    def _rank(self, work: Work) -> int:
        if isinstance(work, Shard):
            return 2
        failure = work.failure if isinstance(work, IsolatedReduction) else work
        seen = failure.known is None and failure.bucket in self._buckets
        self._buckets.add(failure.bucket)
        return int(seen)

    def pop(self) -> tuple[int, Work]:
        """The task to run next: the oldest of the highest rank."""
        _, number, work = heapq.heappop(self._heap)
        return number, work


class Executor(Protocol):
    """Runs tasks in worker processes. It is used by one thread, and never blocks it."""

    @property
    def workers(self) -> int:
        """How many tasks can run at the same time now."""

    def start(self, number: int, work: Work) -> None:
        """Run a task under this number."""

    def finished(self) -> Iterable[tuple[int, Result]]:
        """The results since the last call, each once. Raises `UserError` if tasks cannot run."""

    def wait(self, seconds: float) -> None:
        """Wait until there may be a result, at most `seconds`."""

    def stop(self) -> None:
        """End the workers, whatever they are doing."""


# Makes an executor for a plan, which may write into the folder of the run and reports by `note`.
MakeExecutor: TypeAlias = Callable[[Plan, RunFolder, Callable[[str], None]], Executor]

START, EXAMINE_SHARD, REDUCE = (f"{CALLS}:{name}" for name in ("start", "examine_shard", "reduce"))
RENEWAL = 20  # tasks after which a worker is renewed: a target may leak memory and files
MEMORY_SHARE = 0.8  # of the memory that is free at the start
LEAST_MEMORY = 2 * 2**30  # bytes per worker, however little is free
# Seconds. A shard takes 1 to 5 and a reduction 1 to 20, so one that takes longer than this hangs.
TASK_TIMEOUT = 600.0
# An isolated reduction starts a process per candidate, some of which hang.
ISOLATED_TIMEOUT = 1800.0


def start_pool(
    workers: int,
    compiled: Path,
    targets: Sequence[str] = (),
    device: str = CPU,
    memory: float | None = None,
    limit: float = 0.0,
    renewal: int = RENEWAL,
    timeout: float = TASK_TIMEOUT,
) -> Pool:
    """A pool whose processes are forked from a server that has torch imported.

    They are for these `targets`, which may be a user's code. Compilers write into the folder
    `compiled`. Each process may allocate `memory` GiB, and dies at a program that takes longer than
    `limit` seconds (if not 0) or at a task that takes longer than `timeout`. Each is replaced after
    `renewal` tasks. The pool starts with its first task.

    A fork costs milliseconds, an import of torch more than a second. The server has run nothing
    else, so workers start in the same state. For CUDA, each process starts from nothing, since CUDA
    does not work in a fork of a process that has used it.
    """
    free = MEMORY_SHARE * memory_available() / workers
    nbytes = max(int(free), LEAST_MEMORY) if memory is None else int(memory * 2**30)
    if device == CPU:
        start_worker_server(targets)
    else:  # do not replace: starting a fresh process takes many seconds
        renewal = 0
    start = RemoteCall("", START, (tuple(targets), str(compiled.absolute()), limit))
    return Pool(start, Limits(timeout, nbytes), workers, 0.0, device, renewal)


def memory_of_workers() -> tuple[int, int, int]:
    """How many workers there are, their memory together, and that of the largest, in KiB.

    Pages that they share with the server count for each. Zeros where there is no /proc.
    """
    sizes: list[int] = []
    for process in multiprocessing.active_children():
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            sizes += map(int, re.findall(r"VmRSS:\s+(\d+) kB", status))
    return len(sizes), sum(sizes), max(sizes, default=0)


@dataclass(slots=True)
class LocalWorkers:
    """Runs tasks in a pool. Isolated reductions have another pool, whose processes run one task."""

    workers: int
    pool: Pool
    isolating: Pool
    _waiting: WaitingTasks = field(default_factory=WaitingTasks)

    @classmethod
    def of(cls, plan: Plan, folder: RunFolder, _: object = None) -> LocalWorkers:
        """Workers for a plan. Processes start with the first task. They report nothing."""
        chosen = (folder.compiled_folder(), plan.targets, plan.device, plan.memory, plan.limit)
        # One process per isolated reduction: state left by an earlier task would be in its forks.
        isolating = start_pool(1, *chosen, renewal=1, timeout=ISOLATED_TIMEOUT)
        return cls(plan.workers, start_pool(plan.workers, *chosen), isolating)

    def start(self, number: int, work: Work) -> None:
        if isinstance(work, IsolatedReduction):
            self.isolating.submit(RemoteCall(number, REDUCE, (work,)))
        else:
            self._waiting.put(number, work)
            self._fill()

    def _fill(self) -> None:
        """Give the pool as many tasks as it has workers."""
        while self._waiting and self.pool.pending < self.workers:
            number, work = self._waiting.pop()
            function = EXAMINE_SHARD if isinstance(work, Shard) else REDUCE
            self.pool.submit(RemoteCall(number, function, (work,)))

    def finished(self) -> Iterator[tuple[int, Result]]:
        for pool in (self.pool, self.isolating):
            for number, outcome in pool.outcomes():
                assert isinstance(number, int)
                self._fill()  # before the result is yielded, so that no worker is idle
                yield number, _result(outcome)

    def wait(self, seconds: float) -> None:
        self.pool.wait(seconds)

    def stop(self) -> None:
        self.pool.stop()
        self.isolating.stop()


def _result(outcome: Outcome) -> Result:
    if isinstance(outcome, Returned):
        result: Result = outcome.value
        return result
    if isinstance(outcome, Raised):
        return Mistake(str(outcome.error))
    # This text is in the evidence of a finding.
    text = outcome.describe() if outcome.hangs else "Abnormal termination"
    outside = outcome.status in {-signal for signal in OUTSIDE}
    return WorkerEnd(outcome.violation, text, outcome.programs, outside)
