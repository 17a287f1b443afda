"""`LocalWorkers`: runs tasks in worker processes of this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aliasproof.campaigns.run.executor import (
    OUTSIDE,
    IsolatedReduction,
    Mistake,
    Result,
    WaitingTasks,
    Work,
    WorkerEnd,
)
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.processes.isolation import CPU, Limits, memory_available, start_server
from aliasproof.processes.outcome import Outcome, Raised, Returned
from aliasproof.processes.pool import Pool, RemoteCall

# By name: the functions run in the other processes.
_CALLS = "aliasproof.campaigns.run.worker_calls"
START, EXAMINE_SHARD, REDUCE = (f"{_CALLS}:{name}" for name in ("start", "examine_shard", "reduce"))
# All that a worker needs, torch included. The second is what `aliasproof.targets.aot` imports late.
PRELOADED = (
    _CALLS,
    "torch._functorch.aot_autograd",
    "aliasproof.generators.sites.all_sites",  # its hooks record what programs fire
)
# What a compile by Inductor imports late, which takes two seconds.
PRELOADED_FOR_INDUCTOR = (
    "torch._inductor.compile_fx",
    "torch._inductor.codegen.cpp",
    "torch._inductor.codegen.cpp_wrapper_cpu",
    "aliasproof.campaigns.run.read_sites",
)
RENEWAL = 20  # tasks after which a worker is renewed: a target may leak memory and files
MEMORY_SHARE = 0.8  # of what is free at the start
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
    `limit` seconds, if that is not 0, or at a task that takes longer than `timeout`. Each is
    renewed after `renewal` tasks. It starts with the first of them.

    A fork costs milliseconds, an import of torch more than a second. The server has run nothing
    else, so workers start in the same state. For CUDA, each process starts from nothing, since CUDA
    does not work in a fork of a process that has used it.
    """
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # there is one worker per core
    free = MEMORY_SHARE * memory_available() / workers
    nbytes = max(int(free), LEAST_MEMORY) if memory is None else int(memory * 2**30)
    if device == CPU:
        inductor = any(name.startswith("inductor") for name in targets)
        start_server((*PRELOADED, *(PRELOADED_FOR_INDUCTOR if inductor else ())))
    else:  # a process that starts from nothing takes many seconds
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
    """Runs tasks in a pool. Isolated reductions have another one, whose process is always new."""

    workers: int
    pool: Pool
    isolating: Pool
    _waiting: WaitingTasks = field(default_factory=WaitingTasks)
    _running: dict[int, Work] = field(default_factory=dict)
    _isolated: int = 0

    @classmethod
    def of(cls, plan: Plan, folder: RunFolder, note: Callable[[str], None]) -> LocalWorkers:
        """Workers for a plan. Processes start with the first task; `note` has nothing to hear."""
        chosen = (folder.compiled_folder(), plan.targets, plan.device, plan.memory, plan.limit)
        # One process per isolated reduction: what ran before would run on in its forks.
        isolating = start_pool(1, *chosen, renewal=1, timeout=ISOLATED_TIMEOUT)
        return cls(plan.workers, start_pool(plan.workers, *chosen), isolating)

    def start(self, number: int, work: Work) -> None:
        """Run a task, which this number names."""
        if isinstance(work, IsolatedReduction):
            self._running[number] = work
            self._isolated += 1
            self.isolating.submit(RemoteCall(number, REDUCE, (work,)))
        else:
            self._waiting.put(number, work)
            self._fill()

    def _fill(self) -> None:
        """Give the pool as many tasks as it has workers."""
        while self._waiting and len(self._running) - self._isolated < self.workers:
            number, work = self._waiting.pop()
            self._running[number] = work
            function = EXAMINE_SHARD if isinstance(work, Shard) else REDUCE
            self.pool.submit(RemoteCall(number, function, (work,)))

    def finished(self) -> Iterator[tuple[int, Result]]:
        """The results of the tasks that are done, in any order."""
        for pool in (self.pool, self.isolating):
            for number, outcome in pool.outcomes():
                assert isinstance(number, int)
                work = self._running.pop(number)
                self._isolated -= isinstance(work, IsolatedReduction)
                self._fill()  # before the result is stored, so that no worker is idle
                yield number, _result(outcome)

    def wait(self, seconds: float) -> None:
        """Wait until a worker has something to say, so many seconds at most."""
        self.pool.wait(seconds)

    def stop(self) -> None:
        """End the workers, whatever they are doing."""
        self.pool.stop()
        self.isolating.stop()


def _result(outcome: Outcome) -> Result:
    if isinstance(outcome, Returned):
        result: Result = outcome.value
        return result
    if isinstance(outcome, Raised):
        return Mistake(str(outcome.error))
    # The evidence of a finding.
    text = outcome.describe() if outcome.hangs else "Abnormal termination"
    outside = outcome.status in {-signal for signal in OUTSIDE}
    return WorkerEnd(outcome.violation, text, outcome.programs, outside)
