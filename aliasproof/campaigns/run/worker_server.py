"""The server that the workers of a campaign are forked from. This module imports no torch."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from aliasproof.processes.isolation import prepare_environment, start_server

# A name, since the functions run in the other processes.
CALLS = "aliasproof.campaigns.run.worker_calls"
# All that a worker needs, including torch. `aliasproof.targets.aot` imports the second one late.
PRELOADED = (CALLS, "torch._functorch.aot_autograd")
# Imports what Inductor needs to compile, which takes seconds, after the first workers have started.
PRELOADED_FOR_INDUCTOR = ("aliasproof.campaigns.run.inductor_import",)


def start_worker_server(targets: Sequence[str], *, early: bool = False) -> None:
    """Start the server for these targets, unless it runs already.

    With `early`, this process has done nothing yet. It needs most of what the server imports, so it
    imports that and forks the server: one import of torch takes less time than two.
    """
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # there is one worker per core
    inductor = any(name.startswith("inductor") for name in targets)
    later = PRELOADED_FOR_INDUCTOR if inductor else ()
    if early and sys.platform == "linux":
        prepare_environment()
        for name in PRELOADED:
            importlib.import_module(name)
        start_server(later, by_fork=True)
    else:
        start_server((*PRELOADED, *later))
