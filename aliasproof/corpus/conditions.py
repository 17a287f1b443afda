"""Conditions on programs, which the text of a bug names: they say which programs can show it.

`plausible` and `when` of a file in `corpus/bugs` are one condition, or several joined by "and". A
condition is

    calls OP ...              the program calls one of these ops, such as expand
    mentions WORD             the word is in the program, as in the name of an op or a dtype
    computes PROPERTY OP ...  a call, of one of these ops if some are named, has a property when it
                              runs in eager
    NAME                      an entry of `OF_PROGRAMS`, or of `OF_ANY_CALL` or `OF_ANY_INPUT`

A property is an entry of `OF_COMPUTED_CALLS`: it checks the numbers of a call.
A compiler that computes int64 in 32 bits is wrong only for larger numbers. So a mark with a
property of the numbers matches only that bug, where a mark on dtypes would match other bugs, too.
"""

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch._ops import OpOverload

from aliasproof.ir import execution
from aliasproof.ir.custom_operators import NAMESPACE
from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.ir.execution import seed_generators
from aliasproof.ir.printing import source
from aliasproof.ir.program import Input, Instruction, Program, Ref
from aliasproof.ir.regions import dense_strides
from aliasproof.ir.schemas import Kind, facts, is_composite, resolve
from aliasproof.ir.values import clone_inputs, input_tensors

Condition: TypeAlias = Callable[[Program], bool]
Property: TypeAlias = "Callable[[ComputedCall], bool]"

COMPARISONS = (
    *("eq", "ne", "lt", "le", "gt", "ge", "greater", "greater_equal", "less", "less_equal"),
    *("not_equal", "logical_not", "logical_and", "logical_or", "logical_xor"),
)
SHORT = (torch.int8, torch.uint8, torch.int16)
REFUSED = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


def condition_of(text: str) -> Condition:
    """The condition that a text names. Raises `UserError` if it names none."""
    parts = [_one(part.split()) for part in text.split(" and ")]
    return parts[0] if len(parts) == 1 else lambda program: all(part(program) for part in parts)


def _one(words: list[str]) -> Condition:
    match words:
        case ["calls", *names] if names:
            return lambda program: calls(program, *names)
        case ["mentions", word]:
            return lambda program: word in repr(program)
        case ["computes", name, *ops]:
            if name not in OF_COMPUTED_CALLS:
                advice = f"use {', '.join(OF_COMPUTED_CALLS)}"
                hint = did_you_mean(name, OF_COMPUTED_CALLS, advice)
                raise UserError(f"no property '{name}'{hint}")
            return computes(OF_COMPUTED_CALLS[name], *ops)
        case [name] if name in OF_PROGRAMS:
            return OF_PROGRAMS[name]
        case [name] if name in OF_ANY_CALL:
            return lambda program: any(map(OF_ANY_CALL[name], program.instructions))
        case [name] if name in OF_ANY_INPUT:
            return lambda program: any(map(OF_ANY_INPUT[name], program.inputs))
    given, known = " ".join(words), [*OF_PROGRAMS, *OF_ANY_CALL, *OF_ANY_INPUT]
    advice = f"use calls OP, mentions WORD, computes PROPERTY, {', '.join(known)}"
    raise UserError(f"no condition '{given}'{did_you_mean(given, known, advice)}")


# --- properties of a program ----------------------------------------------------------------------


def calls(program: Program, *names: str) -> bool:
    """Whether the program calls an op of one of these names, such as 'expand'."""
    return any(call.op.split(".")[1] in names for call in program.instructions)


def op_may_change_sizes(op: OpOverload) -> bool:
    """Whether the op sets a tensor to another one, or writes an `out` argument."""
    return op is torch.ops.aten.set_.source_Tensor or facts(op).kind is Kind.OUT


def _is_custom(call: Instruction) -> bool:
    return not call.op.startswith("aten.")


