"""Functionalization takes the operands of `torch.cond` for tensors that share nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensorMode

from aliasproof.corpus.known_bug import KnownBug, program_of, view, writes
from aliasproof.corpus.mends import mends


@mends("torch:ops.higher_order.cond.python_key_table", keys=(FunctionalTensorMode,))
def mended(
    original: Callable[..., Any],
    mode: FunctionalTensorMode | None,
    predicate: Any,
    true: Callable[..., Any],
    false: Callable[..., Any],
    operands: Sequence[Any],
) -> Any:
    """Operands that share a storage go into the branches as one base, and are its views there.

    Torch gives a branch a new tensor for each operand that a branch writes, and the old tensors of
    all others. It then functionalizes the branches, where each operand is a tensor of its own.
    """
    bases, on_views = _on_bases(operands)
    return original(mode, predicate, on_views(true), on_views(false), bases)


def _on_bases(operands: Sequence[Any]) -> tuple[list[Any], Callable[..., Any]]:
    """The operands without those that share a storage, and how a branch gets them all.

    Only operands of the dtype of their base become views of it.
    """
    bases: list[Any] = []
    # For each operand, the index of its base, and its layout if it shares a storage.
    places: list[tuple[int, Any]] = []
    for operand in operands:
        base, layout = operand, None
        if isinstance(operand, torch.Tensor) and _is_shared(operand, operands):
            base = operand if operand._base is None else operand._base
            offset = operand.storage_offset() - base.storage_offset()
            layout = (operand.shape, operand.stride(), offset)
        index = next((i for i, other in enumerate(bases) if other is base), len(bases))
        bases[index:] = bases[index:] or [base]
        places.append((index, layout))
    if all(layout is None for _, layout in places):
        # The branches stay what they are: other mends look at them.
        return list(operands), lambda branch: branch

    def on_views(branch: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            return branch(*(_view(given[index], layout) for index, layout in places))

        return call

    return bases, on_views


def _is_shared(operand: torch.Tensor, operands: Sequence[Any]) -> bool:
    storage = operand.untyped_storage()._cdata
    sharing = [
        other
        for other in operands
        if isinstance(other, torch.Tensor) and other.untyped_storage()._cdata == storage
    ]
    bases = [other if other._base is None else other._base for other in sharing]
    return len(sharing) > 1 and len({tensor.dtype for tensor in (*sharing, *bases)}) == 1


def _view(base: Any, layout: Any) -> Any:
    if layout is None:
        return base
    sizes, strides, offset = layout
    return base.as_strided(sizes, strides, base.storage_offset() + offset)


BUG = KnownBug(
    "cond-operands-share",
    "a branch of torch.cond writes an operand, and reads a view of it with the old contents",
    "",
    program_of(
        """
        v0 = aten.alias.default(x0)
        aten.add_.Scalar(x0, 1)
        v1 = aten.add.Scalar(v0, 0)
        return (v1,)
        """,
        view(),
    ),
    ("aot:cond", "aot-epilogue:cond"),
    ("2.13", "2.15"),
    mended,
    # All that `torch.cond` gets can be views of one tensor.
    plausible=writes,
    rank=890,
)
