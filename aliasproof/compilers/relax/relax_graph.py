"""A Relax function as a graph of ATen calls, which shares memory as Relax says.

- A call of `call_tir_inplace` writes its result into the operand that it names, and returns that
  operand.
- A call that the VM turns into a view is a view: "reshape-like" operators, which keep the elements
  of their operand in the same order (`RewriteDataflowReshape`).
- All other operators return fresh, dense tensors.

The virtual machine of TVM runs the same function for the targets with a machine.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import tvm
import tvm_ffi
from torch import fx
from torch.utils._pytree import tree_leaves
from torch.utils.dlpack import from_dlpack
from tvm import relax

from aliasproof.compilers.relax.relax_capture import Captured
from aliasproof.compilers.relax.relax_lines import (
    DTYPES,
    IN_PLACE,
    MOVES,
    Lines,
    OpaqueCall,
    integers,
    keeps_order,
    shape_of,
)
from aliasproof.ir.errors import InternalError

aten = torch.ops.aten
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
Made: TypeAlias = "fx.Node | tuple[Made, ...]"

_ELEMENTWISE = {
    "add": aten.add.Tensor,
    "subtract": aten.sub.Tensor,
    "multiply": aten.mul.Tensor,
    "divide": aten.div.Tensor,
    "maximum": aten.maximum.default,
    "minimum": aten.minimum.default,
    "negative": aten.neg.default,
    "abs": aten.abs.default,
    "nn.relu": aten.relu.default,
    "nn.silu": aten.silu.default,
    "where": aten.where.self,
}


class GraphOfRelax:
    """Converts the function `main` of a module to a graph."""

    def __init__(self, module: Any, before: Any, lines: Lines) -> None:
        self.module, self.lines = module, lines
        # In-place calls have a kernel instead of an operator, and are bound to the same variable.
        self.operators = {
            it.var: it.value for block in before["main"].body.blocks for it in block.bindings
        }
        self.root, self.graph = torch.nn.Module(), fx.Graph()
        self.constants: dict[int, fx.Node] = {}
        self.made: dict[Any, Made] = {}

    def call(self, op: Any, *args: Any) -> fx.Node:
        return self.graph.call_function(op, args)

    def fresh(self, op: Any, *args: Any) -> fx.Node:
        """A call whose result is a view in ATen, and separate dense memory in Relax."""
        return self.dense(self.call(op, *args))

    def dense(self, node: fx.Node) -> fx.Node:
        """A contiguous copy of a tensor."""
        kwargs: dict[str, Any] = {"memory_format": torch.contiguous_format}
        return self.graph.call_function(aten.clone.default, (node,), kwargs)

    def function(self, function: Any, arguments: Sequence[Made]) -> Made:
        """The result of a function for these arguments."""
        self.made.update(zip(function.params, arguments, strict=True))
        for block in function.body.blocks:
            for binding in block.bindings:
                self.made[binding.var] = self.value(binding.value, binding.var)
        return self.value(function.body.body, None)

    def value(self, value: Any, var: Any) -> Made:
        """The value of an expression, which is bound to a variable if it is a call."""
        if isinstance(value, relax.Var):
            return self.made[value]
        if isinstance(value, relax.Tuple):
            return tuple(self.value(it, None) for it in value.fields)
        if isinstance(value, relax.TupleGetItem):
            fields: Any = self.value(value.tuple_value, None)
            field: Made = fields[value.index]
            return field
        if isinstance(value, tvm.ir.GenericConst):
            return self.attribute(from_dlpack(value.value))
        if not isinstance(value, relax.Call):
            raise InternalError(f"no graph has the expression {value} of Relax")
        if isinstance(value.op, tvm.ir.GlobalVar):
            return self.function(self.module[value.op], [self.value(it, None) for it in value.args])
        return self.operator(value.op.name.removeprefix("relax."), value, var)

    def attribute(self, tensor: torch.Tensor) -> fx.Node:
        """A tensor of the graph, in its own memory."""
        key = tensor.data_ptr()
        if key not in self.constants:
            name = f"constant{len(self.constants)}"
            self.root.register_buffer(name, tensor)
            self.constants[key] = self.graph.get_attr(name)
        return self.constants[key]

    def operator(self, name: str, call: Any, var: Any) -> Made:
        """The result of an operator of Relax."""
        if name == "call_tir_inplace":
            return self.in_place(call, self.operators[var])
        if name == "call_inplace_packed":
            operands = [self.value(it, None) for it in call.args[1:]]
            called = self.lines.opaque[call.args[0].global_symbol.removesuffix(IN_PLACE)]
            return self.packed(called, operands, in_place=True)
        if name == "call_dps_packed":
            operands = [self.value(it, None) for it in call.args[1].fields]
            return self.packed(self.lines.opaque[call.args[0].global_symbol], operands)
        if name in _ELEMENTWISE:
            return self.elementwise(
                name, [it if _is_number(it) else self.value(it, None) for it in call.args]
            )
        operand: Any = self.value(call.args[0], None)
        if name == "split":
            return self.parts(call, operand)
        dtype = TORCH_DTYPES[str(var.ty.dtype)]
        sizes = shape_of(var.ty)
        if name == "astype" and not keeps_order(name, call, sizes):
            return self.graph.call_function(aten._to_copy.default, (operand,), {"dtype": dtype})
        if keeps_order(name, call, sizes):  # as `RewriteDataflowReshape` decides
            (operand,) = operand if isinstance(operand, tuple) else (operand,)
            return self.call(aten.reshape.default, operand, sizes)
        op, rest = MOVES[name](call, sizes)
        return self.fresh(op, operand, *rest)

    def parts(self, call: Any, operand: Any) -> Made:
        """The fields of `split`, each in separate memory."""
        dim, ends = int(call.attrs.axis), integers(call.attrs.indices_or_sections)
        size = int(call.args[0].ty.shape[dim])
        if not isinstance(ends, list):
            ends = list(range(size // ends, size, size // ends)) if ends > 1 else []
        bounds = itertools.pairwise([0, *ends, size])
        return tuple(self.fresh(aten.slice.Tensor, operand, dim, *both) for both in bounds)

    def elementwise(self, name: str, operands: Sequence[Any]) -> fx.Node:
        """An operator on nodes, and on numbers that are constants without dims."""
        given = [self.number(it) if _is_number(it) else it for it in operands]
        if name == "subtract" and not isinstance(given[0], fx.Node):
            return self.call(aten.rsub.Scalar, *reversed(given))
        return self.call(_ELEMENTWISE[name], *given)

    def number(self, value: Any) -> float:
        return self.lines.numbers[from_dlpack(value.value).data_ptr()][0]

    def in_place(self, call: Any, before: Any) -> Made:
        """A kernel that computes into one of its operands, which is its result.

        The kernel's code contains the numbers of the operator that it replaces.
        """
        operands = [self.value(it, None) for it in call.args[1].fields]
        given = iter(operands)
        whole = [it if _is_number(it) else next(given) for it in before.args]
        (index,) = (int(it) for it in call.attrs.inplace_indices)
        result = self.elementwise(before.op.name.removeprefix("relax."), whole)
        return self.call(aten.copy_.default, operands[index], result)

    def packed(self, call: OpaqueCall, operands: Sequence[Any], *, in_place: bool = False) -> Made:
        """The ATen call of a packed function, on copies of its written operands unless in place."""
        operands = list(operands)
        for index in () if in_place else call.written:
            operands[index] = self.call(aten.clone.default, operands[index])
        args, kwargs = call.arguments(operands)
        result = self.graph.call_function(call.op, args, kwargs)
        item = functools.partial(self.call, operator.getitem, result)
        fields = [item(i) if call.several else result for i in call.results]
        if call.op == aten.as_strided.default:
            fields = [self.dense(result)]
        made = (*(operands[index] for index in call.written), *fields)
        return made[0] if len(made) == 1 else made


def _is_number(argument: Any) -> bool:
    """Whether kernels contain the argument in their code: a constant without dims."""
    return isinstance(argument, tvm.ir.GenericConst) and not argument.ty.shape


# --- the whole graph ------------------------------------------------------------------------------


def graph_of(module: Any, before: Any, captured: Captured, inputs: int) -> fx.GraphModule:
    """The function, with the writes into its inputs that Relax returns as values."""
    relax_graph = GraphOfRelax(module, before, captured.lines)
    graph = relax_graph.graph

    def main(arguments: Sequence[Any]) -> Any:
        constants = [relax_graph.attribute(it) for it in captured.lines.given]
        return relax_graph.function(module["main"], [*arguments, *constants])

    given = [graph.placeholder(f"x{index}") for index in range(inputs)]
    graph.output(captured.run(main, given, relax_graph.call))
    return fx.GraphModule(relax_graph.root, graph)


# --- the virtual machine of TVM, with kernels that LLVM compiles ----------------------------------


def run_by_machine(module: Any) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """The function `main` of a module, compiled. It shares memory with its arguments."""
    compiled = tvm.compile(module, tvm.target.Target("llvm"))
    machine = relax.VirtualMachine(compiled, tvm.cpu())

    def run(arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        given = map(tvm.runtime.from_dlpack, arguments)
        return list(map(from_dlpack, machine["main"](*given)))

    return run


def machine_of(module: Any, captured: Captured) -> Callable[..., object]:
    """The function, with the writes into its inputs that Relax returns as values."""
    # The machine looks up packed functions when it is made, so their names may be reused later.
    for name, call in captured.lines.opaque.items():
        for named, packed in ((name, run_packed), (name + IN_PLACE, run_in_place)):
            tvm_ffi.register_global_func(named, functools.partial(packed, call), override=True)
    machine, constants = run_by_machine(module), captured.lines.given

    def main(arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return machine([*arguments, *constants])

    return lambda *inputs: captured.run(main, inputs, lambda op, *args: op(*args))


def run_packed(call: OpaqueCall, *tensors: Any) -> None:
    """Run the ATen call of a packed function; the last tensors receive its results."""
    given = list(map(from_dlpack, tensors))
    operands = [it.clone() for it in given[: call.operands]]
    returned = tree_leaves(called(call, operands))
    made = [*(operands[i] for i in call.written), *(returned[i] for i in call.results)]
    for out, value in zip(given[call.operands :], made, strict=True):
        out.copy_(value)


def run_in_place(call: OpaqueCall, *tensors: Any) -> Any:
    """Run the ATen call of a packed function, and return the tensor that it wrote."""
    called(call, list(map(from_dlpack, tensors)))
    return tensors[call.written[0]]


def called(call: OpaqueCall, operands: Sequence[torch.Tensor]) -> object:
    """The result of the ATen call for these operands."""
    args, kwargs = call.arguments(operands)
    return call.op(*args, **kwargs)
