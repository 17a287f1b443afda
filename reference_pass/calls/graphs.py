"""Whole graphs: new modules for them, and the nodes that nothing needs."""

from __future__ import annotations

from torch import fx
from torch._ops import OpOverload
from torch.fx._lazy_graph_module import _LazyGraphModule

from aliasproof.reference_pass.calls.nested import graphs_called
from aliasproof.reference_pass.calls.operator_forms import aten, facts
from aliasproof.reference_pass.calls.storages import same_view


def with_graph(graph_module: fx.GraphModule, graph: fx.Graph) -> fx.GraphModule:
    """A graph module with the attributes of another one, and a new graph.

    Its code is generated when it is first called or read. So a module between two passes has none.
    """
    return _LazyGraphModule(graph_module, graph)


def copied(graph_module: fx.GraphModule) -> fx.GraphModule:
    """A graph module with a copy of the graph, and the same attributes."""
    graph = fx.Graph()
    output = graph.output(graph.graph_copy(graph_module.graph, {}))
    output.meta = dict(graph_module.graph.output_node().meta)
    return with_graph(graph_module, graph)


def has_effect(node: fx.Node) -> bool:
    """True if a node must stay although nothing uses it."""
    op = node.target
    if isinstance(op, OpOverload) and (facts(op).random or not op._schema.returns):
        return True
    if node.is_impure():  # FX knows other calls with effects, such as `print`
        return True
    calls = [call for body in graphs_called(node).values() for call in body.graph.nodes]
    return any(has_effect(call) for call in calls if call.op.startswith("call_"))


def erase_dead(graph: fx.Graph) -> None:
    """Erase the nodes that nothing uses and that have no effect.

    `Graph.eliminate_dead_code` also enters the bodies of control flow calls, which the caller of
    the pass still has, and erases `x.add_(1)` there: it assumes that methods are pure.
    """
    for node in reversed(graph.nodes):
        if not node.users and not has_effect(node):
            graph.erase_node(node)


def erase_self_copies(graph: fx.Graph) -> None:
    """(5) Erase each copy_ of data that is at its destination already."""
    # At the end: only then is it known which results were written into inputs.
    for node in list(graph.nodes):
        if node.target is not aten.copy_.default:
            continue
        destination, source = node.args[:2]
        assert isinstance(destination, fx.Node)
        assert isinstance(source, fx.Node)
        if same_view(destination.meta["val"], source.meta["val"]):
            node.replace_all_uses_with(destination)
            graph.erase_node(node)
