"""Graphs that are functional already, such as those of AOTAutograd.

They stay as they are, with the values of the analysis. So no node runs on fakes again.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from aliasproof.reference_pass.alias_analysis import Analysis
from aliasproof.reference_pass.calls.graphs import erase_dead, with_graph
from aliasproof.reference_pass.calls.invariants import is_functional
from aliasproof.reference_pass.calls.metadata import note_value
from aliasproof.reference_pass.calls.operand_strides import note_strides
from aliasproof.reference_pass.calls.operator_forms import aten, writes
from aliasproof.reference_pass.calls.regions import Size
from aliasproof.reference_pass.calls.storages import storage_of, value_of


def unchanged(captured: fx.GraphModule, analysis: Analysis) -> fx.GraphModule | None:
    """A copy of the captured graph, if it writes nothing except inputs at its end; else None."""
    written = {node.target for node in captured.graph.nodes if writes(node.target)}
    if not written <= {aten.copy_.default}:
        return None
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(captured.graph, copies))
    for node, new in copies.items():
        note_value(new, analysis.value(node))
        if new.op == "call_function":
            note_strides(new, _strides)
    made = with_graph(captured, graph)
    if is_functional(made) is not None or _reads_what_it_wrote(made.graph):
        return None
    erase_dead(made.graph)
    return made


def _strides(operand: fx.Node) -> Sequence[Size] | None:
    value = value_of(operand)
    return value.stride() if isinstance(value, torch.Tensor) else None


def _reads_what_it_wrote(graph: fx.Graph) -> bool:
    """True if a `copy_` of the epilogue reads a storage that one of them writes."""
    epilogue = [tuple(map(value_of, node.args[:2])) for node in graph.nodes if writes(node.target)]
    written = {storage_of(destination) for destination, _ in epilogue}
    return any(storage_of(source) in written for _, source in epilogue)