# Whether a call of the program has the property.
OF_ANY_CALL: dict[str, Callable[[Instruction], bool]] = {
    # It views a tensor as another dtype.
    "views_dtype": lambda call: "view.dtype" in call.op,
    # It writes an operand.
    "writes": Instruction.mutates,
    "writes_lists": lambda call: call.mutates() and call.op.startswith("aten._foreach_"),
    # It reduces all elements to the largest or smallest.
    "reduces_all_elements": (
        lambda call: call.op.split(".")[1] in ("amax", "amin") and len(call.args) == 1
    ),
    # It is given the scale of an upsampling.
    "upsamples_by_scale": (
        lambda call: (
            "upsample_nearest" in call.op and any(isinstance(it, float) for it in call.args)
        )
    ),
    # A scatter reduces by the mean.
    "scatters_mean": lambda call: "mean" in (*call.args, *dict(call.kwargs).values()),
    # The name of its overload is a keyword of Python, as in `aten.random_.from`.
    "calls_keyword_overload": lambda call: keyword.iskeyword(call.op.split(".")[-1]),
    # Its op is composite for all backends.
    "calls_composite": lambda call: not _is_custom(call) and is_composite(resolve(call.op)),
    "changes_metadata": (
        lambda call: not _is_custom(call) and torch.Tag.inplace_view in resolve(call.op).tags
    ),
    "may_change_sizes": lambda call: op_may_change_sizes(resolve(call.op)),
    "calls_custom_op": lambda call: not call.op.startswith(("aten.", "prims.")),
    # An operator of a library writes; its result is used; it takes several tensors.
    "writes_by_custom_op": lambda call: call.mutates() and _is_custom(call),
    "uses_result_of_custom_write": (
        lambda call: call.mutates() and bool(call.results) and _is_custom(call)
    ),
    "custom_op_writes_and_takes_several": (
        lambda call: call.mutates() and _is_custom(call) and len(call.refs) > 1
    ),
}
# Whether an input of the program has the property.
OF_ANY_INPUT: dict[str, Callable[[Input], bool]] = {
    "input_has_offset": lambda tensor: tensor.offset != 0,
    "input_has_stride_of_zero": lambda tensor: 0 in tensor.strides,
    "input_overlaps_itself": lambda tensor: any(
        stride == 0 and size > 1 for size, stride in zip(tensor.sizes, tensor.strides, strict=True)
    ),
    "input_is_not_dense": lambda tensor: tensor.strides != dense_strides(tensor.sizes),
    # A dimension of size 1 has another stride than in a dense tensor.
    "input_has_odd_stride": lambda tensor: any(
        size == 1 and stride != dense
        for size, stride, dense in zip(
            tensor.sizes, tensor.strides, dense_strides(tensor.sizes), strict=True
        )
    ),
    "input_is_complex": lambda tensor: tensor.dtype.is_complex,
    "input_is_float64_number": (
        lambda tensor: tensor.sizes == () and tensor.dtype is torch.float64
    ),
}


def _relayouts_input_and_writes(program: Program) -> bool:
    """Whether a program changes the layout of an input in place, and writes a tensor."""
    inputs = {given.name for given in program.inputs}
    writes = [call for call in program.instructions if call.mutates()]
    relayouts = [call for call in writes if torch.Tag.inplace_view in resolve(call.op).tags]
    of_input = any(isinstance(it.args[0], Ref) and it.args[0].name in inputs for it in relayouts)
    return of_input and len(writes) > len(relayouts)


def _hides_write_from_autograd(program: Program) -> bool:
    """Whether a write is through `detach`, without gradients, or by an operator of a library."""
    return calls(program, "detach") or any(
        call.mutates() and (not call.grad or call.op.startswith(NAMESPACE))
        for call in program.instructions
    )


def _inputs_share_across(of: Callable[[torch.dtype], object]) -> Condition:
    """Whether two inputs share a storage, and `of` differs for their dtypes."""

    def share(program: Program) -> bool:
        pairs = {(tensor.storage, of(tensor.dtype)) for tensor in program.inputs}
        return len(pairs) > len({tensor.storage for tensor in program.inputs})

    return share


def _has_short_integers(program: Program) -> bool:
    """Whether an input or a keyword argument has an integer dtype of 8 or 16 bits."""
    dtypes = {view.dtype for view in program.inputs}
    for call in program.instructions:
        dtypes |= {it for it in dict(call.kwargs).values() if isinstance(it, torch.dtype)}
    return any(dtype in SHORT for dtype in dtypes)


