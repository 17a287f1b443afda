"""With freezing, a constant is folded into a transposed convolution by its input channels."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows


@narrows("freezing_patterns", "folded_op")
def mended(match: Any) -> bool:
    """Nothing is folded into transposed convolutions.

    The first dimension of their weight is that of the input channels.
    """
    transposed = 6
    return not any(
        node.target is torch.ops.aten.convolution.default and node.args[transposed]
        for node in match.nodes
    )


BUG = KnownBug(
    "folded-into-transposed",
    "conv_transpose2d(x) * c scales the input channels, and + 1.0 takes their number for the bias",
    "",
    program_of(
        """
        v0 = aten.convolution.default(x0, x2, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1)
        v1 = aten.mul.Tensor(v0, x3)
        return (v1,)
        """,
        view(1, 2, 1, 1),
        view(1),
        view(2, 2, 1, 1),
        view(2, 1, 1),
    ),
    ("inductor-fx:freezing",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "convolution"),
    rank=1000,
)
