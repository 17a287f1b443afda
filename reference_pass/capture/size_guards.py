"""Guards of graphs with symbolic sizes: for which inputs a graph is right.

A trace with symbols takes one way at each branch on a size, and a layout may decide whether a
reshape is a view. The trace notes each such decision as a guard (`ShapeEnv`). The graph is right
for inputs that meet all guards, so its module checks them at each call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import CodeType, NoneType
from typing import Any

import torch
from torch import fx
from torch._dynamo.source import LocalSource
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP, ShapeEnv, free_symbols

from aliasproof.reference_pass.calls import operand_reads
from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import aten, is_opaque
from aliasproof.reference_pass.calls.storages import storage_of, value_of, written_tensors
from aliasproof.reference_pass.capture.control_flow_calls import CONTROL_FLOW
from aliasproof.reference_pass.eager.operand_access import NEEDS_ALIGNMENT
from aliasproof.reference_pass.exceptions import Refused

# In the `meta` of a graph module: whether its program depends on the memory around its inputs.
LOCATED = "located"


def guard_sizes(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Let a graph module check its guards at each call, if its trace had symbolic sizes.

    If the graph or its program depends on the memory around its inputs, the sizes of their storages
    are guarded, too. Changes the graph module and returns it. A copy of the graph module loses its
    hooks, so each pass calls this for its result.
    """
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    values = [node.meta.get("val", _NOT_NOTED) for node in placeholders]
    env = _shape_env(values)
    hooks = graph_module._forward_pre_hooks.values()
    if env is not None and not any(isinstance(hook, SizeGuards) for hook in hooks):
        names = [str(node.target) for node in placeholders]
        located = graph_module.meta.get(LOCATED, False) or depends_on_location(graph_module)
        guards = SizeGuards(env, names, values, located=located, writes=writes_inputs(graph_module))
        graph_module.register_forward_pre_hook(guards)
    return graph_module


def _shape_env(values: Sequence[object]) -> ShapeEnv | None:
    """The environment of the symbols in these values; None if there are none."""
    for value in values:
        # After a guard such as `size == 5`, no size shows the symbol any more, but the mode has it.
        if isinstance(value, FakeTensor):
            of_tensor: ShapeEnv | None = value.fake_mode.shape_env
            if of_tensor is not None and of_tensor.replacements:
                return of_tensor
        sizes = [value] if not isinstance(value, torch.Tensor) else [*value.shape, *value.stride()]
        for size in sizes:
            if isinstance(size, torch.SymInt) and not size.node.is_nested_int():
                env: ShapeEnv = size.node.shape_env
                return env
    return None


