"""Graphs of ATen calls: how to recognize them, and calls that hide what they write.

The passes take a graph of ATen calls as it is. Any other graph is traced (`capture`).
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch.fx.experimental.sym_node import METHOD_TO_OPERATOR
from torch.utils._pytree import tree_leaves

from aliasproof.reference_pass.alias_analysis import Analysis
from aliasproof.reference_pass.calls.copied_operands import note_strides, on_copies
from aliasproof.reference_pass.calls.fake_inputs import refuse_without_regions
from aliasproof.reference_pass.calls.graphs import copied, erase_dead
from aliasproof.reference_pass.calls.invariants import is_functional
from aliasproof.reference_pass.calls.metadata import note_value
from aliasproof.reference_pass.calls.nested import graphs_called, leaves_in, nodes_in, tensors_in
from aliasproof.reference_pass.calls.operator_forms import aten, bind, unbind, writes
from aliasproof.reference_pass.calls.regions import Size
from aliasproof.reference_pass.calls.storages import storage_of, value_of
from aliasproof.reference_pass.capture.control_flow_calls import HIGHER_ORDER
from aliasproof.reference_pass.eager.other_names import called_in_eager
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.planning.opaque_calls import opaque_call

# --- recognizing a graph of ATen calls ------------------------------------------------------------
#
# Such a graph calls ATen operators, picks their results, and computes sizes. Python operators do
# the last two. On tensors, they are not ATen calls: `x[1:]` is a view, and `x += 1` is a write.


def is_aten(graph_module: fx.GraphModule, sample_args: Sequence[object] = ()) -> bool:
    """True if all calls are ATen calls, or pick their results, or are arithmetic on sizes.

    This includes the bodies of control flow, at any depth.
    The sample arguments say which inputs are tensors; without them, the metadata does.
    """
    return _other_call(graph_module, sample_args) is None


def require_aten(graph_module: fx.GraphModule, sample_args: Sequence[object] = ()) -> None:
    """Raise `Refused` for a graph with other calls."""
    if (node := _other_call(graph_module, sample_args)) is not None:
        raise Refused(f"{node.format_node()} is not an ATen call; functionalize the graph first")


def refuse_other_calls(graph_module: fx.GraphModule) -> None:
    """Raise `Refused` for a call whose reads and writes are unknown."""
    for node in graph_module.graph.nodes:
        if node.op in ("call_method", "call_module"):
            raise Refused(
                f"{node.format_node()}: a {node.op} node is not an ATen call;"
                " trace the module with make_fx first"
            )
        if node.op != "call_function":
            continue
        for leaf in leaves_in((node.args, node.kwargs)):
            refuse_without_regions(leaf)
        if not isinstance(node.target, OpOverload) and node.target not in _KNOWN_CALLS:
            raise Refused(
                f"{node.format_node()}: {node.target} is not an ATen operator, so what it reads and"
                " writes is unknown"
            )


# Functions on sizes. They take and return symbols, so they neither read nor write a tensor.
ARITHMETIC = {
    *METHOD_TO_OPERATOR.values(),  # all that a trace with symbols emits
    *(min, max, torch.sym_sum, torch.sym_int),
}
# Graphs of this pass contain `on_copies`, and `getitem` picks results; neither writes.
_KNOWN_CALLS = {on_copies, operator.getitem, *ARITHMETIC, *HIGHER_ORDER}


def _other_call(graph_module: fx.GraphModule, sample_args: Sequence[object]) -> fx.Node | None:
    tensors: dict[fx.Node, bool] = {}  # which nodes may be tensors
    given = iter(sample_args)
    node: fx.Node
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            value = next(given, node.meta.get("val", torch.Tensor))
            tensors[node] = isinstance(value, torch.Tensor) or value is torch.Tensor
        elif node.op == "get_attr":
            tensors[node] = True
        elif node.op == "call_function" and _is_call(node, tensors):
            tensors[node] = _may_be_tensor(node)
            for body in graphs_called(node).values():
                if (other := _other_call(body, ())) is not None:
                    return other
        elif node.op != "output":
            return node
    return None


def _is_call(node: fx.Node, tensors: dict[fx.Node, bool]) -> bool:
    op = node.target
    if isinstance(op, OpOverload):
        hides = op in _COMPOSITE_UPDATES and _updates(op, bind(op, node.args, node.kwargs))
        return not hides
    if op in {on_copies, opaque_call, *HIGHER_ORDER}:
        return True
    if op is not operator.getitem and op not in ARITHMETIC:
        return False
    return not any(tensors[operand] for operand in nodes_in((node.args, node.kwargs)))


def _may_be_tensor(node: fx.Node) -> bool:
    """True if a call may return one tensor, and not several results or a size."""
    if isinstance(node.target, OpOverload):
        returns = node.target._schema.returns
        return len(returns) == 1 and isinstance(returns[0].type, torch.TensorType)
    if node.target is not operator.getitem:
        return False
    call, index = node.args
    if not (isinstance(call, fx.Node) and isinstance(call.target, OpOverload)):
        return False  # a result of `on_copies`, or of a control flow call, may be a list
    returns = call.target._schema.returns
    # One list of tensors, or several results.
    return len(returns) == 1 or (
        isinstance(index, int) and isinstance(returns[index].type, torch.TensorType)
    )


# --- normal form ----------------------------------------------------------------------------------


def normalise(graph_module: fx.GraphModule) -> fx.GraphModule:
    """The graph with arguments by position where possible, and with calls that say what they write.

    Returns the given graph module if there is nothing to change, else a copy. Raises `Refused` for
    a call that hides what it writes and has no form whose schema says it.
    """
    if not any(_changed(node) for node in graph_module.graph.nodes):
        return graph_module
    made = copied(graph_module)  # the caller's graph stays as it is
    # By position, since the passes assume that the base of a view or scatter is the first argument.
    for node in made.graph.nodes:
        if (changed := _changed(node)) is not None:
            node.target, node.args, node.kwargs = changed
    return made


def replace_prims(graph: fx.Graph) -> None:
    """Let a graph call the ATen operators that its prims call in eager."""
    for node in graph.nodes:
        node.target = called_in_eager(node)


def _changed(node: fx.Node) -> tuple[OpOverload, tuple[Any, ...], dict[str, Any]] | None:
    """The call that replaces a node's call; None if there is nothing to change."""
    op = called_in_eager(node)
    # Zeros without memory, which may occur in gradients, cannot be written in place.
    op = aten.zeros.default if op is aten._efficientzerotensor.default else op
    is_other = op is not node.target
    if not isinstance(op, OpOverload) or not (is_other or op in _UPDATES or node.kwargs):
        return None
    given = bind(op, node.args, node.kwargs)
    # Such a call would look functional to every pass, and its update would be reordered or lost.
    if op in _UPDATES and _updates(op, given):
        if op is not aten.native_batch_norm.default:
            raise Refused(
                f"{node.format_node()} updates statistics, and its schema does not say so;"
                " trace with torch.backends.cudnn.flags(enabled=False)"
            )
        return aten._native_batch_norm_legit.default, *unbind(
            aten._native_batch_norm_legit.default, given
        )
    by_position = {argument.name for argument in op._schema.arguments if not argument.kwarg_only}
    is_changed = is_other or by_position & node.kwargs.keys()
    return (op, *unbind(op, given)) if is_changed else None


