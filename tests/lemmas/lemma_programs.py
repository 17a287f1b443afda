"""Counterexamples to lemmas as tensors, and as programs that a target can get wrong."""

from collections.abc import Sequence

import torch

from aliasproof.ir.program import Input, Instruction, Program, Ref, Storage
from tests.lemmas.lemma_formulas import SymbolicView

# By item size in bytes. Integers: every bit pattern is a value, so no comparison fails on a NaN.
DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def tensors(views: Sequence[SymbolicView]) -> list[torch.Tensor]:
    """Views of plain integers as tensors over one storage, in which byte n has the value n."""
    # Distinct values (up to 256 bytes), so that a moved or stale byte shows.
    flat = torch.arange(_nbytes(views), dtype=torch.int64).to(torch.uint8)
    return [
        torch.empty(0, dtype=DTYPES[view.itemsize]).set_(
            flat.untyped_storage(), view.offset, view.sizes, view.strides
        )
        for view in views
    ]


def write_one_read_other(views: Sequence[SymbolicView]) -> Program:
    """A program that writes all of the first view and then reads the second.

    Its result is wrong if a compiler takes the views for disjoint.
    """
    x, y = views
    storage = Storage(DTYPES[x.itemsize], _nbytes(views) // x.itemsize)
    inputs = tuple(
        Input(name, 0, DTYPES[view.itemsize], view.sizes, view.strides, view.offset)
        for name, view in (("x0", x), ("x1", y))
    )
    # `not` changes every byte, so the read shows whichever byte the two views share.
    write = Instruction("aten.bitwise_not_.default", (Ref("x0"),))
    read = Instruction("aten.clone.default", (Ref("x1"),), (), ("v0",))
    return Program((storage,), inputs, (write, read), ("v0",))


def invert_windows(views: Sequence[SymbolicView]) -> Program:
    """A program that makes the view with `unfold` and inverts it, not in place.

    The view has two dimensions, and the inner stride is one.
    """
    (x,) = views
    (count, length), (step, _) = x.sizes, x.strides
    # The clone owns the windows, so a pass may want to overwrite it.
    steps = (
        Instruction("aten.clone.default", (Ref("x0"),), (), ("v0",)),
        Instruction("aten.unfold.default", (Ref("v0"), 0, length, step), (), ("v1",)),
        Instruction("aten.bitwise_not.default", (Ref("v1"),), (), ("v2",)),
    )
    elements = (count - 1) * step + length
    dtype = DTYPES[x.itemsize]
    return Program(
        (Storage(dtype, elements),), (Input("x0", 0, dtype, (elements,), (1,)),), steps, ("v2",)
    )


def _nbytes(views: Sequence[SymbolicView]) -> int:
    """Bytes of the smallest storage that contains the views, in whole elements of each."""
    end = max(view.region().interval[1] for view in views)
    # Item sizes are powers of two, so the largest is a multiple of all.
    unit = max(view.itemsize for view in views)
    return int(-(-end // unit) * unit)
