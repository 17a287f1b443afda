"""Training: AOTAutograd gets a graph without mutation, and the rest of the program runs after it.

    def program(x, w):                     pure graph:  x1 = add(x, 1); y = mul(x1, w)
        x.add_(1)
        return x * w, x[0]                 epilogue:    copy_(x, x1); v = select(x, 0, 0)

The captured graph is functionalized as autograd sees it (`eager.history`). The part that does not
mutate and returns no views is differentiated. The epilogue runs after it, in eager, as part of the
program: so autograd gives each input its new history, and each view its base.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._functorch._aot_autograd.descriptors import (
    AOTInput,
    BufferAOTInput,
    ParamAOTInput,
    PlainAOTInput,
)
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import get_gradient_edge

from aliasproof.reference_pass.backend.calls_on_copies import opaque_call
from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.emission import checkpoint_tags
from aliasproof.reference_pass.calls.fake_inputs import attribute
from aliasproof.reference_pass.calls.graphs import erase_dead, with_graph
from aliasproof.reference_pass.calls.nested import nodes_in, on_values, tensors_in
from aliasproof.reference_pass.calls.operator_forms import EPILOGUE, WRITTEN_IN_PLACE, aten
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.capture.autograd_notes import saves_for_trace_alone
from aliasproof.reference_pass.eager.history import (
    COMPARISONS,
    HAS_GRADIENT,
    PARTS,
    LostHistory,
    compared,
    differentiable_form,
    of_as_strided,
    of_part,
    overwriting,
    part_to_write,
    store,
    with_history,
    with_written,
)
from aliasproof.reference_pass.liveness import is_view
from aliasproof.reference_pass.rules import RULES
from aliasproof.reference_pass.semantics import never
from aliasproof.reference_pass.views import INVERSES

# Functionalization as autograd sees a program.
TRAINING = replace(
    RULES,
    inverses={
        **INVERSES,
        **{view: partial(of_part, view) for view in PARTS},
        aten.detach.default: lambda emit, parent, new, args: emit.call(with_history, parent(), new),
        aten.as_strided.default: of_as_strided,
    },
    functional_form=differentiable_form,
    overwrites=never,  # eager propagates zeros to the tensors that the old contents come from
    detaches=True,
)


# --- two graphs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GraphParts:
    """A functional graph in two: `pure` returns `values`, which `epilogue` takes after the inputs.

    `overwritten` are the inputs and attributes that the epilogue writes, as AOTAutograd names them.
    """

    pure: fx.GraphModule
    epilogue: fx.GraphModule
    overwritten: frozenset[AOTInput]

    def pure_on_copies(self, fakes: Sequence[Any]) -> fx.GraphModule:
        """The pure graph, which copies the inputs that are overwritten before it uses them.

        `fakes` are the inputs. If the graph takes views of the whole storage of an input, that
        storage is copied.
        """
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        given = _given(self.pure.graph, fakes)
        names = _aot_names(self.pure.graph)
        for node in names:
            copies[node] = graph.node_copy(node)
        for node in names:
            if names[node] & self.overwritten:
                # Not a clone: that has other strides if there are gaps.
                copy: Callable[..., Any] = with_contents
                operands: tuple[Any, ...] = copies[node], copies[node]
                if any(user.target is aten.as_strided.default for user in node.users):
                    copy, operands = _copy_of_storage, (copies[node], *_storage_size(given[node]))
                copies[node] = graph.call_function(copy, operands)
        for node in self.pure.graph.nodes:
            if node not in copies:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        return with_graph(self.pure, graph)


def _aot_names(graph: fx.Graph) -> dict[fx.Node, frozenset[AOTInput]]:
    """The names that AOTAutograd may use for each input and attribute of a graph."""
    inputs = enumerate(graph.find_nodes(op="placeholder"))
    names: dict[fx.Node, frozenset[AOTInput]] = {
        node: frozenset({PlainAOTInput(index)}) for index, node in inputs
    }
    for node in graph.find_nodes(op="get_attr"):
        target = str(node.target)
        names[node] = frozenset({ParamAOTInput(target), BufferAOTInput(target)})
    return names


def split(functional: fx.GraphModule, fakes: Sequence[Any]) -> GraphParts:
    """The graph without mutation, and the epilogue. `fakes` are its inputs."""
    _write_unrecorded(functional.graph, fakes)
    splitting = _Splitting(functional)
    return GraphParts(splitting.pure(), splitting.epilogue(), splitting.overwritten())


def _write_unrecorded(graph: fx.Graph, fakes: Sequence[Any]) -> None:
    """Let the epilogue write without a record what the program has written without a record.

    A leaf can be written only in this way, because autograd forbids other writes. For other such
    inputs, the new contents have the history of the old ones (`with_history`). As an output of the
    differentiable graph, they would give the input a gradient of zeros, because autograd cannot see
    that nothing reads them; in eager it has none. And the `copy_` would be added to its history.
    """
    given = _given(graph, fakes)
    for node in graph.find_nodes(op="call_function", target=aten.copy_.default):
        destination, contents = node.args
        root = _root(destination)
        is_leaf = given[root].requires_grad and given[root].is_leaf
        if is_leaf or _keeps_history(contents, root):
            for operand in (destination, contents):
                with graph.inserting_before(node):
                    detached = graph.call_function(aten.detach.default, (operand,))
                detached.meta["val"] = operand.meta["val"]
                node.replace_input_with(operand, detached)


def _given(graph: fx.Graph, fakes: Sequence[Any]) -> dict[fx.Node, Any]:
    """The tensor of each input and attribute of a graph; `fakes` are those of its inputs."""
    given = dict(zip(graph.find_nodes(op="placeholder"), fakes, strict=True))
    return given | {node: attribute(node) for node in graph.find_nodes(op="get_attr")}


def _keeps_history(contents: Any, root: fx.Node) -> bool:
    """True if new contents have the history of an input, whatever their layout."""
    node, is_kept = contents, False
    while node.op == "call_function":
        if node.target is with_history:
            node, is_kept = node.args[0], True
        elif node.target is aten.copy.default and not node.meta.get(WRITTEN_IN_PLACE):
            node = node.args[1]
        elif is_view(node):
            node = node.args[0]
        else:
            return False
    return is_kept and node is root


def _root(node: Any) -> fx.Node:
    """The input, or the new tensor, that a node is a view of."""
    while node.op == "call_function" and is_view(node):
        node = node.args[0]
    root: fx.Node = node
    return root


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


class _OnFakes(fx.Interpreter):
    """Runs a graph on fakes. Its attributes are fakes, too, since the graph may write them."""

    def __init__(self, graph_module: fx.GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(graph_module)
        self.mode = mode

    def fetch_attr(self, target: str) -> Any:
        """The fake of an attribute; the same one each time."""
        value = super().fetch_attr(target)
        if not isinstance(value, torch.Tensor):
            return value
        return self.mode.from_tensor(value, static_shapes=True)


def require_saved_unwritten(
    graph_module: fx.GraphModule, fakes: Sequence[Any], mode: FakeTensorMode
) -> None:
    """Raise `LostHistory` if a backward pass would fail because a saved tensor was overwritten.

    A graph without mutation has no versions of tensors, so it would return gradients instead.
    """
    edges = [get_gradient_edge(fake) for fake in tensors_in(fakes) if fake.requires_grad]
    try:
        # The graph may switch gradients on or off.
        with saves_for_trace_alone(), torch.set_grad_enabled(torch.is_grad_enabled()):
            left = tensors_in([_OnFakes(graph_module, mode).run(*fakes), fakes])
        ends = list({id(one): one for one in left if one.requires_grad and one.grad_fn}.values())
        torch.autograd.grad(ends, edges, list(map(torch.ones_like, ends)), allow_unused=True)
    except Exception as error:  # the trace reports anything else that torch cannot do
        if "modified by an inplace operation" in str(error):
            raise LostHistory(str(error)) from error


class _Splitting:
    """The part for the epilogue: writes, and those views of inputs and values that it uses."""

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
        """Note a node that the epilogue uses: as a value, or as a view that it takes itself."""
        if node in self.roots or node in self.later or node in self.values:
            return
        is_taken = is_view(node) and node.target not in (operator.getitem, with_history)
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
                operands = {**copies, **_parts_to_write(node, graph, copies)}
                copies[node] = graph.node_copy(node, operands.__getitem__)
                copies[node].meta = checkpoint_tags(node)
                _differentiable(node, copies[node])
        # What the program detaches has no gradient. A gradient of zeros would differ: 0 / 0 is NaN.
        detach = aten.detach.default
        graph.output(
            tuple(
                copies[value]
                if self._has_gradient(value)
                else graph.call_function(detach, (copies[value],))
                for value in self.values
            )
        )
        erase_dead(graph)
        return with_graph(self.functional, graph)

    def _has_gradient(self, node: fx.Node) -> bool:
        """True if the epilogue returns or writes a value, or a view of it, without `detach`."""
        return any(
            user is self.output
            or user.target in EPILOGUE
            or (
                user in self.later
                and user.target is not aten.detach.default
                and self._has_gradient(user)
            )
            for user in node.users
        )

    def epilogue(self) -> fx.GraphModule:
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in self.functional.graph.nodes:
            if node in self.roots:
                copies[node] = graph.node_copy(node)
        for value in self.values:
            copies[value] = graph.placeholder(value.name)
        for node in self.functional.graph.nodes:
            if node in self.later:
                copies[node] = graph.node_copy(node, copies.__getitem__)
                if node.target is aten.copy_.default:
                    copies[node].target = store
        graph.output(on_values(self.output.args[0], copies.__getitem__))
        return with_graph(self.functional, graph)

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


def _parts_to_write(
    call: fx.Node, graph: fx.Graph, copies: dict[fx.Node, fx.Node]
) -> dict[fx.Node, fx.Node]:
    """The operand that an in-place call writes, keyed by the view of the functional graph."""
    position = 1 if call.target in (on_copies, with_written) else 0
    if position == 0 and not call.meta.get(WRITTEN_IN_PLACE):
        return {}

    def taken(node: fx.Node) -> fx.Node:
        if not is_view(node) or not isinstance(node.target, OpOverload):
            return copies[node]
        parent: Any = node.args[0]
        operands = {**copies, parent: taken(parent)}
        if node.target not in PARTS and operands[parent] is copies[parent]:
            return copies[node]
        copy = graph.node_copy(node, operands.__getitem__)
        if node.target in PARTS:
            copy.target, copy.args = part_to_write, (node.target, *copy.args)
        return copy

    operands = nodes_in(call.args[position : position + 1])
    return {node: taken(node) for node in operands if is_view(node)}


def with_contents(
    layout: torch.Tensor, contents: torch.Tensor, strides: Sequence[int] | None = None
) -> torch.Tensor:
    """The functional `copy`: new memory with the layout of one tensor, the contents of another.

    `strides` are those of the layout in eager. The fakes of AOTAutograd may have them wrong.
    """
    memory = torch.empty_strided(
        layout.shape, strides or layout.stride(), dtype=layout.dtype, device=layout.device
    )
    return memory.copy_(contents)


def _copy_of_storage(tensor: torch.Tensor, count: int, offset: int) -> torch.Tensor:
    """The tensor in a copy of its whole storage, of which the graph takes other views."""
    whole = tensor.as_strided((count,), (1,), 0).clone()
    return whole.as_strided(tensor.shape, tensor.stride(), offset)


def _storage_size(tensor: torch.Tensor) -> tuple[int, int]:
    """The elements of a storage, and those before a tensor, which AOTAutograd's fakes lack."""
    count: Any = tensor.untyped_storage().nbytes() // tensor.itemsize
    offset: Any = tensor.storage_offset()
    if isinstance(count, torch.SymInt) or isinstance(offset, torch.SymInt):  # of our trace
        raise LostHistory("a storage of symbolic size is written while autograd saves a part of it")
    return count, offset


