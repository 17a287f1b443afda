"""The strides that the operands of a call have in eager, noted in the graph.

A value can have other strides here than in eager, and the bits of some calls depend on strides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.nested import nodes_in
from aliasproof.reference_pass.calls.operator_forms import bind, facts
from aliasproof.reference_pass.calls.regions import Size


def note_strides(call: fx.Node, strides: Callable[[fx.Node], Sequence[Size] | None]) -> None:
    """Note for each operand of a call the strides that it has in eager; None if not known."""
    call.meta[_STRIDES] = list(map(strides, _operands(call)))


def noted_strides(call: fx.Node) -> Iterator[tuple[fx.Node, Sequence[Size]]]:
    """The operands of a call with their strides in eager, as far as noted."""
    pairs = zip(_operands(call), call.meta.get(_STRIDES, ()), strict=False)
    return ((operand, strides) for operand, strides in pairs if strides is not None)


_STRIDES = "strides in eager"  # the key in the metadata of a node


def _operands(node: fx.Node) -> list[fx.Node]:
    """The nodes that are arguments of a call, in the order of the schema.

    The in-place or `out=` form of the same call has the same ones first.
    """
    op, args = called_operator(node)
    given = bind(op, args, node.kwargs) if isinstance(op, OpOverload) else {}
    if not node.kwargs or not given:
        return nodes_in((args, node.kwargs))
    return [leaf for name in facts(op).names if name in given for leaf in nodes_in(given[name])]


def called_operator(node: fx.Node) -> tuple[Any, tuple[Any, ...]]:
    """The operator that a node calls, maybe on copies, and its arguments by position."""
    return (node.args[0], node.args[1:]) if node.target is on_copies else (node.target, node.args)
