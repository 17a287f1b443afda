"""With freezing, a constant of shape (1, n) is folded into a convolution's channels."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows


@narrows("freezing_patterns", "folded_op")
def mended(match: Any) -> bool:
    """A constant is folded if it broadcasts along the channels: their dimension is the second."""
    binary = match.output_node()
    other = match.kwargs["other"]
    if not isinstance(other, fx.Node):
        return True
    result: torch.Tensor = binary.meta["val"]
    shape = other.meta["val"].shape
    channels = result.dim() - 2  # dimensions after that of the channels
    return all(size == 1 for index, size in enumerate(reversed(shape)) if index != channels)


BUG = KnownBug(
    "folded-into-channels",
    "conv2d(x) + c, with c of shape (1, channels), adds c to the channels and not to the columns",
    "",
    program_of(
        """
        v0 = aten.convolution.default(x0, x2, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        v1 = aten.add.Tensor(v0, x3)
        return (v1,)
        """,
        view(1, 1, 1, 2),
        view(1),
        view(2, 1, 1, 1),
        view(1, 2),
    ),
    ("inductor-fx:freezing",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "convolution", "conv1d", "conv2d", "conv3d"),
    rank=990,
)
