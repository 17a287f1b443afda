"""What an operator reads of its operands: values or only metadata, and their location.

Schemas do not say this, so these are short tables of ATen operators. An operator that is in no
table gets the safe answer: it reads all values of each operand.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.nested import nodes_in, on_values
from aliasproof.reference_pass.calls.operator_forms import (
    SCATTERS,
    aten,
    bind,
    facts,
    stores_through,
)
from aliasproof.reference_pass.calls.storages import value_of


@functools.cache
def unread(op: OpOverload) -> tuple[str, ...]:
    """The arguments whose data an op does not read: it reads their metadata, or overwrites them."""
    name = op.overloadpacket.__name__
    if name.endswith("_like") or name.startswith(("new_", "sym_")):
        return facts(op).names[:1]
    if op in (aten.view_as.default, aten.expand_as.default, aten.reshape_as.default):
        return facts(op).names[1:]
    return ("self",) if op is aten.copy_.default else ()


def overwrites(op: OpOverload) -> bool:
    """True if the in-place form of an op overwrites its first operand without reading it."""
    return op in _OVERWRITES


_OVERWRITES = {
    aten.fill.Scalar,
    aten.fill.Tensor,
    aten.zero.default,
    aten.copy.default,
    aten.uniform.default,
    aten.normal_functional.default,
    aten.exponential.default,
    aten.random.default,
    aten.random.to,
    getattr(aten.random, "from"),
    aten.cauchy.default,
    aten.log_normal.default,
    aten.geometric.default,
}


def depends_on_location(op: object) -> bool:
    """True if what an op shows or stores depends on its operand's offset and whole storage."""
    located = aten.as_strided, aten.as_strided_copy, aten.as_strided_scatter
    return getattr(op, "overloadpacket", None) in located


def contents_read(node: fx.Node) -> Iterator[tuple[fx.Node, bool, bool]]:
    """The operands that a node reads.

    Each comes with two flags: whether a scatter reads it as its base, and whether the node only
    overwrites it.
    """
    op = node.target
    # `getitem`, `on_copies` and arithmetic have no schema; they count as reading everything.
    if not isinstance(op, OpOverload):
        for operand in node.all_input_nodes:
            yield operand, False, False
        return
    given = bind(op, node.args, node.kwargs)
    # An `out=` is overwritten. A list argument yields each of its tensors.
    for name, value in given.items():
        if name in unread(op) or name in facts(op).outs:
            continue
        is_first = name == facts(op).names[0]
        is_base = is_first and op in SCATTERS
        for operand in nodes_in(value):
            # Uninitialised memory has no contents around the stored part that could be read.
            if not (is_base and operand.target is aten.empty_strided.default):
                yield operand, is_base, is_first and overwrites(op)


def stored_over(scatter: fx.Node) -> torch.Tensor:
    """The part of its base that a scatter stores over."""
    view, args = stores_through(scatter)
    shown: torch.Tensor = view(*on_values(args, value_of))
    return shown
