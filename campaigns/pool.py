"""The worker processes of a campaign."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path

from pebble import ProcessPool

from targets.one_library import forget_compiled
from trials.interrupts import sigint_handler
from trials.isolation import CPU, start_device
from trials.worker import start_worker

# All that a worker needs, torch included. The second is what `targets.aot` imports late.
PRELOADED = ("campaigns.shard", "torch._functorch.aot_autograd")
# What a compile by Inductor imports late, which takes two seconds.
PRELOADED_FOR_INDUCTOR = (
    "torch._inductor.compile_fx",
    "torch._inductor.codegen.cpp",
    "torch._inductor.codegen.cpp_wrapper_cpu",
)
CACHE = "TORCHINDUCTOR_CACHE_DIR"


def start_pool(
    workers: int, compiled: Path, targets: Sequence[str] = (), device: str = CPU
) -> ProcessPool:
    """A pool whose processes are forked from a server that has torch imported.

    They are for these `targets`, which may be a user's code. Compilers write into the folder
    `compiled`.

    A fork costs milliseconds, an import of torch more than a second. The server has run nothing
    else, so workers start in the same state. For CUDA, each process starts from nothing, since CUDA
    does not work in a fork of a process that has used it.
    """
    # Workers inherit these. The warnings of torch's C++ code do not pass through Python's filters.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # there is one worker per core
    given = (tuple(targets), device, str(compiled.absolute()))
    if device != CPU:
        spawning = multiprocessing.get_context("spawn")
        return ProcessPool(workers, initializer=_start, initargs=given, context=spawning)
    # The server only asks whether there is CUDA: `eager-cuda` uses it in a fork.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    inductor = any(name.startswith("inductor") for name in targets)
    modules = (*PRELOADED, *(PRELOADED_FOR_INDUCTOR if inductor else ()))
    multiprocessing.set_forkserver_preload(list(modules))
    # The server inherits the handler: Ctrl-C is for the parent, which ends the workers.
    with sigint_handler(signal.SIG_IGN):
        forkserver.ensure_running()
    context = multiprocessing.get_context("forkserver")
    return ProcessPool(workers, initializer=_start, initargs=given, context=context)


@contextlib.contextmanager
def cleaned_worker() -> Iterator[None]:
    """Afterwards, delete what this worker has compiled: a campaign compiles without end."""
    try:
        yield
    finally:
        forget_compiled()
        shutil.rmtree(os.environ[CACHE], ignore_errors=True)


def _start(targets: Sequence[str], device: str, compiled: str) -> None:
    start_worker(targets)
    # One folder per worker, so that each deletes its own.
    os.environ[CACHE] = str(Path(compiled) / str(os.getpid()))
    if device != CPU:
        # The first call on a device takes seconds, which no program should pay.
        start_device(device)
