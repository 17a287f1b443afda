"""Training: AOTAutograd is handed a graph without mutation, and what it left out comes after it.

    def program(x, w):                     pure graph:  x1 = add(x, 1); y = mul(x1, w)
        x.add_(1)
        return x * w, x[0]                 epilogue:    copy_(x, x1); v = select(x, 0, 0)

The captured graph is functionalized as autograd sees it (`history`). What has no mutation and
returns no views is differentiated. The epilogue runs after it, in eager, as part of the program:
so autograd gives each input its new history, and each view its base.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._functorch._aot_autograd.descriptors import (
    AOTInput,
    BufferAOTInput,
    ParamAOTInput,
    PlainAOTInput,
)
from torch._higher_order_ops.base_hop import BaseHOP
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils import _pytree as pytree

from aliasproof.reference_pass.alias_analysis import Storages, storage_of
from aliasproof.reference_pass.copied_operands import Layout
from aliasproof.reference_pass.emission import checkpoint_tags
from aliasproof.reference_pass.functionalize import RULES, has_effect
from aliasproof.reference_pass.graph_copies import with_graph
from aliasproof.reference_pass.history import (
    HAS_GRADIENT,
    LostHistory,
    differentiable_form,
    of_as_strided,
    of_detach,
)
from aliasproof.reference_pass.liveness import is_view
from aliasproof.reference_pass.nested import nodes_in, on_values, tensors_in
from aliasproof.reference_pass.operator_forms import (
    EPILOGUE,
    aten,
    bind,
    facts,
    on_copies,
    returned_and_written,
    writes,
)
from aliasproof.reference_pass.regions import overlaps_itself
from aliasproof.reference_pass.views import INVERSES

# Functionalization as autograd sees a program.
TRAINING = replace(
    RULES,
    inverses={
        **INVERSES,
        aten.detach.default: of_detach,
        aten.as_strided.default: of_as_strided,
    },
    functional_form=differentiable_form,
    detaches=True,
)


# --- which graphs ---------------------------------------------------------------------------------


def may_write(graph_module: fx.GraphModule) -> bool:
    """True unless it is known that a graph writes no tensor.

    Dynamo has run its graph on fakes, and each write counts as a new version of the fake that it
    wrote. Calls of ATen operators say what they write.
    """
    nodes = _calls(graph_module)
    if all(isinstance(node.target, OpOverload) for node in nodes):
        return any(writes(node.target) for node in nodes)
    values = [node.meta.get("example_value", _UNKNOWN) for node in nodes]
    tensors = tensors_in([node.meta.get("example_value") for node in graph_module.graph.nodes])
    return any(value is _UNKNOWN for value in values) or any(x._version for x in tensors)


def returns_lazy_bits(graph_module: fx.GraphModule) -> bool:
    """True if an output may have the lazy conjugate or negative bit: no result of AOTAutograd has.

    Without the values of Dynamo, any call that sets such a bit counts.
    """
    output = graph_module.graph.output_node()
    values = [node.meta.get("example_value", _UNKNOWN) for node in output.all_input_nodes]
    if any(value is _UNKNOWN for value in values):
        targets = {node.target for node in graph_module.graph.nodes}
        return not targets.isdisjoint((aten._conj.default, aten._neg_view.default))
    return any(tensor.is_conj() or tensor.is_neg() for tensor in tensors_in(values))


def writes_plainly(graph_module: fx.GraphModule) -> bool:
    """True if AOTAutograd is known to functionalize a graph of Dynamo correctly.

    Each tensor that is written is seen in one way alone, and is no input that requires a gradient:
    the statistics of a batch norm, a counter, the operand of `relu(inplace=True)`.
    """
    nodes = graph_module.graph.nodes
    if any("example_value" not in node.meta for node in _calls(graph_module)):
        return False  # it is not known what is written
    is_special = returns_lazy_bits(graph_module) or restrides(graph_module)
    # A checkpoint computes again what a later write has changed.
    if is_special or any(isinstance(node.target, HigherOrderOperator) for node in nodes):
        return False
    tensors = tensors_in([node.meta.get("example_value") for node in nodes])
    if any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors)):
        return False  # of `vmap`: it has no storage
    storages = Storages()
    seen: dict[int, set[tuple[object, ...]]] = {}
    written: set[int] = set()
    for node in nodes:
        for tensor in tensors_in(node.meta.get("example_value")):
            geometry = storages.geometry(tensor)
            seen.setdefault(geometry.storage, set()).add(geometry.key)
            if tensor._version:
                written.add(geometry.storage)
                is_graded = node.op == "placeholder" and tensor.requires_grad
                if is_graded or overlaps_itself(geometry.region):
                    return False
    return all(len(seen[storage]) == 1 for storage in written)


def restrides(graph_module: fx.GraphModule) -> bool:
    """True if a graph of Dynamo calls `as_strided`, whose gradient depends on locations."""
    targets = [node.target for node in graph_module.graph.nodes]
    names = [str(getattr(target, "__name__", target)) for target in targets]
    return any(name.startswith("as_strided") for name in names)


def calls_regions(graph_module: fx.GraphModule) -> bool:
    """True if a graph of Dynamo calls graphs by operators that no trace under autograd runs."""
    ops = torch.ops.higher_order
    regions = (BaseHOP, type(ops.invoke_subgraph), type(ops.hints_wrapper), type(ops.strict_mode))
    return any(isinstance(node.target, regions) for node in graph_module.graph.nodes)


def is_traced_whole(graph_module: fx.GraphModule) -> bool:
    """True if a trace shows all that autograd does with a graph of Dynamo.

    It does not show the backward of an `autograd.Function`, or of control flow, or a hook.
    """
    targets = [node.target for node in graph_module.graph.nodes]
    return _HOOKS.isdisjoint(targets) and not any(
        isinstance(target, HigherOrderOperator) and target not in _UNFOLDED for target in targets
    )


def _calls(graph_module: fx.GraphModule) -> list[fx.Node]:
    nodes = graph_module.graph.nodes
    return [node for node in nodes if node.op.startswith("call_") and node.target not in _SWITCHES]


_UNKNOWN = object()
_SWITCHES = {torch._C._set_grad_enabled, operator.getitem}
_UNFOLDED = {torch.ops.higher_order.tag_activation_checkpoint}
_HOOKS = {"register_hook", "register_post_accumulate_grad_hook"}


# --- two graphs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GraphParts:
    """A functional graph in two: `pure` returns `values`, which `epilogue` takes after the inputs.

    `overwritten` are the inputs and attributes that the epilogue writes, as AOTAutograd calls them.
    """

    pure: fx.GraphModule
    epilogue: fx.GraphModule
    overwritten: frozenset[AOTInput]

    @property
    def has_values(self) -> bool:
        """True if the pure graph computes something."""
        return any(node.op == "call_function" for node in self.pure.graph.nodes)

    def pure_on_copies(self) -> fx.GraphModule:
        """The pure graph, which copies the inputs that are overwritten before it uses them."""
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        names = _aot_names(self.pure.graph)
        for node in names:
            copies[node] = graph.node_copy(node)
        for node in names:
            if names[node] & self.overwritten:
                copies[node] = graph.call_function(aten.clone.default, (copies[node],))
        for node in self.pure.graph.nodes:
            if node not in copies:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        return with_graph(self.pure, graph)


def _aot_names(graph: fx.Graph) -> dict[fx.Node, frozenset[AOTInput]]:
    """What AOTAutograd may call each input and attribute of a graph."""
    inputs = enumerate(graph.find_nodes(op="placeholder"))
    names: dict[fx.Node, frozenset[AOTInput]] = {
        node: frozenset({PlainAOTInput(index)}) for index, node in inputs
    }
    for node in graph.find_nodes(op="get_attr"):
        target = str(node.target)
        names[node] = frozenset({ParamAOTInput(target), BufferAOTInput(target)})
    return names


def split(functional: fx.GraphModule) -> GraphParts:
    """The graph without mutation, and the epilogue."""
    splitting = _Splitting(functional)
    return GraphParts(splitting.pure(), splitting.epilogue(), splitting.overwritten())


def refuse_flattened(captured: fx.GraphModule, functional: fx.GraphModule) -> None:
    """Raise `LostHistory` if an input with a gradient is written together with memory around it."""
    inputs = functional.graph.find_nodes(op="placeholder")
    given = dict(zip(inputs, captured.graph.find_nodes(op="placeholder"), strict=True))
    for node in functional.graph.find_nodes(op="call_function", target=aten.copy_.default):
        destination: Any = node.args[0]
        is_flattened = False
        while destination not in given and destination.op == "call_function":
            is_flattened = is_flattened or destination.target is aten.as_strided.default
            destination = destination.args[0]
        if is_flattened and destination in given and given[destination].meta[HAS_GRADIENT]:
            raise LostHistory(f"memory around {destination} is written, which has a gradient")


class _Splitting:
    """What belongs to the epilogue: writes, and views of inputs and of values, as far as used."""

    def __init__(self, functional: fx.GraphModule) -> None:
        self.functional = functional
        nodes = list(functional.graph.nodes)
        self.roots = {node for node in nodes if node.op in ("placeholder", "get_attr")}
        self.writes = [node for node in nodes if node.target in EPILOGUE]
        (self.output,) = functional.graph.find_nodes(op="output")
        self.values: dict[fx.Node, None] = {}
        self.later = set(self.writes)
        for node in (*self.writes, self.output):
            for operand in nodes_in((node.args, node.kwargs)):
                self._need(operand)

    def _need(self, node: fx.Node) -> None:
        """The epilogue uses a node: as a value, or as a view that it takes itself."""
        if node in self.roots or node in self.later or node in self.values:
            return
        is_taken = is_view(node) and node.target is not operator.getitem
        if is_taken or not tensors_in(node.meta["val"]):
            self.later.add(node)
            for operand in node.all_input_nodes:
                self._need(operand)
        else:
            self.values[node] = None

    def pure(self) -> fx.GraphModule:
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in self.functional.graph.nodes:
            if node.target in EPILOGUE:
                copies[node] = copies[node.args[0]]
            elif node.op != "output":
                copies[node] = graph.node_copy(node, copies.__getitem__)
                copies[node].meta = checkpoint_tags(node)
                copies[node].target = _DIFFERENTIABLE.get(node.target, node.target)
        graph.output(tuple(copies[value] for value in self.values))
        graph.eliminate_dead_code(has_effect)
        return with_graph(self.functional, graph)

    def epilogue(self) -> fx.GraphModule:
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in self.functional.graph.nodes:
            if node in self.roots:
                copies[node] = graph.node_copy(node)
        for value in self.values:
            copies[value] = graph.placeholder(value.name)
        written: dict[fx.Node, fx.Node] = {}  # inputs as they can be written
        for node in self.functional.graph.nodes:
            if node in self.later:
                destination = node.args[0] if node in self.writes else None
                if isinstance(destination, fx.Node) and node.target is aten.copy_.default:
                    self._writable(destination, graph, copies, written)
                    operands = {**copies, destination: written[destination]}
                    graph.node_copy(node, operands.__getitem__)
                    copies[node] = copies.get(destination, written[destination])
                    continue
                copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(on_values(self.output.args[0], copies.__getitem__))
        return with_graph(self.functional, graph)

    def _writable(
        self,
        node: fx.Node,
        graph: fx.Graph,
        copies: dict[fx.Node, fx.Node],
        written: dict[fx.Node, fx.Node],
    ) -> None:
        """Take an input, or a view of it, once more, as it can be written."""
        if node in written:
            return
        if node in self.roots:
            written[node] = graph.call_function(writable, (copies[node],))
            return
        for operand in node.all_input_nodes:
            self._writable(operand, graph, copies, written)
        written[node] = graph.node_copy(node, {**copies, **written}.__getitem__)

    def overwritten(self) -> frozenset[AOTInput]:
        destinations = [node.args[0] for node in self.writes if node.target is aten.copy_.default]
        storages = {storage_of(node.meta["val"]) for node in destinations}
        names = _aot_names(self.functional.graph)
        written = (
            names[node]
            for node in names
            if storages & {storage_of(tensor) for tensor in tensors_in(node.meta["val"])}
        )
        return frozenset[AOTInput]().union(*written)


def with_contents(layout: torch.Tensor, contents: torch.Tensor) -> torch.Tensor:
    """The functional `copy`: new memory with the layout of one tensor, the contents of another."""
    memory = torch.empty_strided(
        layout.shape, layout.stride(), dtype=layout.dtype, device=layout.device
    )
    return memory.copy_(contents)


def on_new_tensors(
    op: OpOverload, *args: Any, layouts: Sequence[Layout] | None = None, **kwargs: Any
) -> tuple[Any, ...]:
    """`on_copies`, with copies that are no views: AOTAutograd functionalizes the call."""
    given = bind(op, args, kwargs)
    if layouts is not None and len({layout[0] for layout in layouts}) < len(layouts):
        raise LostHistory(f"{op} gets tensors that share memory, and is differentiated")
    for name in given.keys() & {*facts(op).writes}:
        given[name] = pytree.tree_map_only(torch.Tensor, lambda x: with_contents(x, x), given[name])
    return returned_and_written(op, given)


# What autograd, or AOTAutograd, cannot do, and what does the same.
_DIFFERENTIABLE: dict[Any, Callable[..., Any]] = {
    aten.copy.default: with_contents,
    on_copies: on_new_tensors,
}


def writable(tensor: torch.Tensor) -> torch.Tensor:
    """An input as the epilogue may write it.

    A leaf that requires a gradient keeps its history: all writes to it are hidden from autograd.
    """
    return tensor.detach() if tensor.requires_grad and tensor.is_leaf else tensor


# --- the call -------------------------------------------------------------------------------------


class Trained:
    """A compiled pure graph, and the epilogue; None if there is none."""

    def __init__(
        self, compiled: Callable[..., Any] | None, epilogue: fx.GraphModule | None
    ) -> None:
        self.compiled, self.epilogue = compiled, epilogue

    def __call__(self, inputs: list[Any]) -> Any:
        """Run on these inputs, and clear the list."""
        given = list(inputs)
        inputs.clear()
        values: Sequence[Any] = () if self.compiled is None else self.compiled(*given)
        return values if self.epilogue is None else self.epilogue(*given, *values)


Runnable: TypeAlias = Callable[[list[Any]], Any]  # takes a list of inputs, and clears it
# AOTAutograd on a graph without mutation, its inputs, and those inputs that the caller overwrites.
Differentiate: TypeAlias = Callable[
    [fx.GraphModule, Sequence[Any], frozenset[AOTInput]], Callable[..., Any]
]