def overwritten_with(
    old: torch.Tensor, contents: torch.Tensor, strides: Sequence[int] | None = None
) -> torch.Tensor:
    """The functional `copy` for a `copy_` of the program."""
    return overwriting(old, with_contents(old, contents, strides))


def _differentiable(node: fx.Node, copy: fx.Node) -> None:
    """Let the copy of a node in the pure graph call an operator that AOTAutograd supports."""
    op: Any = node.target
    in_place = node.meta.get(WRITTEN_IN_PLACE)
    if op is aten.copy.default:
        copy.target = overwritten_with if in_place else with_contents
        layout: Any = node.args[0]
        strides = layout.meta["val"].stride()
        if all(isinstance(stride, int) for stride in strides):  # others are symbols of our trace
            copy.args = (*copy.args, strides)
    elif op is on_copies:
        copy.target = opaque_call
    elif in_place and op in COMPARISONS:
        copy.target, copy.args = compared, (op, *copy.args)


# --- the call -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A compiled pure graph, and the epilogue; None if there is none.

    `grad` says whether gradients are on after the call; None if the graph does not switch them.
    """

    compiled: Callable[..., Any] | None
    epilogue: fx.GraphModule | None
    grad: bool | None = None

    def __call__(self, inputs: list[Any]) -> Any:
        """Run on these inputs, and clear the list."""
        given = list(inputs)
        inputs.clear()
        if self.epilogue is None:
            return () if self.compiled is None else self.compiled(*given)
        # Values computed while gradients are off have no history in these graphs.
        with torch.set_grad_enabled(self.grad is not None or torch.is_grad_enabled()):
            values: Sequence[Any] = () if self.compiled is None else self.compiled(*given)
            results = self.epilogue(*given, *values)
        if self.grad is not None:
            torch._C._set_grad_enabled(self.grad)
        return results


def grad_at_end(graph_module: fx.GraphModule) -> bool | None:
    """Whether gradients are on after a graph of Dynamo; None if it does not switch them."""
    switch = torch._C._set_grad_enabled
    switches = graph_module.graph.find_nodes(op="call_function", target=switch)
    return bool(switches[-1].args[0]) if switches else None


Runnable: TypeAlias = Callable[[list[Any]], Any]  # takes a list of inputs, and clears it
# AOTAutograd on a graph without mutation, its inputs, and those inputs that the caller overwrites.
Differentiate: TypeAlias = Callable[
    [fx.GraphModule, Sequence[Any], frozenset[AOTInput]], Callable[..., Any]
]
