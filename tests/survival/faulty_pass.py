"""A pass that goes wrong on some programs, told by their text: the target of the fault tests.

The environment names its faults, `FAULTS=segfault,hang,...`, and `SHARE`: each fault is shown by
one program in so many.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys

from torch import fx

FAULTS = os.environ.get("FAULTS", "").split(",")
SHARE = int(os.environ.get("SHARE", "100"))
leaked: list[int] = []


def cleanup(gm: fx.GraphModule) -> fx.GraphModule:
    """Shows the fault whose number is the remainder of a hash of the graph."""
    number = int.from_bytes(hashlib.sha256(gm.code.encode()).digest()[:4], "big") % SHARE
    fault = FAULTS[number] if number < len(FAULTS) else ""
    if fault == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif fault == "hang":
        while True:
            pass
    elif fault == "memory":
        kept = []
        while True:  # tensors would be fake ones here
            kept.append(b"1" * 2**26)
    elif fault == "garbage":
        os.write(1, b"\x00garbage\xff" * 1000)
        print("garbage", file=sys.stderr)
    elif fault == "files":
        leaked.append(os.open(os.devnull, os.O_RDONLY))
    # Plainly wrong: these are left out.
    for node in gm.graph.nodes:
        if str(node.target).startswith(("aten.abs", "aten.relu", "aten.flip")):
            node.replace_all_uses_with(node.args[0])
    gm.recompile()
    return gm
