"""The forms of ATen calls in Relax: an equivalent operator, or a packed function.

A form is used if one operator computes the same: the dtypes of its operands equal that of the
result. Views are values here. `FORMS` has them by the name of the call without the mark of a write:
`add` for `add.Tensor`, `add_.Tensor` and `add.out`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map
from tvm.relax import op as R

from aliasproof.compilers.relax.relax_lines import (
    IN_PLACE,
    OPAQUE,
    Item,
    Line,
    Lines,
    OpaqueCall,
    OperandPlace,
    Value,
    type_of,
)
from aliasproof.ir.execution import returns_one_tensor
from aliasproof.ir.schemas import facts

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """An ATen call, and the values of its tensors, each tensor once."""

    op: OpOverload
    args: Sequence[Any]
    kwargs: dict[str, Any]
    operands: Sequence[tuple[torch.Tensor, Value]]
    lines: Lines

    @property
    def name(self) -> str:
        """The name of the computation, without the mark of a write."""
        return str(self.op.overloadpacket.__name__).removesuffix("_")

    @property
    def written(self) -> list[torch.Tensor]:
        """The tensors that it writes."""
        names = [self.op._schema.arguments[index].name for index in facts(self.op).writes]
        values = tree_leaves([self.argument(name) for name in names])
        return [it for it in values if isinstance(it, torch.Tensor)]

    def argument(self, name: str) -> Any:
        """An argument, or its default. Raises `KeyError` if there is none of that name."""
        for index, parameter in enumerate(self.op._schema.arguments):
            if parameter.name == name:
                if index < len(self.args) and not parameter.kwarg_only:
                    return self.args[index]
                return self.kwargs.get(name, parameter.default_value)
        raise KeyError(name)

    def value(self, tensor: torch.Tensor) -> Value:
        """The value of one of its tensors before the call."""
        return next(value for other, value in self.operands if other is tensor)

    def opaque(
        self, written: Sequence[torch.Tensor], fresh: Sequence[tuple[int, torch.Tensor]]
    ) -> list[Value]:
        """The new contents of the written tensors and the fresh results, by a packed function.

        A result has its index among all outputs of the call.
        """
        index_of = {id(tensor): index for index, (tensor, _) in enumerate(self.operands)}
        template = tree_map(
            lambda it: OperandPlace(index_of[id(it)]) if isinstance(it, torch.Tensor) else it,
            (tuple(self.args), self.kwargs),
        )
        indices = [index_of[id(tensor)] for tensor in written]
        results, several = tuple(index for index, _ in fresh), not returns_one_tensor(self.op)
        call = OpaqueCall(self.op, template, tuple(indices), results, several)
        tensors = [*written, *(tensor for _, tensor in fresh)]
        return packed(self.lines, call, [value for _, value in self.operands], tensors)


def packed(
    lines: Lines, call: OpaqueCall, operands: Sequence[Value], results: Sequence[torch.Tensor]
) -> list[Value]:
    """The results of a packed function, which has a distinct name for each kind of call."""
    name = next((name for name, other in lines.opaque.items() if other == call), None)
    if name is None:
        name = f"{OPAQUE}{call.op.overloadpacket.__name__}.{len(lines.opaque)}"
        lines.opaque[name] = call
    types = [type_of(it.shape, it.dtype) for it in results]
    of_one = types[0] if len(types) == 1 else types
    line = lines.add(lambda *made: R.call_dps_packed(name, list(made), out_ty=of_one), *operands)
    line.fresh = len(types) == 1
    if len(call.written) == 1 and not call.results:
        (line.consumed,) = call.written
        line.consuming = lambda *made: R.call_inplace_packed(
            name + IN_PLACE, *made, inplace_indices=line.consumed, ty_args=of_one
        )
    return [line] if len(types) == 1 else [Item(line, index) for index in range(len(types))]


def opaque_line(
    lines: Lines, op: OpOverload, operands: Sequence[Value], rest: Sequence[Any], like: torch.Tensor
) -> Value:
    """The result of a call on tensors and other arguments, with the type of another tensor."""
    template = (*(OperandPlace(index) for index in range(len(operands))), *rest)
    return packed(lines, OpaqueCall(op, (template, {}), (), (0,)), operands, [like])[0]


# --- forms ----------------------------------------------------------------------------------------

Form: TypeAlias = Callable[[CapturedCall, Sequence[torch.Tensor]], "list[Value] | None"]


def _elementwise(make: Callable[..., Any]) -> Form:
    """An operator of one or two operands, tensors or numbers."""

    def form(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
        (result,), operands = results, _operands(call)
        plain = all(call.argument(name) in (1, None) for name in _extra(call))
        if not plain or operands is None or result.dtype == torch.bool:
            return None
        if not all(_is_exact(it, result.dtype) for it in operands):
            return None
        return [_line(call, make, operands, result)]

    return form


def _is_exact(operand: Any, dtype: torch.dtype) -> bool:
    """Whether an operand has that dtype, or is a number that eager treats as if it had."""
    if isinstance(operand, torch.Tensor):
        return operand.dtype == dtype
    if dtype in (torch.float32, torch.float64):
        return True
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    inside = limits.min <= operand <= limits.max
    return inside and bool(torch.tensor(operand, dtype=dtype).item() == operand)


def _extra(call: CapturedCall) -> list[str]:
    names = [argument.name for argument in call.op._schema.arguments]
    return [name for name in names if name in ("alpha", "rounding_mode")]


def _operands(call: CapturedCall) -> list[Any] | None:
    """The tensors and numbers that it computes with; None if there is another argument."""
    read = [it for i, it in enumerate(call.args) if i not in facts(call.op).overwrites]
    read = read[: len(read) - (len(_extra(call)) if len(read) > 2 else 0)]
    numbers = (torch.Tensor, int, float)
    usable = all(isinstance(it, numbers) and not isinstance(it, bool) for it in read)
    return read if usable and len(read) <= 2 else None


def _line(
    call: CapturedCall, make: Callable[..., Any], operands: Sequence[Any], like: torch.Tensor
) -> Line:
    """The operator with a constant for each number."""
    tensors = [it for it in operands if isinstance(it, torch.Tensor)]
    parts = [
        None if isinstance(it, torch.Tensor) else call.lines.number(it, like.dtype)
        for it in operands
    ]

    def made(*values: Any) -> Any:
        given = iter(values)
        return make(*(next(given) if part is None else part for part in parts))

    line = call.lines.add(made, *map(call.value, tensors))
    line.fresh = True
    return line


def _inexact(form: Form) -> Form:
    """The form only for floating-point results: ATen divides integers to floats."""

    def only(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
        return form(call, results) if results[0].is_floating_point() else None

    return only


def _fill(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
    """A constant with the contents that eager computed, which depend on no tensor."""
    if any(isinstance(it, torch.Tensor) for it in call.args[1:]):
        return None
    return [call.lines.constant(results[0])]


def _copy(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
    """The other tensor, with the dtype and sizes of the first."""
    source, result = call.argument("src") if call.name == "copy" else call.args[0], results[0]
    if not isinstance(source, torch.Tensor):
        return None
    value = call.value(source)
    if source.dtype != result.dtype:
        dtype = str(result.dtype).removeprefix("torch.")
        value = call.lines.add(lambda it: R.astype(it, dtype), value)
    elif source.shape == result.shape:
        value = call.lines.add(lambda it: it, value)
    if source.shape != result.shape:
        value = call.lines.add(lambda it: R.broadcast_to(it, tuple(result.shape)), value)
    return [value]


def _joined(make: Callable[..., Any]) -> Form:
    """`concat` or `stack`, on a tuple that is bound first."""

    def form(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
        tensors, dim = call.argument("tensors"), call.argument("dim")
        alike = all(it.dtype == results[0].dtype for it in tensors)
        if not alike or any(it.dim() == 1 and it.numel() == 0 for it in tensors):
            return None
        fields = call.lines.tuple([call.value(it) for it in tensors])
        return [call.lines.add(lambda it: make(it, dim), fields)]

    return form


def _reshape(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
    return [call.lines.reshaped(call.value(call.args[0]), tuple(results[0].shape))]


def _unsqueeze(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
    dim = call.argument("dim") % results[0].dim()
    return [call.lines.add(lambda it: R.expand_dims(it, dim), call.value(call.args[0]))]


def _squeeze(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
    shape, left = call.args[0].shape, tuple(results[0].shape)
    if len(left) != sum(size != 1 for size in shape):
        return _reshape(call, results)
    return [call.lines.add(R.squeeze, call.value(call.args[0]))]


def _permuted(axes: Callable[..., Sequence[int]]) -> Form:
    def form(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
        rank = call.args[0].dim()
        order = [axis % rank for axis in axes(rank, *call.args[1:])] if rank else []
        return [call.lines.add(lambda it: R.permute_dims(it, order), call.value(call.args[0]))]

    return form


def _swapped(rank: int, one: int, other: int) -> Sequence[int]:
    order = list(range(rank))
    if rank:
        order[one], order[other] = order[other], order[one]
    return order


def _expand(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
    sizes = tuple(results[0].shape)
    return [call.lines.add(lambda it: R.broadcast_to(it, sizes), call.value(call.args[0]))]


def _slice(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
    tensor, (dim, first, last, step) = (
        call.args[0],
        map(call.argument, ("dim", "start", "end", "step")),
    )
    dim, size = dim % tensor.dim(), tensor.shape[call.argument("dim")]
    start, stop, step = slice(first, last, step).indices(size)
    if stop <= start:
        return None
    value = call.value(tensor)
    return [call.lines.add(lambda it: R.strided_slice(it, [dim], [start], [stop], [step]), value)]


def _select(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
    tensor = call.args[0]
    dim, index = call.args[1] % tensor.dim(), call.args[2] % tensor.shape[call.args[1]]
    value = call.lines.add(
        lambda it: R.strided_slice(it, [dim], [index], [index + 1]), call.value(tensor)
    )
    return [call.lines.add(lambda it: R.squeeze(it, [dim]), value)]


def _split(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
    """`split` and `unbind`: the fields of a tuple, which are taken at each use."""
    tensor, dim = call.args[0], call.argument("dim")
    unbound = call.name == "unbind"
    sizes = [1 if unbound else it.shape[dim] for it in results]
    if len(results) == 1:
        return _reshape(call, results)
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes) - 1)]
    line = call.lines.add(lambda it: R.split(it, ends or 1, dim), call.value(tensor))
    items: list[Value] = [Item(line, index) for index in range(len(sizes))]
    if unbound:
        return [call.lines.add(lambda it: R.squeeze(it, [dim]), item) for item in items]
    return items


def _where(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
    chosen, *tensors = call.args[:3]
    alike = chosen.dtype == torch.bool and all(it.dtype == results[0].dtype for it in tensors)
    return [call.lines.add(R.where, *map(call.value, call.args[:3]))] if alike else None


def _repeat(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
    times = list(call.args[1])
    if not all(times):
        return None
    return [call.lines.add(lambda it: R.tile(it, times), call.value(call.args[0]))]


def _flip(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
    value = call.value(call.args[0])
    for dim in call.args[1]:
        value = call.lines.add(lambda it, dim=dim: R.flip(it, dim), value)
    return [value] if call.args[1] else None


def _rsub(call: CapturedCall, results: Sequence[torch.Tensor]) -> list[Value] | None:
    """The difference from a number, on the left unless the spelling puts numbers last."""
    last = call.lines.spelling.numbers_last and not isinstance(call.args[1], torch.Tensor)
    make = (lambda x, y: R.add(R.negative(x), y)) if last else (lambda x, y: R.subtract(y, x))
    return _elementwise(make)(call, results)


VIEWS: dict[str, Form] = {
    **dict.fromkeys(("view", "_unsafe_view", "_reshape_alias", "_reshape_copy"), _reshape),
    **dict.fromkeys(("alias", "detach", "lift_fresh"), _copy),
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "permute": _permuted(lambda rank, order: order),
    "transpose": _permuted(_swapped),
    "t": _permuted(lambda rank: tuple(reversed(range(rank)))),
    "expand": _expand,
    "slice": _slice,
    "select": _select,
    "split": _split,
    "split_with_sizes": _split,
    "unbind": _split,
}
FORMS: dict[str, Form] = {
    **VIEWS,
    "add": _elementwise(R.add),
    "sub": _elementwise(R.subtract),
    "rsub": _rsub,
    "mul": _elementwise(R.multiply),
    "div": _inexact(_elementwise(R.divide)),
    "maximum": _elementwise(R.maximum),
    "minimum": _elementwise(R.minimum),
    "neg": _elementwise(R.negative),
    "abs": _elementwise(R.abs),
    "relu": _elementwise(R.nn.relu),
    "silu": _inexact(_elementwise(R.nn.silu)),
    **dict.fromkeys(("clone", "_to_copy", "copy"), _copy),
    **dict.fromkeys(("fill", "zero", "full", "zeros", "ones", "arange", "scalar_tensor"), _fill),
    **dict.fromkeys(("new_full", "new_zeros", "new_ones"), _fill),
    **dict.fromkeys(("full_like", "zeros_like", "ones_like"), _fill),
    "cat": _joined(R.concat),
    "stack": _joined(R.stack),
    "where": _where,
    "repeat": _repeat,
    "flip": _flip,
}
