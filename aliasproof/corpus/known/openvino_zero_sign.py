"""OpenVINO leaves out the addition of a zero, and with it the sign of another zero."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Storage

PROGRAM = program_of(
    """
    v0 = aten.neg.default(x0)
    v1 = aten.neg.default(v0)
    v2 = aten.zeros_like.default(x0)
    v3 = aten.add.Tensor(v2, v1)
    return (v3,)
    """,
    view(2),
)

# By IEEE 754, 0.0 + -0.0 is 0.0. In some partitions, 0.0 * -1 is 0.0, too, and -0.0 in eager.
BUG = KnownBug(
    "openvino-zero-sign",
    "OpenVINO takes 0.0 + x for x, and loses the sign of zero",
    "",
    replace(PROGRAM, storages=(Storage(torch.float32, 2, ("-0.0", "-0.0")),)),
    ("openvino-aot", "openvino"),
    ("2.13",),
    mark=Mark(("values", "inputs"), "zero of the other sign"),
    rank=1400,
)
