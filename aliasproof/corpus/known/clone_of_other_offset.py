"""Inductor removes a clone of a tensor with a storage offset, which its clone does not have."""

from __future__ import annotations

from collections.abc import Callable

from torch import fx

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import PASSES, mends
from aliasproof.ir.program import Program


@mends(f"{PASSES}.post_grad:same_meta")
def mended(original: Callable[..., bool], one: fx.Node, other: fx.Node) -> bool:
    """A call whose result has another offset than its operand is no no-op.

    Torch compares sizes and strides. The decomposition of a custom operator that writes was traced
    with the offset of the clone, and then counts from the start of the operand's storage.
    """
    if not original(one, other):
        return False
    return bool(one.meta["val"].storage_offset() == other.meta["val"].storage_offset())


def _calls_custom(program: Program) -> bool:
    return any(not call.op.startswith("aten.") for call in program.instructions)


BUG = KnownBug(
    "clone-of-other-offset",
    "a custom operator that writes x.clone() writes another part if x has a storage offset",
    "https://github.com/pytorch/pytorch/issues/197489",
    program_of(
        """
        v0 = aten.clone.default(x0)
        torch.ops.aliasproof.double.default(v0)
        return (v0,)
        """,
        view(offset=1),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=_calls_custom,
    rank=837,
)
