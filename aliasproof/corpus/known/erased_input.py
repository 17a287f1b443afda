"""Inductor removes an input from the graph when a view of another dtype is no longer used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from aliasproof.corpus.inductor_passes import replaced
from aliasproof.corpus.known_bug import KnownBug, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """Inputs stay, as in torch 2.15.

    The pass erases unused views of another dtype, and counts what they are views of among them.
    """
    with replaced("fx_passes.joint_graph", "remove_redundant_views", _keeping_inputs):
        yield


def _keeping_inputs(original: Callable[..., Any], module: fx.GraphModule) -> None:
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
    written(
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
    plausible=lambda program: any("view.dtype" in call.op for call in program.instructions),
)
