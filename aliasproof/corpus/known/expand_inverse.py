"""The inverse of `expand` computes with the values that were written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view
from aliasproof.corpus.view_inverses import Call, mends_inverse
from aliasproof.ir.program import Program

aten = torch.ops.aten


@mends_inverse("expand", aten.sub.Tensor, aten.add.Tensor, aten.sum.default)
def mended(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
    """The inverse takes, for each element of the base, the copy that the write changed.

    Torch computes `base + sum_to_size(written - base)`. With two copies that change, the difference
    counts twice; bool has no `-`; and with inf or 1e20 the sum is not what was written.
    """
    # `sub` gives the new base already. It has the base's size, so `sum_to_size` leaves the values
    # as they are, though it makes integers of bool. `add` hands it on.
    if op is aten.sub.Tensor:
        return _changed_copies(call, base=args[1], written_view=args[0])
    if op is aten.add.Tensor:
        return call(aten._to_copy.default, args[1], dtype=args[0].dtype)
    # `sum_to_size` of a tensor without dimensions: the sum of one number is another symbolic value.
    return call(aten.clone.default, args[0])


def _changed_copies(call: Call, base: Any, written_view: Any) -> Any:
    """One copy per element of the base: the one that differs from it, if there is one."""
    if written_view.numel() == 0:
        return call(aten.clone.default, base)
    before = call(aten.expand.default, base, list(written_view.shape))
    now = written_view
    leading = now.dim() - base.dim()
    for dim in reversed(range(now.dim())):
        if dim >= leading and base.shape[dim - leading] == now.shape[dim]:
            continue
        copies = [_copy(call, now, dim, index) for index in range(now.shape[dim])]
        before = call(aten.select.int, before, dim, 0)
        now = copies[0]
        for copy in copies[1:]:
            now = call(aten.where.self, _differs(call, copy, before), copy, now)
        if dim >= leading:  # a dim of size 1 of the base, not a new one
            before = call(aten.unsqueeze.default, before, dim)
            now = call(aten.unsqueeze.default, now, dim)
    return call(aten.clone.default, now)


def _copy(call: Call, tensor: Any, dim: int, index: int) -> Any:
    return call(aten.select.int, tensor, dim, index)


def _differs(call: Call, copy: Any, before: Any) -> Any:
    """Where a copy is not what it was; NaN equals NaN."""
    differ = call(aten.ne.Tensor, copy, before)
    numbers = call(
        aten.logical_or.default,
        call(aten.eq.Tensor, copy, copy),
        call(aten.eq.Tensor, before, before),
    )
    return call(aten.logical_and.default, differ, numbers)


def _broadcasts(program: Program) -> bool:
    # Ops that broadcast their result into a view call `expand` themselves.
    return calls(program, "expand", "expand_as", "broadcast_to", "broadcast_tensors", "meshgrid")


BUG = KnownBug(
    "expand-inverse",
    "a write through expand adds up the copies: the inverse is base + sum_to_size(written - base)",
    "https://github.com/pytorch/pytorch/issues/197448",
    program_of(
        """
        v0 = aten.expand.default(x0, [2])
        aten.zero_.default(v0)
        return (x0,)
        """,
        view(),
    ),
    ("functionalize", "aot", "aot-epilogue", "fx-reinplace"),
    ("2.13", "2.15"),
    mended,
    # Mended, the graph chooses among the copies. That is another symbolic value, also if all copies
    # are equal.
    mark=Mark(("equivalence",), "wrong symbolic value", _broadcasts),
    plausible=_broadcasts,
    rank=10,
)