class SizeGuards:
    """A hook before the call of a graph module: raises `Refused` for inputs that break a guard.

    `names` are those of the inputs, `values` their metadata. With `located`, the storage of each
    input must have as many bytes as in the trace. If the graph `writes` inputs, inputs may share a
    storage only if they did so in the trace.
    """

    def __init__(
        self,
        env: ShapeEnv,
        names: Sequence[str],
        values: Sequence[Any],
        *,
        located: bool = False,
        writes: bool = False,
    ) -> None:
        self.env, self.names, self.values = env, names, values
        self.located, self.writes = located, writes
        tensors = {n: x for n, x in zip(names, values, strict=True) if isinstance(x, torch.Tensor)}
        self.first = _first_on_storage(tensors)
        self.guards: list[tuple[str, CodeType]] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> SizeGuards:
        """A copy of a graph has the guards of the same trace."""
        return self

    def __call__(self, module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        """Check the inputs of a call."""
        if any(tensor._has_symbolic_sizes_strides for tensor in tensors_in(inputs)):
            return  # fakes of another trace: comparing their sizes would add guards to that trace
        if (broken := self.broken(inputs)) is not None:
            raise Refused(f"{broken}; trace it for others")

    def broken(self, inputs: Sequence[Any]) -> str | None:
        """The guard that these inputs break, in words; None if the graph is right for them."""
        given = dict(zip(self.names, inputs, strict=False))
        for name, value in zip(self.names, self.values, strict=True):
            if isinstance(value, torch.Tensor) and (other := _other_kind(given[name], value)):
                return f"{name} {other}"
            # -0.0 is not 0.0, and True is not 1.
            now = given[name]
            same = type(now) is type(value) and repr(now) == repr(value)
            if isinstance(value, _CONSTANTS) and not same:
                return f"{name} is {now!r}, and the graph was traced for {value!r}"
        if (broken := self._otherwise_shared(given)) is not None:
            return broken
        if self.located and (broken := self._other_storage(given)) is not None:
            return broken
        # Read at the first call, since a pass after this one may add guards.
        if self.guards is None:
            self.guards = [(text, compile(text, "<guard>", "eval")) for text in self._texts()]
        for text, code in self.guards:
            # The text is printed by torch from its own symbols, not written by a user.
            try:
                is_met = eval(code, SYMPY_INTERP, {"L": given})  # noqa: S307
            except ZeroDivisionError:  # a number of parts, of a dimension of size zero
                is_met = False
            if not is_met:
                # `x` instead of `L['x']`, which is how torch writes a local variable.
                readable = re.sub(r"L\['(\w+)'\]", r"\1", text)
                return f"the graph was traced for inputs with {readable}"
        return None

    def _otherwise_shared(self, given: Mapping[str, Any]) -> str | None:
        """Inputs that share a storage only here, or only in the trace, if it matters; else None."""
        now = _first_on_storage({name: given[name] for name in self.first})
        for name, traced in self.first.items():
            found = now[name]
            if now[traced] != found:
                return f"{name} shared a storage with {traced} in the trace, and does not here"
            if self.writes and self.first[found] != traced:
                return (
                    f"{name} shares a storage with {found}, and the graph, which writes inputs, was"
                    " traced for separate ones"
                )
        return None

    def _other_storage(self, given: Mapping[str, Any]) -> str | None:
        """The input whose storage has another size than in the trace, in words; None if none."""
        numbers: dict[Any, int] = {}
        for name, value in zip(self.names, self.values, strict=True):
            for number, now in zip(_numbers(value), _numbers(given[name]), strict=True):
                if isinstance(number, torch.SymInt):
                    numbers[number.node.expr] = now
        for name, value in zip(self.names, self.values, strict=True):
            if not isinstance(value, torch.Tensor):
                continue
            nbytes: Any = value.untyped_storage().nbytes()
            if isinstance(nbytes, torch.SymInt):  # the storage ends where its tensors end
                nbytes = nbytes.node.expr.xreplace(numbers)
            found = given[name].untyped_storage().nbytes()
            if found != nbytes:
                return (
                    f"{name} is in a storage of {found} bytes, and the graph, which uses memory"
                    f" around it, was traced for storages of {nbytes} with such sizes and strides"
                )
        return None

    def _texts(self) -> list[str]:
        """The guards as Python expressions."""
        sized = [
            (name, value)
            for name, value in zip(self.names, self.values, strict=True)
            if isinstance(value, (torch.Tensor, torch.SymInt, int)) and not isinstance(value, bool)
        ]
        names, values = zip(*sized, strict=True)
        symbols = free_symbols(values)
        return self.env.produce_guards(
            values,
            [LocalSource(name) for name in names],
            # Fakes of the caller may share their environment with other graphs.
            guards=[
                guard
                for guard in self.env.guards
                if self.env.replace(guard.expr).free_symbols <= symbols
            ],
            ignore_static=False,
        )


def _first_on_storage(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """For each tensor, the first one that is on its storage, by name."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(tensor.untyped_storage()._cdata, name)
        for name, tensor in tensors.items()
    }


# Types of arguments that are constants of a trace. For an int, a trace has a symbol.
_CONSTANTS = (bool, float, complex, str, torch.dtype, torch.device, NoneType)
_NOT_NOTED = object()


def _other_kind(given: torch.Tensor, traced: torch.Tensor) -> str | None:
    """A difference between two tensors that no symbol shows; None if there is none."""
    if given.dim() != traced.dim():
        return f"has {given.dim()} dimensions, and the graph was traced for {traced.dim()}"
    if given.dtype != traced.dtype:
        return f"is {given.dtype}, and the graph was traced for {traced.dtype}"
    if (given.is_conj(), given.is_neg()) != (traced.is_conj(), traced.is_neg()):
        return "has another lazy conjugate or negative bit than in the trace"
    return None


def writes_inputs(graph_module: fx.GraphModule) -> bool:
    """True if a call of the graph writes an input or an attribute, or a view of one."""
    nodes, given = graph_module.graph.nodes, ("placeholder", "get_attr")
    tensors = tensors_in([node.meta.get("val") for node in nodes if node.op in given])
    storages = set(map(storage_of, tensors))
    return any(storage_of(x) in storages for node in nodes for x in written_tensors(node, value_of))


def _numbers(value: Any) -> tuple[Any, ...]:
    """The numbers of an input, which are symbols in its metadata."""
    if isinstance(value, torch.Tensor):
        return (*value.shape, *value.stride(), value.storage_offset())
    return (value,)


# --- graphs that depend on where their inputs are in their storages -------------------------------


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
