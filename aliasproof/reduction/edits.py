"""Edits: the same program with one part replaced or removed."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar

import torch

from aliasproof.ir.execution import call
from aliasproof.ir.program import Argument, Input, Instruction, Program, Ref
from aliasproof.ir.regions import dense_strides
from aliasproof.ir.schemas import resolve

T = TypeVar("T")


def fractions(count: int) -> Iterator[int]:
    """Half of the count, a quarter, an eighth, down to 1. Empty for a count of 0."""
    size = count
    while size > 1:
        size //= 2
        yield size
    if count == 1:
        yield 1


def put(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    """The items with another one at that index."""
    return (*items[:index], item, *items[index + 1 :])


def without(items: tuple[T, ...], index: int) -> tuple[T, ...]:
    """The items without the one at that index."""
    return items[:index] + items[index + 1 :]


def without_undefined(program: Program) -> Program:
    """The program without the instructions and outputs that use undefined values."""
    defined = {view.name for view in program.inputs}
    kept = []
    # One pass is enough: the results of a removed instruction are undefined for later ones.
    for instruction in program.instructions:
        if all(name in defined for name in instruction.refs):
            kept.append(instruction)
            defined.update(instruction.results)
    outputs = tuple(name for name in program.outputs if name in defined)
    return replace(program, instructions=tuple(kept), outputs=outputs)


# --- inputs that no instruction uses --------------------------------------------------------------


def unused_inputs(program: Program) -> list[Input]:
    """The inputs that no instruction uses.

    To be returned is no use: Dynamo then returns the argument itself, and its graph does not take
    the input.
    """
    used = {name for instruction in program.instructions for name in instruction.refs}
    return [view for view in program.inputs if view.name not in used]


def tidy_versions(program: Program) -> Iterator[Program]:
    """The program without the inputs that no instruction uses; then with a use of some of them.

    Only an unused input that shares its storage can matter, so only such an input gets a use.
    Storages without inputs are removed, too.
    """
    unused = unused_inputs(program)
    if not unused:
        yield program.without_unused_storages()
        return
    names = {view.name for view in unused}
    used = {view.storage for view in program.inputs if view.name not in names}
    yield _without_inputs(program, names)
    sharing = {view.name for view in unused if view.storage in used}
    if sharing:
        yield _with_uses(_without_inputs(program, names - sharing), sorted(sharing))


def _without_inputs(program: Program, names: set[str]) -> Program:
    inputs = tuple(view for view in program.inputs if view.name not in names)
    outputs = tuple(name for name in program.outputs if name not in names)
    return replace(program, inputs=inputs, outputs=outputs).without_unused_storages()


def _with_uses(program: Program, names: list[str]) -> Program:
    """The program with one more instruction per name, whose result is unused."""
    taken = {view.name for view in program.inputs}
    taken |= {result for instruction in program.instructions for result in instruction.results}
    uses = []
    for name in names:
        result = f"used_{name}"
        while result in taken:
            result += "_"
        taken.add(result)
        uses.append(Instruction("aten.add.Scalar", (Ref(name), 1), (), (result,)))
    return replace(program, instructions=(*program.instructions, *uses))


# --- simplicity -----------------------------------------------------------------------------------


# From plain to less plain. Any other dtype counts as less plain than these.
_PLAIN_DTYPE_NAMES = (
    "float32 int64 float64 bool bfloat16 complex64 int32 float16 int16 int8 uint8 complex128"
    " float8_e5m2 float8_e4m3fn"
)
_PLAIN_DTYPES = [getattr(torch, name) for name in _PLAIN_DTYPE_NAMES.split()]
# Readers recognise these immediately. Any other op counts as less plain.
_PLAIN_OP_NAMES = (
    "alias.default add_.Scalar add.Scalar zero_.default fill_.Scalar copy_.default add.Tensor"
    " clone.default select.int slice.Tensor view.default transpose.int expand.default"
)
_PLAIN_OPS = [f"aten.{name}" for name in _PLAIN_OP_NAMES.split()]
# By the name of the op without overload: the constant with which it returns its operand.
_NEUTRAL = {
    **dict.fromkeys(("add", "sub", "bitwise_or", "bitwise_xor", "roll"), 0),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), 0),
    **dict.fromkeys(("mul", "div", "pow"), 1),
    "bitwise_and": -1,
}
_LARGEST = 10**6  # upper bound of a constant's weight, so that NaN and infinity have an order


class Simplicity(NamedTuple):
    """A sort key, compared field by field from the first: smaller is simpler.

    Each field is a number from zero up, in whole or half steps. So the order is well-founded: a
    program cannot become simpler infinitely often.
    """

    unused_inputs: int  # number of inputs that no instruction uses
    empty_values: int  # inputs and results without elements
    instructions: int  # number of instructions
    outputs: int  # number of returned values
    inputs: int  # number of inputs
    sharing_inputs: int  # inputs beyond the first of their storage
    storages: int  # number of storages
    idle_calls: int  # calls that change nothing, such as `add_(x, 0)`
    without_gradients: int  # calls without gradients, storages of leaves, and static inputs
    op_ranks: int  # how far the ops are from the plainest ones, in sum
    results: int  # number of named results
    arguments: int  # number of arguments, positional and keyword
    dtype_ranks: int  # how far the dtypes are from float32, in sum
    dimensions: int  # dimensions of all inputs
    bytes: int  # bytes of all storages
    sizes: int  # sum of all sizes of inputs
    strided_inputs: int  # inputs that are not dense
    offsets_and_strides: int  # sum of offsets and strides of inputs, in elements
    constants: float  # distance of all constants from zero
    special: int  # 1 if the fill is special
    values: int  # weight of the values that storages name
    seed: int  # 0 fills the storages with 1, 2, 3, ...
    late_uses: int  # how late the values in use are defined


def simplicity(program: Program) -> Simplicity:
    """The key of a program."""
    return _key_without_run(program)._replace(empty_values=empty_values(program))


def is_simpler(program: Program, key: Simplicity) -> bool:
    """Whether a program is simpler than the program with this key."""
    least = _key_without_run(program)
    # Most candidates are not simpler even without empty values, so they need no run.
    if least >= key:
        return False
    return least._replace(empty_values=empty_values(program)) < key


def _key_without_run(program: Program) -> Simplicity:
    """The key of the program if it had no empty values."""
    inputs, instructions = program.inputs, program.instructions
    return Simplicity(
        unused_inputs=len(unused_inputs(program)),
        empty_values=0,
        instructions=len(instructions),
        outputs=len(program.outputs),
        inputs=len(inputs),
        sharing_inputs=len(inputs) - len({view.storage for view in inputs}),
        storages=len(program.storages),
        idle_calls=sum(map(is_idle, instructions)),
        without_gradients=sum(not instruction.grad for instruction in instructions)
        + sum(storage.gradient != "computed" for storage in program.storages)
        + sum(view.static for view in inputs),
        op_ranks=sum(_op_rank(instruction.op) for instruction in instructions),
        results=sum(len(instruction.results) for instruction in instructions),
        arguments=sum(
            len(instruction.args) + len(instruction.kwargs) for instruction in instructions
        ),
        dtype_ranks=sum(_dtype_rank(storage.dtype) for storage in program.storages)
        + sum(_dtype_rank(view.dtype) for view in inputs),
        dimensions=sum(len(view.sizes) for view in inputs),
        bytes=sum(storage.nbytes for storage in program.storages),
        sizes=sum(sum(view.sizes) for view in inputs),
        strided_inputs=sum(view.strides != dense_strides(view.sizes) for view in inputs),
        offsets_and_strides=sum(view.offset + sum(view.strides) for view in inputs),
        constants=sum(
            _weight(value)
            for instruction in instructions
            for value in (instruction.args, *(value for _, value in instruction.kwargs))
        ),
        special=int(program.fill != "plain"),
        values=sum(
            1 if text == "1" else 1 + len(text)  # 1 is the simplest, a short text the next
            for storage in program.storages
            for text in storage.values
        ),
        seed=program.seed,
        late_uses=_late_uses(program),
    )


def empty_values(program: Program) -> int:
    """The number of inputs and results without elements. A program with fewer is simpler.

    A call on no elements shows little, so size 0 is not simpler than size 1. The program runs on
    meta tensors, which have shapes and no data. The count ends at an op that is not torch's own,
    has no meta kernel, or whose shapes depend on data.
    """
    values = {
        view.name: torch.empty_strided(view.sizes, view.strides, dtype=view.dtype, device="meta")
        for view in program.inputs
    }
    empty = [tensor.numel() == 0 for tensor in values.values()]
    for instruction in program.instructions:
        # The meta kernel of a custom operator is the user's code, which may crash or hang.
        if not instruction.op.startswith(("aten.", "prims.")):
            break
        try:
            made = dict(zip(instruction.results, call(instruction, values), strict=False))
            # An unnamed result is an argument, which was counted where it was defined.
            empty += [tensor.numel() == 0 for tensor in made.values()]
        except Exception:  # noqa: BLE001 - any kernel may raise anything; the predicate decides
            break
        values.update(made)
    return sum(empty)


def is_idle(instruction: Instruction) -> bool:
    """Whether a constant or an operand makes the call leave its first operand unchanged."""
    _, name, _ = instruction.op.split(".")
    if name == "copy_":  # a copy onto itself
        return len(instruction.args) > 1 and instruction.args[0] == instruction.args[1]
    neutral = _NEUTRAL.get(name.removesuffix("_"))
    if neutral is None or len(instruction.args) < 2:
        return False
    constant, keywords = instruction.args[1], dict(instruction.kwargs)
    if isinstance(constant, tuple):  # the shifts of `roll`
        return all(item == neutral for item in constant)
    return constant == neutral or (keywords.get("alpha") == 0 and neutral == 0)


@functools.cache
def _op_rank(name: str) -> int:
    if name in _PLAIN_OPS:
        return _PLAIN_OPS.index(name)
    # Among other ops, one with fewer tensor arguments is plainer.
    tensors = sum("Tensor" in str(argument.type) for argument in resolve(name)._schema.arguments)
    return len(_PLAIN_OPS) + tensors


def _dtype_rank(dtype: torch.dtype) -> int:
    return _PLAIN_DTYPES.index(dtype) if dtype in _PLAIN_DTYPES else len(_PLAIN_DTYPES)


def _weight(argument: Argument) -> float:
    """The distance of the constants from zero; a negative number weighs half a step more."""
    if isinstance(argument, tuple):
        return sum(map(_weight, argument)) + len(argument)  # a shorter list is simpler
    if isinstance(argument, (bool, int, float)):
        if argument != argument:  # NaN
            return _LARGEST
        size = min(abs(argument), _LARGEST)
        # A fraction is less plain than the whole number above it.
        whole = size if float(size).is_integer() else math.ceil(size) + 1
        return whole + (0.5 if argument < 0 else 0)
    return 0


def _late_uses(program: Program) -> int:
    """The sum, over all uses, of the position at which the used value is defined.

    Inputs are defined first, so a use of the first input counts nothing.
    """
    position = {view.name: index for index, view in enumerate(program.inputs)}
    total = 0
    for instruction in program.instructions:
        total += sum(position[name] for name in instruction.refs)
        for result in instruction.results:
            position[result] = len(position)
    return total + sum(position[name] for name in program.outputs)
