"""A graph of a model that differs, as a `StoredGraph`: with its inputs, and the modes around it."""

from __future__ import annotations

import torch
from torch import fx

from aliasproof.formats.stored_graph import StoredGraph
from aliasproof.ir.values import STATIC
from aliasproof.running_model.checked_graph import FoundDifference
from aliasproof.running_model.graph_call import Modes
from aliasproof.running_model.lifted_graph import snapshot

_ENTER, _EXIT = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast


def stored_graph(found: FoundDifference) -> StoredGraph:
    """What is stored of a difference."""
    module = in_modes(snapshot(found.graph.module), found.call.modes)
    about = {
        "target": found.graph.target.name,
        "reduced through": found.graph.target.reducing(found.direction),
        "direction": found.direction,
        "graph": f"{found.graph.number} ({found.graph.where})",
        "difference": f"{found.violation.oracle}: {found.violation.describe()}",
        "torch": str(torch.__version__),
    }
    _mark_static(found)
    return StoredGraph(module, found.call.given, about)


def _mark_static(found: FoundDifference) -> None:
    """Mark the inputs that Dynamo took for static, such as buffers, and those that it captured."""
    inputs = found.graph.module.graph.find_nodes(op="placeholder")
    for index, (node, value) in enumerate(zip(inputs, found.call.given, strict=True)):
        known = node.meta.get("tensor_dict", {}).get(STATIC)
        static = "unguarded" if index < len(found.graph.captured) else known
        if static is not None:
            setattr(value, STATIC, static)


def in_modes(module: fx.GraphModule, modes: Modes) -> fx.GraphModule:
    """The graph with calls that enter the modes at its begin, and leave them at its end."""
    graph = module.graph
    body = next(node for node in graph.nodes if node.op != "placeholder")
    entered = []
    with graph.inserting_before(body):
        if not modes.gradients or modes.inference:
            graph.call_function(torch._C._set_grad_enabled, (False,))
        for device, dtype in modes.autocast.items():
            entered.append(graph.call_function(_ENTER, (device, dtype, True, None)))
    with graph.inserting_before(graph.output_node()):
        for mode in reversed(entered):
            graph.call_function(_EXIT, (mode,))
        if not modes.gradients or modes.inference:
            graph.call_function(torch._C._set_grad_enabled, (True,))
    module.recompile()
    return module
