"""Imports Inductor in the server that workers are forked from, and reads its sites.

The import takes seconds, in which the first workers would have to wait. So it happens at a later
fork: the first workers import Inductor when they need it, and those that replace them have it.
"""

import importlib
import itertools
import os

from aliasproof.torch_parts import why_off

NEEDED = (
    "torch._inductor.compile_fx",
    "torch._inductor.codegen.cpp",
    "torch._inductor.codegen.cpp_wrapper_cpu",
    "aliasproof.generators.sites.all_sites",
)
_server = os.getpid()
_forks = itertools.count()


def _import() -> None:
    # A worker may fork, too: only the server imports.
    late = os.getpid() == _server and next(_forks) == os.cpu_count()
    if late and why_off("sites") is None:
        for name in NEEDED:
            importlib.import_module(name)
        importlib.import_module(NEEDED[-1]).all_sites()


os.register_at_fork(before=_import)
