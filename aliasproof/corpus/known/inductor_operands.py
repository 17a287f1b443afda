"""Inductor puts a call in place whose other operands share memory with what it writes."""

from __future__ import annotations

from functools import partial

import torch
from torch import fx
from torch.utils import _pytree as pytree

from aliasproof.corpus.inductor_passes import reinplaceable
from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import before_reinplacing

aten = torch.ops.aten


@before_reinplacing
def mended(graph: fx.Graph) -> None:
    """Operands that share memory with what a call would write are copied before.

    Torch 2.15 does not put such calls in place.
    """
    from torch._inductor.fx_utils import get_node_storage  # noqa: PLC0415

    for node, index in reinplaceable(graph):
        storage = get_node_storage(node.args[index])
        for place, argument in enumerate(node.args):
            if place != index and any(
                isinstance(operand, fx.Node) and get_node_storage(operand) == storage
                for operand in pytree.tree_leaves(argument)
            ):
                node.update_arg(place, fx.map_arg(argument, partial(_copy, before=node)))


def _copy(operand: fx.Node, *, before: fx.Node) -> fx.Node:
    from torch._inductor.fx_passes import reinplace  # noqa: PLC0415

    with before.graph.inserting_before(before):
        copy: fx.Node = reinplace.graph_call_function(before.graph, aten.clone.default, operand)
    return copy


BUG = KnownBug(
    "inductor-operands",
    "Inductor puts index_put in place although it reads its indices from what it writes",
    "https://github.com/pytorch/pytorch/pull/185450",
    program_of(
        """
        v0 = aten.sub.Scalar(x0, 1)
        v1 = aten.put.default(v0, v0, v0)
        return (v1,)
        """,
        view(3, dtype=torch.int64),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "put", "put_", "index_put", "index_put_"),
    rank=600,
)
