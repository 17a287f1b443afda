"""The start of a process that tries many programs."""

from __future__ import annotations

import gc
import logging
import os
import signal
import warnings
from collections.abc import Sequence

import torch

from aliasproof.targets.user_names import grant

# The distance between the shard seeds of runs with neighbouring seeds: they share no shard.
SEEDS_APART = 1_000_003


def quiet_torch() -> None:
    """Silence torch's logs and warnings: thousands of failing programs would flood the terminal."""
    logging.getLogger("torch").setLevel(logging.CRITICAL + 1)
    warnings.simplefilter("ignore")


def start_worker(granted: Sequence[str] = ()) -> None:
    """Prepare a worker process: no Ctrl-C, one thread, no warnings.

    The targets named in `granted` may be a user's code.
    """
    grant(granted)
    # Ctrl-C goes to the whole process group. The parent handles it and ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)  # there is one worker per core
    gc.freeze()  # objects from the import of torch never die, so the collector need not visit them
    quiet_torch()


def processor_seconds() -> float:
    """The seconds of processor time of this process, and of its children that have ended.

    Inductor calls a C++ compiler, which is most of its time.
    """
    return sum(os.times()[:4])
