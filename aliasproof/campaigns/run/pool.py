"""The worker processes of a campaign."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import resource
import shutil
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path

from pebble import ProcessPool

from aliasproof.targets.one_library import forget_compiled
from aliasproof.trials import time_limit
from aliasproof.trials.interrupts import sigint_ignored_by_children
from aliasproof.trials.isolation import CPU, limit_memory, memory_available, start_device
from aliasproof.trials.worker import start_worker

# All that a worker needs, torch included. The second is what `aliasproof.targets.aot` imports late.
PRELOADED = ("aliasproof.campaigns.run.shard", "torch._functorch.aot_autograd")
# What a compile by Inductor imports late, which takes two seconds.
PRELOADED_FOR_INDUCTOR = (
    "torch._inductor.compile_fx",
    "torch._inductor.codegen.cpp",
    "torch._inductor.codegen.cpp_wrapper_cpu",
)
TASKS = 20  # after which a worker is renewed: a target may leak memory and files
MEMORY_SHARE = 0.8  # of what is free at the start
LEAST_MEMORY = 2 * 2**30  # bytes per worker, however little is free
CACHE = "TORCHINDUCTOR_CACHE_DIR"


def start_pool(
    workers: int,
    compiled: Path,
    targets: Sequence[str] = (),
    device: str = CPU,
    memory: float | None = None,
    limit: float = 0.0,
    tasks: int = TASKS,
) -> ProcessPool:
    """A pool whose processes are forked from a server that has torch imported.

    They are for these `targets`, which may be a user's code. Compilers write into the folder
    `compiled`. Each process may allocate `memory` GiB, and dies at a program that takes longer than
    `limit` seconds, if that is not 0. Each is renewed after so many `tasks`.

    A fork costs milliseconds, an import of torch more than a second. The server has run nothing
    else, so workers start in the same state. For CUDA, each process starts from nothing, since CUDA
    does not work in a fork of a process that has used it.
    """
    # Workers inherit these. The warnings of torch's C++ code do not pass through Python's filters.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # there is one worker per core
    free = MEMORY_SHARE * memory_available() / workers
    nbytes = max(int(free), LEAST_MEMORY) if memory is None else int(memory * 2**30)
    given = (tuple(targets), device, str(compiled.absolute()), nbytes, limit)
    if device != CPU:
        spawning = multiprocessing.get_context("spawn")
        # Not renewed: a process that starts from nothing takes many seconds.
        return ProcessPool(workers, initializer=_start, initargs=given, context=spawning)
    # The server only asks whether there is CUDA: `eager-cuda` uses it in a fork.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    inductor = any(name.startswith("inductor") for name in targets)
    modules = (*PRELOADED, *(PRELOADED_FOR_INDUCTOR if inductor else ()))
    multiprocessing.set_forkserver_preload(list(modules))
    # The server inherits the handler: Ctrl-C is for the parent, which ends the workers.
    with sigint_ignored_by_children():
        forkserver.ensure_running()
    context = multiprocessing.get_context("forkserver")
    return ProcessPool(workers, tasks, initializer=_start, initargs=given, context=context)


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


@contextlib.contextmanager
def cleaned_worker() -> Iterator[None]:
    """Afterwards, delete what this worker has compiled: a campaign compiles without end."""
    try:
        yield
    finally:
        time_limit.end()
        forget_compiled()
        shutil.rmtree(os.environ[CACHE], ignore_errors=True)


def _start(targets: Sequence[str], device: str, compiled: str, nbytes: int, limit: float) -> None:
    # A target may print. Standard output is for results, and standard error for progress.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # to write the memory of a crash takes long
    limit_memory(nbytes)
    time_limit.set_limit(limit)
    start_worker(targets)
    # One folder per worker, so that each deletes its own.
    os.environ[CACHE] = str(Path(compiled) / str(os.getpid()))
    if device != CPU:
        # The first call on a device takes seconds, which no program should pay.
        start_device(device)
