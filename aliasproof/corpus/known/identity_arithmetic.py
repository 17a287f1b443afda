"""Inductor replaces `x + 0` by x itself, although the sum is a new tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import PASSES, mends

aten = torch.ops.aten
_ARITHMETIC = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)


@mends(f"{PASSES}.joint_graph:remove_no_ops")
def mended(original: Callable[..., Any], module: fx.GraphModule, zeros: Any, ones: Any) -> None:
    """The pass replaces `x + 0` by a copy of x. Another pass removes copies, and asks for aliases.

    Torch asks only whether x is written directly, not whether it is returned, or written through
    another view.
    """
    neutral = {*zeros, *ones}
    for node in module.graph.nodes:
        if node.target in _ARITHMETIC and any(operand in neutral for operand in node.args):
            for index, operand in enumerate(node.args):
                if isinstance(operand, fx.Node) and operand not in neutral:
                    _copy(node, index, operand)
    original(module, zeros, ones)


def _copy(node: fx.Node, index: int, operand: fx.Node) -> None:
    with node.graph.inserting_before(node):
        copy = node.graph.call_function(aten.clone.default, (operand,))
    copy.meta["val"] = operand.meta["val"].clone()
    node.update_arg(index, copy)


BUG = KnownBug(
    "identity-arithmetic",
    "Inductor returns x itself for x + 0, x * 1 and x / 1",
    "https://github.com/pytorch/pytorch/issues/197893",
    program_of(
        """
        v0 = aten.ones_like.default(x0)
        v1 = aten.mul.Tensor(x0, v0)
        return (v1,)
        """,
        view(),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    rank=470,
)
