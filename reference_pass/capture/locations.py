"""Which graphs depend on where their inputs are in their storages."""

from __future__ import annotations

from typing import Any

from torch import fx
from torch._ops import OpOverload, OpOverloadPacket

from aliasproof.reference_pass.calls import operand_reads
from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.operator_forms import aten, is_opaque
from aliasproof.reference_pass.capture.control_flow_calls import CONTROL_FLOW
from aliasproof.reference_pass.eager.operand_access import NEEDS_ALIGNMENT


def depends_on_location(graph_module: fx.GraphModule) -> bool:
    """True if a graph may compute another result when an input is elsewhere in its storage."""
    return any(_depends(node, node.target) for node in graph_module.graph.nodes)


def _depends(node: fx.Node, target: Any) -> bool:
    if node.op in ("call_module", "call_method"):
        return node.op == "call_module" or target in _ASKS_LOCATION
    if node.op != "call_function":
        return False
    # A packet is the target in a graph of Python calls. A custom operator has one overload.
    if isinstance(target, OpOverloadPacket):
        return all(_depends(node, getattr(target, name)) for name in target.overloads())
    if target is on_copies:
        return is_opaque(node.args[0]) or "layouts" in node.kwargs
    if target in CONTROL_FLOW or is_opaque(target):
        return True
    return isinstance(target, OpOverload) and (
        operand_reads.depends_on_location(target)
        or target in NEEDS_ALIGNMENT
        or target.overloadpacket in _OTHERS
    )


# Methods of a tensor, in a graph of Python calls. The trace replaces them by their results.
_ASKS_LOCATION = {"storage_offset", "untyped_storage", "storage", "data_ptr"}
_OTHERS = {
    *(aten.as_strided_, aten.set_, aten.resize_, aten.resize_as_, aten.is_set_to),
    *(aten.storage_offset, aten.sym_storage_offset),
}
