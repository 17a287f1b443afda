"""Calls that eager makes as another call: `less` as `lt`, `add` of a number as that of a tensor.

Then all facts about the other operator are known for the call: that it computes element by element,
and that its `out=` form writes its result directly to the `out=`. The `out=` form of `add.Scalar`
is generated: it computes a new tensor, and copies it.
"""

from __future__ import annotations

import functools
import inspect
import numbers
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket
from torch.types import py_sym_types
from torch.utils._python_dispatch import TorchDispatchMode

from aliasproof.reference_pass.calls.nested import on_values, tensors_in
from aliasproof.reference_pass.calls.operator_forms import (
    bind,
    facts,
    is_pointwise,
    out_form,
    unbind,
)
from aliasproof.reference_pass.calls.storages import value_of


def replace_names(graph: fx.Graph) -> None:
    """Replace each call of a functional graph that makes only one call in eager by that call.

    Requires true metadata. The caller has entered `on_fakes`.
    """
    for node in graph.nodes:
        if node.op == "call_function" and isinstance(node.target, OpOverload):
            call = _only_call(node) if _is_composite(node.target) else None
            if call is not None:
                node.target, node.args, node.kwargs = call
            given = bind(node.target, node.args, node.kwargs)
            form = _tensor_overload(node.target)
            # A symbol is a node. If an argument is a tensor by its schema, eager wraps a number.
            if form is not None and isinstance(given.get("other"), numbers.Number):
                node.target, (node.args, node.kwargs) = form, unbind(form, given)


@functools.cache
def _tensor_overload(op: OpOverload) -> OpOverload | None:
    """`add.Tensor` of `add.Scalar`, if only that has an `out=` kernel; else None."""
    form = getattr(op.overloadpacket, "Tensor", None)
    if op._overloadname != "Scalar" or not is_pointwise(op) or not isinstance(form, OpOverload):
        return None
    if not torch._C._should_allow_numbers_as_tensors(op.overloadpacket.__name__):
        return None
    own, other = out_form(op), out_form(form)
    if (
        other is None
        or torch.Tag.generated in other.tags
        or set(facts(op).names) != set(facts(form).names)
    ):
        return None
    return form if own is None or torch.Tag.generated in own.tags else None


# --- composite operators --------------------------------------------------------------------------


@functools.cache
def _is_composite(op: OpOverload) -> bool:
    """True for an operator of torch that calls others, and returns a new tensor."""
    returns, name = op._schema.returns, op.name()
    return (
        op.namespace == "aten"
        and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
        and not any(argument.alias_info for argument in (*op._schema.arguments, *returns))
        and len(returns) == 1
        and not facts(op).random
    )


class _CallsMade(TorchDispatchMode):
    """Notes each call that is made, with its result."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[OpOverload, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.made.append((func, args, kwargs or {}, result))
        return result


def _only_call(node: fx.Node) -> tuple[OpOverload, tuple[Any, ...], dict[str, Any]] | None:
    """The call that a composite operator makes; None if it makes several, or changes operands."""
    args, kwargs = on_values((node.args, node.kwargs), value_of)
    try:
        with _CallsMade() as calls:
            returned = node.target(*args, **kwargs)  # type: ignore[operator]
    except RuntimeError:
        return None  # the operator reads data, which fakes do not have
    if len(calls.made) != 1:
        return None
    op, args, kwargs, result = calls.made[0]
    nodes = {id(operand.meta["val"]): operand for operand in node.all_input_nodes}
    leaves = tensors_in((args, kwargs))
    form = out_form(op) if op.namespace == "aten" else None
    # A name with fewer forms would leave fewer candidates.
    is_kernel = form is not None and torch.Tag.generated not in form.tags
    if not is_kernel or returned is not result or any(id(leaf) not in nodes for leaf in leaves):
        return None
    args, kwargs = fx.node.map_aggregate((args, kwargs), lambda leaf: nodes.get(id(leaf), leaf))
    if any(isinstance(leaf, py_sym_types) for leaf in (*args,)):
        return None
    return op, tuple(args), dict(kwargs)


# --- prims ----------------------------------------------------------------------------------------
#
# The operators of `torch._prims`, as the ATen operators that they call in eager. A prim has no
# in-place form, no tag says that it is pointwise, and the fakes of some have other strides, or
# another dtype, than in eager (`prims.real`). The ATen operator is right in all of these.


aten = torch.ops.aten


def called_in_eager(node: fx.Node) -> Any:
    """The target of a node, with `aten_of_prim` for a prim that gets its arguments by position."""
    is_by_position = isinstance(node.target, OpOverload) and not node.kwargs
    return aten_of_prim(node.target) if is_by_position else node.target


@functools.cache
def aten_of_prim(op: OpOverload) -> OpOverload:
    """The ATen operator that a prim calls in eager, with the same arguments; else the operator."""
    if op.namespace != "prims":
        return op
    name = op.overloadpacket.__name__
    if name == "as_strided":  # its schema says that it writes
        return aten.as_strided.default
    in_eager = getattr(op, "impl_aten", None) if getattr(torch._prims, name, None) is op else None
    if not inspect.isbuiltin(in_eager):
        return op  # a Python function may make more than one call
    packet = getattr(aten, in_eager.__name__, None)
    if not isinstance(packet, OpOverloadPacket):
        return op
    for overload_name in packet.overloads():
        overload: OpOverload = getattr(packet, overload_name)
        if _takes_arguments_of(overload, op):
            return overload
    return op


def _takes_arguments_of(op: OpOverload, prim: OpOverload) -> bool:
    """True for an operator that takes the arguments of a prim by position, and writes none."""
    given, taken = prim._schema.arguments, op._schema.arguments
    return (
        not any(argument.is_write for argument in taken)
        and [str(argument.type) for argument in given]
        == [str(argument.type) for argument in taken[: len(given)]]
        and not any(argument.kwarg_only for argument in given)
        and all(argument.has_default_value() for argument in taken[len(given) :])
    )