def _splits_elements(program: Program) -> bool:
    """Whether a storage ends within an element of an input, or is viewed as another dtype."""
    return any(map(OF_ANY_CALL["views_dtype"], program.instructions)) or any(
        program.storages[tensor.storage].nbytes % tensor.dtype.itemsize for tensor in program.inputs
    )


def _has_complex_input(program: Program) -> bool:
    return any(tensor.dtype.is_complex for tensor in program.inputs)


def _returns_input(program: Program) -> bool:
    return any(tensor.name in program.outputs for tensor in program.inputs)


OF_PROGRAMS: dict[str, Condition] = {
    "writes_twice": lambda program: sum(call.mutates() for call in program.instructions) > 1,
    # It computes attention without the fused operator.
    "attends": lambda program: calls(program, "bmm") and calls(program, "_softmax", "amax"),
    "relayouts_input_and_writes": _relayouts_input_and_writes,
    "hides_write_from_autograd": _hides_write_from_autograd,
    # Two inputs share a storage.
    "inputs_share": (
        lambda program: len({it.storage for it in program.inputs}) < len(program.inputs)
    ),
    "inputs_share_across_dtypes": _inputs_share_across(lambda dtype: dtype),
    "inputs_share_across_item_sizes": _inputs_share_across(lambda dtype: dtype.itemsize),
    "several_inputs": lambda program: len(program.inputs) > 1,
    # An input is complex, or an argument is a complex dtype.
    "has_complex_numbers": (
        lambda program: _has_complex_input(program) or "torch.complex" in source(program)
    ),
    # An input or an argument is complex, such as the dtype of a result.
    "mentions_complex": (
        lambda program: _has_complex_input(program) or "complex" in repr(program.instructions)
    ),
    "has_short_integers": _has_short_integers,
    "splits_elements": _splits_elements,
    "returns_input": _returns_input,
    "returns_or_writes_input": (
        lambda program: (
            _returns_input(program) or any(call.mutates() for call in program.instructions)
        )
    ),
    # These may be one value under two names.
    "returns_several": lambda program: len(program.outputs) > 1,
    "returns_nothing": lambda program: not program.outputs,
}


# --- what a program computes, call by call --------------------------------------------------------


