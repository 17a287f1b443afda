"""`LocalWorkers`: runs tasks in worker processes of this machine."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pebble import ProcessExpired, ProcessFuture, ProcessPool
from pebble.pool.process import WORKERS_NAME

from campaigns.blame import Blame
from campaigns.executor import Mistake, Reduction, Result, Work, WorkerEnd
from campaigns.failure import Failure, reduce_failure
from campaigns.latent import reduce_latent
from campaigns.plan import Plan
from campaigns.pool import cleaned_worker, start_pool
from campaigns.run_folder import RunFolder
from campaigns.shard import Shard, ShardResult, run_shard
from programs.errors import DeviceLost, InternalError
from trials import time_limit
from trials.isolation import DEVICE_LOST
from trials.worker import processor_seconds

# Seconds. A shard takes 1 to 5 and a reduction 1 to 20, so one that takes longer than this hangs.
TASK_TIMEOUT = 600.0
PATIENCE = 60.0  # seconds in which a worker must have begun with a task that waits


class _Running(NamedTuple):
    work: Work
    future: ProcessFuture[Any]


@dataclass(slots=True)
class LocalWorkers:
    """Runs tasks in a pool, which `start_pool` makes anew if it breaks.

    Workers note in files of `folder` which programs they run. `note` is told what happens.
    """

    folder: RunFolder
    workers: int
    start_pool: Callable[[], ProcessPool]
    note: Callable[[str], None]
    pool: ProcessPool | None = None
    _running: dict[int, _Running] = field(default_factory=dict)
    _progress: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, plan: Plan, folder: RunFolder, note: Callable[[str], None]) -> LocalWorkers:
        """Workers for a plan. The pool starts with the first task."""
        compiled = folder.compiled_folder()
        chosen = (plan.workers, compiled, plan.targets, plan.device, plan.memory, plan.limit)
        return cls(folder, plan.workers, functools.partial(start_pool, *chosen), note)

    def start(self, number: int, work: Work) -> None:
        """Run a task, which this number names."""
        try:
            future = self._schedule(work)
        except RuntimeError as error:  # the pool broke since
            future = ProcessFuture()
            future.set_exception(BrokenProcessPool(str(error)))
        self._running[number] = _Running(work, future)

    def _schedule(self, work: Work) -> ProcessFuture[Any]:
        self.pool = self.pool or self.start_pool()
        if not isinstance(work, Shard):
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
                result: Result = task.future.result()
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
        self.pool = None
        running, self._running = self._running, {}
        for number, task in running.items():
            self.start(number, task.work)
        self._progress = time.monotonic()

    def stop(self) -> None:
        """End the workers, whatever they are doing."""
        if self.pool is None:
            return
        self.pool.stop()
        # Asked to end, a worker in a long call would take seconds. It has nothing to lose.
        for process in multiprocessing.active_children():
            if process.name == WORKERS_NAME:
                process.kill()
        self.pool.join()


def _kind_of(death: ProcessExpired | TimeoutError) -> str:
    """How a worker ended, as the kind of a violation."""
    if isinstance(death, TimeoutError):
        return "hangs"
    if death.exitcode == LOST:
        return DEVICE_LOST
    if death.exitcode == -time_limit.HANGS:
        return "hangs"
    if death.exitcode > 0:
        return f"dies with exit status {death.exitcode}"
    return f"dies of signal {-death.exitcode}"


def _from_outside(death: ProcessExpired | TimeoutError) -> bool:
    """Whether a user or the kernel ended the worker: no program sends these signals to itself."""
    # A worker of the pool that is asked to end exits with the number of the signal.
    outside = (-signal.SIGKILL, -signal.SIGTERM, signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
    return isinstance(death, ProcessExpired) and death.exitcode in outside


# --- in a worker ----------------------------------------------------------------------------------

# The exit status of a worker that lost its device. No other part of a worker exits with it.
LOST = 71


@contextlib.contextmanager
def ending_without_device() -> Iterator[None]:
    """End the worker if it loses its device: what it runs later would fail, whatever it is."""
    try:
        yield
    except DeviceLost:
        os._exit(LOST)


def timed_reduction(failure: Failure) -> Reduction:
    """Reduce a failure in a worker."""
    start = processor_seconds()
    with ending_without_device(), cleaned_worker():
        reduced = reduce_latent(failure) if failure.symptom.latent else reduce_failure(failure)
    return Reduction(reduced, processor_seconds() - start)


def run_with_blame(shard: Shard, blame: str) -> ShardResult:
    """Run a shard in a worker, and note in the file `blame` which programs run."""
    note = Blame(blame)

    def announce(indices: Sequence[int]) -> None:
        time_limit.begin(1 if len(indices) == 1 else 2)
        note(indices)

    with ending_without_device(), cleaned_worker():
        return run_shard(shard, announce)
