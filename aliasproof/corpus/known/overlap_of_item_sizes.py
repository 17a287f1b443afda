"""Torch compares offsets of tensors in elements, whose sizes can differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.corpus.mends import mends
from aliasproof.ir.program import Program

MODULES = (
    "torch._functorch._aot_autograd.input_output_analysis",
    "torch._inductor.fx_passes.reinplace",
)


@mends(*(f"{module}:compute_overlapping_tensors" for module in MODULES))
def mended(
    original: Callable[..., set[int]], tensors: Sequence[torch.Tensor], **options: Any
) -> set[int]:
    """Tensors of two item sizes overlap if the bytes from their first to their last element do.

    Where AOTAutograd sees that inputs of two dtypes overlap, it refuses to write them, as its error
    says.
    """
    overlapping = original(tensors, **options)
    for one, first in enumerate(tensors):
        for other, second in enumerate(tensors[:one]):
            if first.itemsize != second.itemsize and _bytes_meet(first, second):
                overlapping = {*overlapping, one, other}
    return overlapping


def _bytes_meet(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.numel() == 0 or second.numel() == 0:
        return False
    (start, end), (other_start, other_end) = _extent(first), _extent(second)
    return bool(start < other_end and other_start < end)


def _extent(tensor: torch.Tensor) -> tuple[Any, Any]:
    """The first byte in the storage, and the one after the last."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in sizes)
    return tensor.storage_offset() * tensor.itemsize, (last + 1) * tensor.itemsize


def _shares_across_item_sizes(program: Program) -> bool:
    sizes = {(tensor.storage, tensor.dtype.itemsize) for tensor in program.inputs}
    return len(sizes) > len({tensor.storage for tensor in program.inputs})


BUG = KnownBug(
    "overlap-of-item-sizes",
    "a uint8 input at byte 1 and a float32 input at byte 0 are taken for disjoint",
    "",
    program_of(
        """
        aten.add_.Scalar(x0, 1)
        aten.add_.Scalar(x1, 0)
        return (x0,)
        """,
        view(storage=0, offset=1, dtype=torch.uint8),
        view(storage=0, dtype=torch.int32),
        bytes_of={0: 4},
    ),
    ("aot", "aot-epilogue"),
    ("2.13", "2.15"),
    mended,
    # With the mend, the program is refused as documented.
    mark=Mark(
        ("values", "inputs"), "^wrong value|^input ends|^bytes outside", _shares_across_item_sizes
    ),
    plausible=_shares_across_item_sizes,
    rank=260,
)