class ComputedCall(NamedTuple):
    """A call, its operands by name, as they were before the call, and its results."""

    instruction: Instruction
    operands: dict[str, torch.Tensor]
    results: list[torch.Tensor]

    @property
    def name(self) -> str:
        """The op, such as 'add_'."""
        return self.instruction.op.split(".")[1]

    def argument(self, position: int) -> torch.Tensor | None:
        """The tensor argument at a position; None if there is none."""
        args = self.instruction.args
        passed = args[position] if position < len(args) else None
        return self.operands[passed.name] if isinstance(passed, Ref) else None

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All operands and results."""
        return [*self.operands.values(), *self.results]


@functools.lru_cache(maxsize=16)
def computed_calls(program: Program) -> tuple[ComputedCall, ...]:
    """The calls of a program, up to the first that raises."""
    seed_generators()
    tensors = input_tensors(program)
    values = {view.name: x for view, x in zip(program.inputs, tensors, strict=True)}
    made = []
    for instruction in program.instructions:
        copies = clone_inputs([values[name] for name in instruction.refs])
        read = dict(zip(instruction.refs, copies, strict=True))
        try:
            returned = execution.call(instruction, values)
        except REFUSED:  # a target may accept it
            break
        values.update(zip(instruction.results, returned, strict=False))
        made.append(ComputedCall(instruction, read, clone_inputs(returned)))
    return tuple(made)


def computes(holds: Property, *names: str) -> Condition:
    """Whether a call of a program (of one of these ops, if any are named) has a property."""
    return lambda program: any(
        holds(made) for made in computed_calls(program) if not names or made.name in names
    )


# --- properties of a call -------------------------------------------------------------------------


def _of_any_operand(holds: Callable[[torch.Tensor], bool]) -> Property:
    return lambda made: any(map(holds, made.operands.values()))


def _exceeds(bits: int) -> Property:
    """Whether the call has an int64 number that needs more bits, not counting its sign."""

    def does(made: ComputedCall) -> bool:
        longs = (x for x in made.tensors if x.dtype == torch.int64 and x.numel() > 0)
        return any(int(x.max()) >= 2**bits or int(x.min()) < -(2**bits) for x in longs)

    return does


def _wraps(made: ComputedCall) -> bool:
    """Whether the call overflows a short integer: with int64, it gives other numbers."""
    wide = {name: x.long() if x.dtype in SHORT else x for name, x in made.operands.items()}
    try:
        exact = execution.call(made.instruction, wide)
    except REFUSED:  # the op needs the original dtypes
        return False
    return any(
        y.dtype in SHORT and not torch.equal(y.long(), z.long())
        for y, z in zip(made.results, exact, strict=False)
    )


# Some dtypes of few bits have no `isnan`.
_reads_nan = _of_any_operand(
    lambda x: bool((x.float() if x.is_floating_point() else x).isnan().any())
)


def _takes_nan_for_bool(made: ComputedCall) -> bool:
    """Whether the call computes bools from NaN, maybe stored in the dtype of a written operand."""
    of_bool = (
        any(y.dtype == torch.bool for y in made.results)
        or made.name.removesuffix("_") in COMPARISONS
    )
    return _reads_nan(made) and of_bool


def _have_other_shapes(first: int, second: int) -> Property:
    """Whether the tensor arguments at two positions have different shapes."""

    def differ(made: ComputedCall) -> bool:
        one, other = made.argument(first), made.argument(second)
        return one is not None and other is not None and one.shape != other.shape

    return differ


def _operand_and_mask_are_scalars(made: ComputedCall) -> bool:
    operand, mask = made.argument(0), made.argument(1)
    return operand is not None and mask is not None and operand.dim() == mask.dim() == 0


def _is_of_scalars_and_number(made: ComputedCall) -> bool:
    numbers = any(isinstance(it, int | float) for it in made.instruction.args)
    return numbers and all(x.dim() == 0 for x in made.operands.values())


def _returns_no_int32(made: ComputedCall) -> bool:
    """Whether a floating-point result is out of the range of int32, or NaN."""
    floats = (y for y in made.results if y.is_floating_point())
    return any(bool((~(y.abs() < 2**31)).any()) for y in floats)


def _has_no_slope(made: ComputedCall) -> bool:
    """Whether the quotient of two operands is NaN, although not both are zero."""
    above, beside = made.argument(0), made.argument(1)
    if above is None or beside is None:
        return False
    both_zero = (above == 0) & (beside == 0)
    return bool((torch.div(above, beside).isnan() & ~both_zero).any())


OF_COMPUTED_CALLS: dict[str, Property] = {
    **{f"exceeds_{bits}_bits": _exceeds(bits) for bits in (24, 31, 53)},
    "wraps": _wraps,
    "reads_nan": _reads_nan,
    "takes_nan_for_bool": _takes_nan_for_bool,
    "reads_uint8": _of_any_operand(lambda x: x.dtype == torch.uint8),
    "reads_halves": _of_any_operand(lambda x: x.dtype in (torch.float16, torch.bfloat16)),
    # An operand does not cover its storage in the order of its elements.
    "reads_part_of_storage": _of_any_operand(
        lambda x: not x.is_contiguous() or x.nbytes < x.untyped_storage().nbytes()
    ),
    "reads_empty": _of_any_operand(lambda x: x.numel() == 0),
    "reads_scalar": _of_any_operand(lambda x: x.dim() == 0),
    "is_of_scalars": lambda made: all(x.dim() == 0 for x in made.tensors),
    "is_of_scalars_and_number": _is_of_scalars_and_number,
    "operand_and_mask_are_scalars": _operand_and_mask_are_scalars,
    "index_has_other_shape": _have_other_shapes(0, 2),
    # Of a scatter, the source and the index.
    "source_has_other_shape": _have_other_shapes(2, 3),
    "returns_integers": lambda made: not any(y.dtype.is_floating_point for y in made.results),
    "returns_no_int32": _returns_no_int32,
    "has_no_slope": _has_no_slope,
}
