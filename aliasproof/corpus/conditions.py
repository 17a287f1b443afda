"""Conditions on programs, which the text of a bug names: they say which programs can show it.

`plausible` and `when` of a file in `corpus/bugs` are one condition, or several joined by "and". A
condition is

    calls OP ...              the program calls one of these ops, such as expand
    mentions WORD             the word is in the program, as in the name of an op or a dtype
    computes PROPERTY OP ...  a call, of one of these ops if some are named, has a property when it
                              runs in eager
    NAME                      a function of this module that is a `condition`

A property is a function of this module that is a `call_property`: it checks the numbers of a call.
A compiler that computes int64 in 32 bits is wrong only for larger numbers. So a mark with a
property of the numbers matches only that bug, where a mark on dtypes would match other bugs, too.
"""

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable, Iterator
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

_CONDITIONS: dict[str, Condition] = {}
_PROPERTIES: dict[str, Property] = {}


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
            if name not in _PROPERTIES:
                advice = f"use {', '.join(_PROPERTIES)}"
                raise UserError(f"no property '{name}'{did_you_mean(name, _PROPERTIES, advice)}")
            return computes(_PROPERTIES[name], *ops)
        case [name] if name in _CONDITIONS:
            return _CONDITIONS[name]
    given = " ".join(words)
    known = ("calls OP", "mentions WORD", "computes PROPERTY", *_CONDITIONS)
    advice = f"use {', '.join(known)}"
    raise UserError(f"no condition '{given}'{did_you_mean(given, _CONDITIONS, advice)}")


def condition(function: Condition) -> Condition:
    """Let files of bugs name this function."""
    _CONDITIONS[function.__name__] = function
    return function


def of_any_call(holds: Callable[[Instruction], bool]) -> Condition:
    """Let files of bugs name this function: a call of the program has the property."""
    made = functools.wraps(holds)(lambda program: any(map(holds, program.instructions)))
    return condition(made)


def of_any_input(holds: Callable[[Input], bool]) -> Condition:
    """Let files of bugs name this function: an input of the program has the property."""
    made = functools.wraps(holds)(lambda program: any(map(holds, program.inputs)))
    return condition(made)


# --- properties of a program ----------------------------------------------------------------------


def calls(program: Program, *names: str) -> bool:
    """Whether the program calls an op of one of these names, such as 'expand'."""
    return any(call.op.split(".")[1] in names for call in program.instructions)


@of_any_call
def views_dtype(call: Instruction) -> bool:
    """Whether the program views a tensor as another dtype."""
    return "view.dtype" in call.op


@of_any_call
def writes(call: Instruction) -> bool:
    """Whether an op of the program writes an operand."""
    return call.mutates()


@condition
def writes_twice(program: Program) -> bool:
    return sum(call.mutates() for call in program.instructions) > 1


@of_any_call
def writes_lists(call: Instruction) -> bool:
    return call.mutates() and call.op.startswith("aten._foreach_")


@condition
def attends(program: Program) -> bool:
    """Whether the program computes attention without the fused operator."""
    return calls(program, "bmm") and calls(program, "_softmax", "amax")


@of_any_call
def reduces_all_elements(call: Instruction) -> bool:
    """Whether the program reduces all elements to the largest or smallest."""
    return call.op.split(".")[1] in ("amax", "amin") and len(call.args) == 1


@of_any_call
def upsamples_by_scale(call: Instruction) -> bool:
    """Whether the program gives the scale of an upsampling."""
    return "upsample_nearest" in call.op and any(isinstance(it, float) for it in call.args)


@of_any_call
def scatters_mean(call: Instruction) -> bool:
    """Whether a scatter reduces by the mean."""
    return "mean" in (*call.args, *dict(call.kwargs).values())


@of_any_call
def calls_keyword_overload(call: Instruction) -> bool:
    """Whether the name of an overload is a keyword of Python, as in `aten.random_.from`."""
    return keyword.iskeyword(call.op.split(".")[-1])


@of_any_call
def calls_composite(call: Instruction) -> bool:
    """Whether an op is composite for all backends."""
    return call.op.startswith("aten.") and is_composite(resolve(call.op))


@of_any_call
def changes_metadata(call: Instruction) -> bool:
    return call.op.startswith("aten.") and torch.Tag.inplace_view in resolve(call.op).tags


@of_any_call
def may_change_sizes(call: Instruction) -> bool:
    return op_may_change_sizes(resolve(call.op))


def op_may_change_sizes(op: OpOverload) -> bool:
    """Whether the op sets a tensor to another one, or writes an `out` argument."""
    return op is torch.ops.aten.set_.source_Tensor or facts(op).kind is Kind.OUT


