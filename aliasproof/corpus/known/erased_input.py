"""Inductor removes an input from the graph when a view of another dtype is no longer used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, program_of, view, views_dtype
from aliasproof.corpus.mends import PASSES, mends


@mends(f"{PASSES}.joint_graph:remove_redundant_views")
def mended(original: Callable[..., Any], module: fx.GraphModule) -> None:
    """Inputs stay, as in torch 2.15.

    The pass erases unused views of another dtype, and counts what they are views of among them.
    """
    graph = module.graph
    with graph.inserting_before(next(iter(graph.find_nodes(op="output")))):
        uses = [
            graph.call_function(torch.ops.aten.alias.default, (node,))
            for node in graph.find_nodes(op="placeholder")
        ]
    original(module)
    for use in uses:
        graph.erase_node(use)


BUG = KnownBug(
    "erased-input",
    "Inductor erases an input whose only use, a view of another dtype, was folded away",
    "",
    program_of(
        """
        v0 = aten.view.dtype(x0, torch.int32)
        v1 = aten.mul.Scalar(v0, 0)
        return (v1,)
        """,
        view(2),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=views_dtype,
    rank=580,
)
