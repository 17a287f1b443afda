"""The worker processes of a campaign."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterable
from multiprocessing import forkserver
from pathlib import Path

from pebble import ProcessPool

from targets.one_library import forget_compiled
from trials.interrupts import sigint_handler
from trials.worker import start_worker

# All that a worker needs, torch included. The second is what `targets.aot` imports late.
PRELOADED = ("campaigns.shard", "torch._functorch.aot_autograd")
# What a compile by Inductor imports late, which takes two seconds.
PRELOADED_FOR_INDUCTOR = (
    *("torch._inductor.compile_fx", "torch._inductor.codegen.cpp"),
    "torch._inductor.codegen.cpp_wrapper_cpu",
)
CACHE = "TORCHINDUCTOR_CACHE_DIR"


def start_pool(workers: int, targets: Iterable[str], compiled: Path) -> ProcessPool:
    """A pool whose processes are forked from a server that has torch imported.

    A fork costs milliseconds, an import of torch more than a second. The server has run nothing
    else, so workers start in the same state. Compilers write into the folder `compiled`.
    """
    # Workers inherit these. The warnings of torch's C++ code do not pass through Python's filters.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # there is one worker per core
    inductor = any(name.startswith("inductor") for name in targets)
    modules = (*PRELOADED, *(PRELOADED_FOR_INDUCTOR if inductor else ()))
    multiprocessing.set_forkserver_preload(list(modules))
    # The server inherits the handler: Ctrl-C is for the parent, which ends the workers.
    with sigint_handler(signal.SIG_IGN):
        forkserver.ensure_running()
    context = multiprocessing.get_context("forkserver")
    return ProcessPool(
        workers, initializer=_start, initargs=(str(compiled.absolute()),), context=context
    )


def clean_worker() -> None:
    """Forget and delete what this worker has compiled: a campaign compiles without end."""
    forget_compiled()
    shutil.rmtree(os.environ[CACHE], ignore_errors=True)


def _start(compiled: str) -> None:
    start_worker()
    # One folder per worker, so that one can delete its own.
    os.environ[CACHE] = str(Path(compiled) / str(os.getpid()))