@condition
def relayouts_input_and_writes(program: Program) -> bool:
    """Whether a program changes the layout of an input in place, and writes a tensor."""
    inputs = {given.name for given in program.inputs}
    writes = [call for call in program.instructions if call.mutates()]
    relayouts = [call for call in writes if torch.Tag.inplace_view in resolve(call.op).tags]
    of_input = any(isinstance(it.args[0], Ref) and it.args[0].name in inputs for it in relayouts)
    return of_input and len(writes) > len(relayouts)


# --- operators of libraries -----------------------------------------------------------------------


@of_any_call
def calls_custom_op(call: Instruction) -> bool:
    return not call.op.startswith(("aten.", "prims."))


@of_any_call
def writes_by_custom_op(call: Instruction) -> bool:
    return call.mutates() and not call.op.startswith("aten.")


@of_any_call
def uses_result_of_custom_write(call: Instruction) -> bool:
    return call.mutates() and bool(call.results) and not call.op.startswith("aten.")


@of_any_call
def custom_op_writes_and_takes_several(call: Instruction) -> bool:
    """Whether an operator of a library writes, and takes several tensors."""
    return call.mutates() and not call.op.startswith("aten.") and len(call.refs) > 1


@condition
def hides_write_from_autograd(program: Program) -> bool:
    """Whether a write is through `detach`, without gradients, or by an operator of a library."""
    return calls(program, "detach") or any(
        call.mutates() and (not call.grad or call.op.startswith(NAMESPACE))
        for call in program.instructions
    )


# --- inputs and outputs ---------------------------------------------------------------------------


@condition
def inputs_share(program: Program) -> bool:
    """Whether two inputs share a storage."""
    used = [tensor.storage for tensor in program.inputs]
    return len(set(used)) < len(used)


@condition
def inputs_share_across_dtypes(program: Program) -> bool:
    dtypes = {(tensor.storage, tensor.dtype) for tensor in program.inputs}
    return len(dtypes) > len({tensor.storage for tensor in program.inputs})


@condition
def inputs_share_across_item_sizes(program: Program) -> bool:
    sizes = {(tensor.storage, tensor.dtype.itemsize) for tensor in program.inputs}
    return len(sizes) > len({tensor.storage for tensor in program.inputs})


@condition
def several_inputs(program: Program) -> bool:
    return len(program.inputs) > 1


@of_any_input
def input_has_offset(tensor: Input) -> bool:
    return tensor.offset != 0


@of_any_input
def input_has_stride_of_zero(tensor: Input) -> bool:
    return 0 in tensor.strides


@condition
def input_overlaps_itself(program: Program) -> bool:
    return any(
        stride == 0 and size > 1
        for tensor in program.inputs
        for size, stride in zip(tensor.sizes, tensor.strides, strict=True)
    )


@of_any_input
def input_is_not_dense(tensor: Input) -> bool:
    return tensor.strides != dense_strides(tensor.sizes)


@condition
def input_has_odd_stride(program: Program) -> bool:
    """Whether a dimension of size 1 has another stride than in a dense tensor."""
    return any(
        size == 1 and stride != dense
        for tensor in program.inputs
        for size, stride, dense in zip(
            tensor.sizes, tensor.strides, dense_strides(tensor.sizes), strict=True
        )
    )


@of_any_input
def input_is_complex(tensor: Input) -> bool:
    return tensor.dtype.is_complex


@condition
def has_complex_numbers(program: Program) -> bool:
    """Whether an input is complex, or an argument is a complex dtype."""
    return input_is_complex(program) or "torch.complex" in source(program)


@condition
def mentions_complex(program: Program) -> bool:
    """Whether an input or an argument is complex, such as the dtype of a result."""
    return input_is_complex(program) or "complex" in repr(program.instructions)


@condition
def has_short_integers(program: Program) -> bool:
    """Whether an input or a keyword argument has an integer dtype of 8 or 16 bits."""
    dtypes = {view.dtype for view in program.inputs}
    for call in program.instructions:
        dtypes |= {it for it in dict(call.kwargs).values() if isinstance(it, torch.dtype)}
    return any(dtype in SHORT for dtype in dtypes)


@of_any_input
def input_is_float64_number(tensor: Input) -> bool:
    return tensor.sizes == () and tensor.dtype is torch.float64


@condition
def splits_elements(program: Program) -> bool:
    """Whether a storage ends within an element of an input, or is viewed as another dtype."""
    return views_dtype(program) or any(
        program.storages[tensor.storage].nbytes % tensor.dtype.itemsize for tensor in program.inputs
    )


@condition
def returns_input(program: Program) -> bool:
    return any(tensor.name in program.outputs for tensor in program.inputs)


@condition
def returns_or_writes_input(program: Program) -> bool:
    return writes(program) or returns_input(program)


@condition
def returns_several(program: Program) -> bool:
    """Whether a program returns several values: these may be one value under two names."""
    return len(program.outputs) > 1


@condition
def returns_nothing(program: Program) -> bool:
    return not program.outputs


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
    return tuple(_run(program))