# --- operators whose schemas hide a mutation ------------------------------------------------------

# The name of the argument that says whether an op updates the statistics that it is given; None if
# it always does.
_UPDATES: dict[OpOverload, str | None] = {
    aten.batch_norm_update_stats.default: None,
    aten.batch_norm_gather_stats.default: None,
    aten.batch_norm_gather_stats_with_counts.default: None,
    aten.native_batch_norm.default: "training",
    aten.batch_norm.default: "training",
    aten._batch_norm_impl_index.default: "training",
    aten.cudnn_batch_norm.default: "training",
    aten.miopen_batch_norm.default: "training",
    aten.instance_norm.default: "use_input_stats",
}


# These are composites, so a trace has other calls in their place, whose schemas say it.
_COMPOSITE_UPDATES: set[object] = {
    *(aten.batch_norm.default, aten._batch_norm_impl_index.default, aten.instance_norm.default)
}


def _updates(op: OpOverload, given: dict[str, Any]) -> bool:
    statistics = (given.get("running_mean"), given.get("running_var"))
    flag = _UPDATES[op]
    return (flag is None or bool(given[flag])) and any(tensor is not None for tensor in statistics)


def _batch_norm(*args: Any) -> Any:
    """`native_batch_norm` hides that it updates statistics; `_native_batch_norm_legit` does not."""
    _, _, _, mean, var, training, *_ = args
    # NotImplemented leaves the call unchanged: without statistics there is nothing to hide.
    updates = training and mean is not None and var is not None
    return aten._native_batch_norm_legit.default(*args) if updates else NotImplemented


