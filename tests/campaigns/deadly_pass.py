"""A pass that kills its process in four ways, each at one op, and gets another op wrong.

It also kills it if the wrong op has no `neg` beside it, as in some candidates of a reduction.
"""

import ctypes
import os

import torch
from torch import fx


def cleanup(gm: fx.GraphModule) -> fx.GraphModule:
    for node in gm.graph.nodes:
        op = str(node.target)
        if op.startswith("aten.sin"):
            ctypes.string_at(0)  # a segfault
        if op.startswith("aten.cos"):
            os._exit(3)
        if op.startswith("aten.tan"):
            kept = []
            while True:  # tensors would be fake here
                kept.append(b"1" * 2**26)
        if op.startswith("aten.abs"):
            while True:
                pass
        if op.startswith("aten.add"):
            if not any(str(other.target).startswith("aten.neg") for other in gm.graph.nodes):
                os.abort()
            node.target = torch.ops.aten.sub.Tensor
    gm.recompile()
    return gm