def computes(holds: Property, *names: str) -> Condition:
    """Whether a call of a program (of one of these ops, if any are named) has a property."""
    return lambda program: any(
        holds(made) for made in computed_calls(program) if not names or made.name in names
    )


def _run(program: Program) -> Iterator[ComputedCall]:
    seed_generators()
    tensors = input_tensors(program)
    values = {view.name: x for view, x in zip(program.inputs, tensors, strict=True)}
    for instruction in program.instructions:
        copies = clone_inputs([values[name] for name in instruction.refs])
        read = dict(zip(instruction.refs, copies, strict=True))
        try:
            returned = execution.call(instruction, values)
        except REFUSED:  # a target may accept it
            return
        values.update(zip(instruction.results, returned, strict=False))
        yield ComputedCall(instruction, read, clone_inputs(returned))


# --- properties of a call -------------------------------------------------------------------------


def call_property(function: Property) -> Property:
    """Let files of bugs name this function after `computes`."""
    _PROPERTIES[function.__name__] = function
    return function


def exceeds(bits: int) -> Callable[[ComputedCall], bool]:
    """Whether the call has an int64 number that needs more bits, not counting its sign."""

    def does(made: ComputedCall) -> bool:
        longs = (x for x in made.tensors if x.dtype == torch.int64 and x.numel() > 0)
        return any(int(x.max()) >= 2**bits or int(x.min()) < -(2**bits) for x in longs)

    return does


_PROPERTIES |= {f"exceeds_{bits}_bits": exceeds(bits) for bits in (24, 31, 53)}


@call_property
def wraps(made: ComputedCall) -> bool:
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


@call_property
def reads_nan(made: ComputedCall) -> bool:
    """Whether an operand contains NaN."""
    operands = (x.float() if x.is_floating_point() else x for x in made.operands.values())
    return any(bool(x.isnan().any()) for x in operands)


@call_property
def takes_nan_for_bool(made: ComputedCall) -> bool:
    """Whether the call computes bools from NaN, maybe stored in the dtype of a written operand."""
    of_bool = (
        any(y.dtype == torch.bool for y in made.results)
        or made.name.removesuffix("_") in COMPARISONS
    )
    return reads_nan(made) and of_bool


@call_property
def reads_uint8(made: ComputedCall) -> bool:
    return any(x.dtype == torch.uint8 for x in made.operands.values())


@call_property
def reads_halves(made: ComputedCall) -> bool:
    return any(x.dtype in (torch.float16, torch.bfloat16) for x in made.operands.values())


@call_property
def reads_part_of_storage(made: ComputedCall) -> bool:
    """Whether an operand does not cover its storage in the order of its elements."""
    return any(
        not x.is_contiguous() or x.numel() * x.element_size() < x.untyped_storage().nbytes()
        for x in made.operands.values()
    )


@call_property
def reads_empty(made: ComputedCall) -> bool:
    return any(x.numel() == 0 for x in made.operands.values())


@call_property
def reads_scalar(made: ComputedCall) -> bool:
    return any(x.dim() == 0 for x in made.operands.values())


@call_property
def is_of_scalars(made: ComputedCall) -> bool:
    return all(x.dim() == 0 for x in made.tensors)


@call_property
def is_of_scalars_and_number(made: ComputedCall) -> bool:
    numbers = any(isinstance(it, int | float) for it in made.instruction.args)
    return numbers and all(x.dim() == 0 for x in made.operands.values())


@call_property
def operand_and_mask_are_scalars(made: ComputedCall) -> bool:
    operand, mask = made.argument(0), made.argument(1)
    return operand is not None and mask is not None and operand.dim() == mask.dim() == 0


@call_property
def index_has_other_shape(made: ComputedCall) -> bool:
    operand, index = made.argument(0), made.argument(2)
    return operand is not None and index is not None and operand.shape != index.shape


@call_property
def source_has_other_shape(made: ComputedCall) -> bool:
    """Whether a scatter's source and index have different shapes."""
    index, source = made.argument(2), made.argument(3)
    return index is not None and source is not None and index.shape != source.shape


@call_property
def returns_integers(made: ComputedCall) -> bool:
    return all(not y.dtype.is_floating_point for y in made.results)


@call_property
def returns_no_int32(made: ComputedCall) -> bool:
    """Whether a floating-point result is out of the range of int32, or NaN."""
    floats = (y for y in made.results if y.is_floating_point())
    return any(bool((~(y.abs() < 2**31)).any()) for y in floats)


@call_property
def has_no_slope(made: ComputedCall) -> bool:
    """Whether the quotient of two operands is NaN, although not both are zero."""
    above, beside = made.argument(0), made.argument(1)
    if above is None or beside is None:
        return False
    both_zero = (above == 0) & (beside == 0)
    return bool((torch.div(above, beside).isnan() & ~both_zero).any())
