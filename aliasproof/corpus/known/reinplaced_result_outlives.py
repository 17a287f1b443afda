"""Inductor puts a result into an input that is overwritten before the result is read."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from aliasproof.corpus.inductor_passes import (
    copy_operand,
    copy_with_storage,
    foreach_write_backs,
    reinplaceable,
    write_back,
)
from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import before_reinplacing


@before_reinplacing
def mended(graph: fx.Graph) -> None:
    """A result that is read at or after the write to the input is not put into that input.

    Torch asks only whether the *input* is read until it is written. Then it holds the result, or
    the result of a later call that is put in place of this one.
    """
    for node, index in reinplaceable(graph):
        if _outlives(node, write_back(_origin(node.args[index]))):
            copy_operand(node, index)
    for call, result, index in _custom_results(graph):
        if _outlives(result, write_back(_origin(call.kwargs["_all_bases"][index]))):
            _copy_base(call, index)
    for write, item in foreach_write_backs(graph):
        if item is write.args[0] and _outlives(write.args[1], write):
            copy_operand(write, 1)


def _outlives(result: fx.Node, write: fx.Node | None) -> bool:
    """Whether a result, or a view of it, is read at or after the write into its memory."""
    if write is None:
        return False
    later = any(use > write for use in _uses(result))
    return later or (write in result.users and write.args[1] is not result)


def _origin(node: fx.Node) -> fx.Node:
    """The tensor that a chain of calls is put into, if each of them is put in place."""
    operands = {call: call.args[index] for call, index in reinplaceable(node.graph)}
    for call, result, index in _custom_results(node.graph):
        operands[result] = call.kwargs["_all_bases"][index]
    while node in operands:
        node = operands[node]
    return node


def _custom_results(graph: fx.Graph) -> Iterator[tuple[Any, fx.Node, int]]:
    """Calls of custom operators, with what they write, and the index of the base it is put into."""
    op = torch.ops.higher_order.auto_functionalized_v2
    for call in graph.find_nodes(op="call_function", target=op):
        if not isinstance(call.args[0], torch._ops.OpOverload):
            continue
        # The written bases come after what the operator returns, or after None.
        first = max(1, len(call.args[0]._schema.returns))
        for result in call.users:
            if result.target is operator.getitem and result.args[1] >= first:
                yield call, result, result.args[1] - first


def _copy_base(call: Any, index: int) -> None:
    bases = list(call.kwargs["_all_bases"])
    with call.graph.inserting_before(call):
        bases[index] = copy_with_storage(bases[index])
    call.update_kwarg("_all_bases", bases)


def _uses(node: fx.Node) -> Iterator[fx.Node]:
    """The users of a tensor and of its views."""
    from torch.fx.passes.reinplace import _is_view_op  # noqa: PLC0415

    for use in node.users:
        yield use
        if _is_view_op(use.target):
            yield from _uses(use)


BUG = KnownBug(
    "reinplaced-result-outlives",
    "Inductor puts a result into an input that is overwritten while the result is still needed",
    "https://github.com/pytorch/pytorch/issues/198094",
    program_of(
        """
        v0 = aten.diagonal_scatter.default(x0, x1)
        aten.zero_.default(x0)
        return (v0,)
        """,
        view(1, 1),
        view(1),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    rank=510,
)
