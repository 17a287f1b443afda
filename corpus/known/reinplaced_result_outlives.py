"""Inductor puts a result into an input that is overwritten before the result is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import fx

from corpus.inductor_passes import before_reinplacing, copied, reinplaceable, write_back
from corpus.known_bug import KnownBug, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """A result that is read at or after the write to the input is not put into that input.

    Torch asks only whether the *input* is read until it is written. Then it holds the result, or
    the result of a later call that is put in place of this one.
    """
    with before_reinplacing(_copy_operands):
        yield


def _copy_operands(graph: fx.Graph) -> None:
    order = {node: index for index, node in enumerate(graph.nodes)}
    for node, index in reinplaceable(graph):
        write = write_back(_origin(node.args[index]))
        if (
            write is not None
            and any(order[use] >= order[write] and use is not write for use in _uses(node))
        ) or (write is not None and write in node.users and write.args[1] is not node):
            copied(node, index)


def _origin(node: fx.Node) -> fx.Node:
    """The tensor that a chain of calls is put into, if each of them is put in place."""
    operands = dict(reinplaceable(node.graph))
    while node in operands:
        node = node.args[operands[node]]  # type: ignore[assignment]
    return node


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
    "",
    written(
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
)
