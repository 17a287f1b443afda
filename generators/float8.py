"""float8: which ops have a kernel for it."""

from __future__ import annotations

import functools

import torch

from aliasproof.eager.rounding import rounding_name
from aliasproof.ir.schemas import Kind, facts, resolve

FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})

# Views need no kernel. Of the other ops, these have one for float8 on CPU in torch 2.13. None of
# them computes with the values.
# fmt: off
_MOVES = frozenset({
    "abs", "fill", "zero", "copy", "clone", "zeros_like", "full_like", "where", "cat", "stack",
    "select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter", "index",
    "index_select", "to", "_to_copy", "contiguous", "eq", "repeat", "view_copy",
})
# fmt: on


@functools.cache
def has_float8_kernel(name: str) -> bool:
    """True if eager runs the op on float8 tensors of every size.

    Eager runs more ops on tensors without elements, and no compiler must do the same.
    """
    op = resolve(name)
    if op is torch.ops.aten._neg_view.default:  # whatever reads this view negates
        return False
    changes_metadata = torch.Tag.inplace_view in op.tags
    is_view = facts(op).kind is Kind.VIEW
    return changes_metadata or is_view or rounding_name(op) in _MOVES
