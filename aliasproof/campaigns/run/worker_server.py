"""The server that the workers of a campaign are forked from. This module imports no torch."""

from __future__ import annotations

import os
from collections.abc import Sequence

from aliasproof.processes.isolation import start_server

# By name: the functions run in the other processes.
CALLS = "aliasproof.campaigns.run.worker_calls"
# All that a worker needs, torch included. The second is what `aliasproof.targets.aot` imports late.
PRELOADED = (CALLS, "torch._functorch.aot_autograd")
# Imports what a compile by Inductor needs, which takes seconds, when the first workers run.
PRELOADED_FOR_INDUCTOR = ("aliasproof.campaigns.run.inductor_import",)


def start_worker_server(targets: Sequence[str]) -> None:
    """Start the server for these targets, unless it runs, and return at once."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # there is one worker per core
    inductor = any(name.startswith("inductor") for name in targets)
    start_server((*PRELOADED, *(PRELOADED_FOR_INDUCTOR if inductor else ())))
