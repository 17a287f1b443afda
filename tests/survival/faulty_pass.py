"""A pass that goes wrong at some operators: the target of the fault tests.

The environment names its faults, `FAULTS=segfault,hang,...`. Programs with one operator show each
fault, about one program in a hundred.
"""

import os
import signal
import sys

from torch import fx

OPERATORS = {
    "aten.atan": "segfault",
    "aten.cosh": "hang",
    "aten.lgamma": "memory",
    "aten.tanh": "garbage",
    "aten.sqrt": "files",
}
FAULTS = os.environ.get("FAULTS", "").split(",")
leaked: list[int] = []


def cleanup(gm: fx.GraphModule) -> fx.GraphModule:
    """Shows the faults of the operators in the graph."""
    for node in gm.graph.nodes:
        name = ".".join(str(node.target).split(".")[:2])
        if OPERATORS.get(name) in FAULTS:
            show(OPERATORS[name])
        if name in ("aten.abs", "aten.relu", "aten.flip"):  # wrong values: these calls are dropped
            node.replace_all_uses_with(node.args[0])
    gm.recompile()
    return gm


def show(fault: str) -> None:
    """Show a fault."""
    if fault == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif fault == "hang":
        while True:
            pass
    elif fault == "memory":
        kept = []
        while True:  # tensors would be fake here
            kept.append(b"1" * 2**26)
    elif fault == "garbage":
        os.write(1, b"\x00garbage\xff" * 1000)
        print("garbage", file=sys.stderr)
    elif fault == "files":
        leaked.append(os.open(os.devnull, os.O_RDONLY))
