"""The worker processes of a campaign."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from multiprocessing import forkserver

from pebble import ProcessPool

from trials.interrupts import sigint_handler
from trials.isolation import CPU, start_device
from trials.worker import start_worker


def start_pool(workers: int, granted: Sequence[str] = (), device: str = CPU) -> ProcessPool:
    """A pool whose processes are forked from a server that has torch imported.

    In these, the targets named in `granted` may be a user's code.

    A fork costs milliseconds, an import of torch more than a second. The server has run nothing
    else, so workers start in the same state. For CUDA, each process starts from nothing, since CUDA
    does not work in a fork of a process that has used it.
    """
    # Workers inherit it. The warnings of torch's C++ code do not pass through Python's filters.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if device != CPU:
        spawning = multiprocessing.get_context("spawn")
        given = (tuple(granted), device)
        return ProcessPool(workers, initializer=_start_on, initargs=given, context=spawning)
    # The server only asks whether there is CUDA: `eager-cuda` uses it in a fork.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    # All that a worker needs, torch included. The second is what `targets.aot` imports late.
    multiprocessing.set_forkserver_preload(["campaigns.shard", "torch._functorch.aot_autograd"])
    # The server inherits the handler: Ctrl-C is for the parent, which ends the workers.
    with sigint_handler(signal.SIG_IGN):
        forkserver.ensure_running()
    context = multiprocessing.get_context("forkserver")
    return ProcessPool(
        workers, initializer=start_worker, initargs=(tuple(granted),), context=context
    )


def _start_on(granted: Sequence[str], device: str) -> None:
    start_worker(granted)
    # The first call on a device takes seconds, which no program should pay.
    start_device(device)
