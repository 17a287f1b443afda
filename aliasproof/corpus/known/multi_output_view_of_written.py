"""In training, one result of `split` of a written input is no view of that input."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch:_functionalize_is_multi_output_view")
def mended(original: Callable[..., bool], tensor: torch.Tensor) -> bool:
    """AOTAutograd takes results of `split` and `unbind` for ordinary views.

    Torch returns them as the graph computes them, since autograd allows no writes to them. They
    are views of the new contents then, and these are copied to the input.
    """
    return False


BUG = KnownBug(
    "multi-output-view-of-written",
    "in training, a result of split of a written input does not share its memory",
    "https://github.com/pytorch/pytorch/pull/186503",
    program_of(
        """
        aten.add_.Scalar(x0, 1)
        v0, v1 = aten.split.Tensor(x0, 1)
        return (v0,)
        """,
        view(2),
    ),
    ("aot:grad", "aot-epilogue:grad"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(
        program, "split", "split_with_sizes", "unbind", "chunk", "tensor_split", "hsplit", "vsplit"
    ),
    rank=300,
)
