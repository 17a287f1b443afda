"""`LocalWorkers`: runs tasks in worker processes of this machine."""

from __future__ import annotations

import functools
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pebble import ProcessExpired, ProcessFuture, ProcessPool
from pebble.pool.process import WORKERS_NAME

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.run.blame import Blame
from aliasproof.campaigns.run.executor import (
    ENDED_FROM_OUTSIDE,
    CarefulReduction,
    Mistake,
    Reduction,
    Result,
    WaitingTasks,
    Work,
    WorkerEnd,
)
from aliasproof.campaigns.run.pool import start_pool
from aliasproof.campaigns.run.worker_calls import (
    LOST,
    reduce_in_forks,
    run_with_blame,
    timed_reduction,
)
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.programs.errors import InternalError
from aliasproof.trials.forked import kind_of_end
from aliasproof.trials.isolation import DEVICE_LOST

# Seconds. A shard takes 1 to 5 and a reduction 1 to 20, so one that takes longer than this hangs.
TASK_TIMEOUT = 600.0
# A careful reduction starts a process per candidate, some of which hang.
CAREFUL_TIMEOUT = 1800.0
PATIENCE = 60.0  # seconds in which a worker must have begun with a task that waits
AHEAD = 1  # tasks that the pool holds beside those that run, so that no worker is idle


class _Running(NamedTuple):
    work: Work
    future: ProcessFuture[Any]


@dataclass(slots=True)
class LocalWorkers:
    """Runs tasks in a pool, which `start_pool` makes anew if it breaks.

    Careful reductions have a pool of their own, which `start_careful` makes. Workers note in files
    of `folder` which programs they run. `note` is told what happens.
    """

    folder: RunFolder
    workers: int
    start_pool: Callable[[], ProcessPool]
    start_careful: Callable[[], ProcessPool]
    note: Callable[[str], None]
    pool: ProcessPool | None = None
    careful_pool: ProcessPool | None = None
    _waiting: WaitingTasks = field(default_factory=WaitingTasks)
    _running: dict[int, _Running] = field(default_factory=dict)
    _progress: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, plan: Plan, folder: RunFolder, note: Callable[[str], None]) -> LocalWorkers:
        """Workers for a plan. The pool starts with the first task."""
        compiled = folder.compiled_folder()
        chosen = (compiled, plan.targets, plan.device, plan.memory, plan.limit)
        # One process per careful reduction: what ran before would run on in its forks.
        careful = functools.partial(start_pool, 1, *chosen, tasks=1)
        start = functools.partial(start_pool, plan.workers, *chosen)
        return cls(folder, plan.workers, start, careful, note)

    def start(self, number: int, work: Work) -> None:
        """Run a task, which this number names."""
        if isinstance(work, CarefulReduction):
            self._hand_over(number, work)
        else:
            self._waiting.put(number, work)
            self._fill()

    def _fill(self) -> None:
        """Give the pool as many tasks as keep its workers busy. It runs them in their order."""
        careful = sum(isinstance(task.work, CarefulReduction) for task in self._running.values())
        while self._waiting and len(self._running) - careful < self.workers + AHEAD:
            self._hand_over(*self._waiting.pop())

    def _hand_over(self, number: int, work: Work) -> None:
        try:
            future = self._schedule(work)
        except RuntimeError as error:  # the pool broke since
            future = ProcessFuture()
            future.set_exception(BrokenProcessPool(str(error)))
        self._running[number] = _Running(work, future)

    def _schedule(self, work: Work) -> ProcessFuture[Any]:
        if isinstance(work, CarefulReduction):
            pool = self.careful_pool = self.careful_pool or self.start_careful()
            return pool.schedule(reduce_in_forks, args=(work.failure,), timeout=CAREFUL_TIMEOUT)
        self.pool = self.pool or self.start_pool()
        if isinstance(work, Failure):
            return self.pool.schedule(timed_reduction, args=(work,), timeout=TASK_TIMEOUT)
        # Made anew for each attempt, so that it never names a program of an earlier one.
        blame = str(self.folder.blame_file(work))
        Blame.create(blame)
        return self.pool.schedule(run_with_blame, args=(work, blame), timeout=TASK_TIMEOUT)

    def finished(self) -> Iterator[tuple[int, Result]]:
        """The results of the tasks that are done, in any order."""
        for number, task in [*self._running.items()]:
            if not task.future.done():
                continue
            try:
                returned = task.future.result()
                result: Result = returned if isinstance(task.work, Shard) else Reduction(*returned)
            except BrokenProcessPool:
                self._start_anew()
                return
            except (ProcessExpired, TimeoutError) as death:
                result = self._end(task.work, death)
            except InternalError as mistake:
                result = Mistake(str(mistake))
            if isinstance(task.work, Shard):
                self.folder.blame_file(task.work).unlink(missing_ok=True)
            del self._running[number]
            yield number, result
        self._fill()
        self._look_at_the_pool()

    def _end(self, work: Work, death: ProcessExpired | TimeoutError) -> WorkerEnd:
        blamed = range(0)
        if isinstance(work, Shard):
            blamed = Blame.read(str(self.folder.blame_file(work)))
        return WorkerEnd(_kind_of(death), str(death), blamed, _from_outside(death))

    def _look_at_the_pool(self) -> None:
        """Start a new pool if this one makes no progress.

        A worker that is killed while it takes a task takes the task, and the lock of the pool, with
        it. The others then wait for ever.
        """
        if not self._running or any(task.future.running() for task in self._running.values()):
            self._progress = time.monotonic()
        elif time.monotonic() - self._progress > PATIENCE:
            self._start_anew()

    def _start_anew(self) -> None:
        self.note("the pool of workers is started anew")
        self.stop()
        self.pool = self.careful_pool = None
        running, self._running = self._running, {}
        for number, task in running.items():
            self.start(number, task.work)
        self._progress = time.monotonic()

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


def _kind_of(death: ProcessExpired | TimeoutError) -> str:
    """How a worker ended, as the kind of a violation."""
    if isinstance(death, TimeoutError):
        return "hangs"
    return DEVICE_LOST if death.exitcode == LOST else kind_of_end(death.exitcode)


def _from_outside(death: ProcessExpired | TimeoutError) -> bool:
    """Whether a user or the kernel ended the worker."""
    return isinstance(death, ProcessExpired) and kind_of_end(death.exitcode) in ENDED_FROM_OUTSIDE