def _dropout(x: torch.Tensor, probability: float, train: bool | None) -> Any:
    """`native_dropout` returns a new tensor, but its fake kernel may return the operand.

    The fake kernel does so if nothing is dropped, so this handles only that case.
    """
    drops = train is None or train
    if x.numel() == 0 or (drops and probability != 0):
        return NotImplemented
    if not drops:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    # Eager also draws a mask for a probability of zero, which advances the generator.
    mask = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - probability)
    return x.mul(mask).mul_(1.0), mask


# Decompositions into operators whose schemas and fake kernels are right about reads and writes.
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm.default: _batch_norm,
    aten.native_dropout.default: _dropout,
}


@contextlib.contextmanager
def composites_of_eager() -> Iterator[None]:
    """A trace with the composite operators of eager, where those of torch's traces alias less.

    A trace with symbols runs composites that are written in Python. The one of `dropout` copies its
    operand even if it drops nothing, so a write to the result would be lost.
    """
    op = aten.dropout.default
    kernels = dict.fromkeys((_COMPOSITE, DispatchKey.Autograd), _dropout_or_operand)
    with mock.patch.dict(op.py_kernels, kernels):
        op._dispatch_cache.clear()
        try:
            yield
        finally:
            op._dispatch_cache.clear()


_COMPOSITE = DispatchKey.CompositeImplicitAutograd
_in_python = aten.dropout.default.py_kernels[_COMPOSITE]


def _dropout_or_operand(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    result: torch.Tensor = _in_python(x, p, train) if train and p != 0 else x
    return result


@contextlib.contextmanager
def differentiable_lstm() -> Iterator[None]:
    """A trace in which each layer of an LSTM in training has a gradient.

    Traces take the kernel of oneDNN unless the input requires a gradient. They call it for
    inference, so it saves nothing for the gradients of the weights.
    """
    select = torch._decomp.decompositions.select_one_layer_lstm_function

    def selected(*operands: Any) -> Any:
        trained = any(tensor.requires_grad for tensor in tensors_in(operands))
        return torch._decomp.decompositions.one_layer_lstm if trained else select(*operands)

    with mock.patch.object(
        torch._decomp.decompositions, "select_one_layer_lstm_function", selected
    ):
        yield


# A tensor object that is passed as two arguments becomes two inputs of the graph. A metadata
# mutation of one would not change the other, so it is refused.


def refuse_mutated_twice(
    captured: fx.GraphModule, analysis: Analysis, sample_args: Sequence[object]
) -> None:
    """Raise `Refused` if a tensor is passed twice and its metadata is mutated."""
    given = tree_leaves(list(sample_args))
    identities = [id(leaf) for leaf in given if isinstance(leaf, torch.Tensor)]
    mutated = {
        identity for effect in analysis.effects.values() for identity in effect.mutated_metadata
    }
    placeholders = (node for node in captured.graph.nodes if node.op == "placeholder")
    for node, leaf in zip(placeholders, given, strict=False):
        if id(analysis.effects[node].value) in mutated and identities.count(id(leaf)) > 1:
            raise Refused(
                f"one tensor is passed twice, and its metadata is mutated through {node.name}"
            )


# --- functional already ---------------------------------------------------------------------------
#
# Graphs that are functional already, such as those of AOTAutograd, stay as they are, with the
# values of the analysis. So no node runs on fakes again.


def unchanged(captured: fx.GraphModule, analysis: Analysis) -> fx.GraphModule | None:
    """A copy of the captured graph, if it writes nothing except inputs at its end; else None."""
    written = {node.target for node in captured.graph.nodes if writes(node.target)}
    if not written <= {aten.copy_.default}:
        return None
    made = copied(captured)
    for node, new in zip(analysis.effects, made.graph.nodes, strict=False):  # without the output
        note_value(new, analysis.value(node))
        if new.op == "call_function":
            note_strides(new, _strides)
    if is_functional(made) is not None:
        return None
    # A `copy_` of the epilogue must not read a storage that one of them writes.
    ends = [map(value_of, node.args[:2]) for node in made.graph.nodes if writes(node.target)]
    stored = [(storage_of(destination), storage_of(source)) for destination, source in ends]
    if {source for _, source in stored} & {destination for destination, _ in stored}:
        return None
    erase_dead(made.graph)
    return made


def _strides(operand: fx.Node) -> Sequence[Size] | None:
    value = value_of(operand)
    return value.stride() if isinstance(value, torch.Tensor) else None
