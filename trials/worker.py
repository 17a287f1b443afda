"""How a process that tries many programs begins."""

from __future__ import annotations

import gc
import logging
import signal
import warnings

import torch

SEEDS_APART = 1_000_003  # between runs of neighbouring seeds, so that they share no shard


def quiet_torch() -> None:
    """Silence torch's logs and warnings: failing on odd programs is this project's daily bread."""
    logging.getLogger("torch").setLevel(logging.CRITICAL + 1)
    warnings.simplefilter("ignore")


def start_worker() -> None:
    """Ctrl-C is for the parent, which ends the workers; one thread each, since there is one worker a core."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    gc.freeze()  # what torch allocated at import will not go away, so do not look through it again and again
    quiet_torch()
