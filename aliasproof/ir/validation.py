"""The rules of a well-formed `Program`, as a table.

A well-formed program can be printed, written, read and passed to the dispatcher. The rules do not
decide whether eager accepts its sizes, or whether it is defined in eager. They accept every call
that an ATen overload accepts, except implicit conversions that would hide a tensor: a tensor as a
number, and a tensor as the list of its rows.
"""

from __future__ import annotations

import functools
import keyword
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch

from aliasproof.ir.devices import ADVICE, is_device_name
from aliasproof.ir.errors import UserError, did_you_mean, shown
from aliasproof.ir.program import GRADIENTS, Argument, Instruction, Program, Ref
from aliasproof.ir.regions import reach
from aliasproof.ir.schemas import resolve
from aliasproof.ir.values import FILLS, element_value

# --- defect ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Defect:
    """An error in a program, and its location, such as `instructions[3].args[1]`."""

    location: str
    message: str

    def __str__(self) -> str:
        return f"{self.location}: {self.message}"


WellFormednessRule: TypeAlias = Callable[[Program], Iterator[Defect]]


def definitions(program: Program) -> Iterator[tuple[str, str]]:
    """The location of each definition, and the name that it defines."""
    for index, view in enumerate(program.inputs):
        yield f"inputs[{index}].name", view.name
    for index, instruction in enumerate(program.instructions):
        for position, name in enumerate(instruction.results):
            yield f"instructions[{index}].results[{position}]", name


def fits_int64(value: int) -> bool:
    """True if the integer has at most 64 bits with sign."""
    return -(2**63) <= value < 2**63


# --- rules, in the order of `RULES`, which has the reason for each --------------------------------


# The limit for all storages together, and for one view, whose repeated elements count each time.
MOST_BYTES = 64 * 2**20
MOST_PARTS = 10_000  # storages, inputs, instructions, outputs, each
MOST_DIMENSIONS = 16

# The dtypes that `fill` supports. Quantised, packed and sub-byte dtypes are left out. So is
# complex32, because every use of it warns.
ELEMENT_DTYPES = frozenset(
    getattr(torch, name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
)

RESERVED = frozenset({"torch", "aten", "float", "complex", "getattr"})  # used by printed source


# --- the program as a whole -----------------------------------------------------------------------


def few_parts(program: Program) -> Iterator[Defect]:
    for part in ("storages", "inputs", "instructions", "outputs"):
        count = len(getattr(program, part))
        if count > MOST_PARTS:
            yield Defect(part, f"{count:,} are too many; at most {MOST_PARTS:,} are allowed")


def seed_in_64_bits(program: Program) -> Iterator[Defect]:
    if not fits_int64(program.seed):
        yield Defect("seed", f"expected an integer of 64 bits with sign, got {shown(program.seed)}")


def gradients_known(program: Program) -> Iterator[Defect]:
    for index, storage in enumerate(program.storages):
        if storage.gradient not in GRADIENTS:
            known = ", ".join(GRADIENTS)
            message = f"expected one of {known}, got {shown(storage.gradient)}"
            yield Defect(f"storages[{index}].gradient", message)


def fill_known(program: Program) -> Iterator[Defect]:
    if program.fill not in FILLS:
        message = f"there is no fill {shown(program.fill)}; write one of {', '.join(FILLS)}"
        yield Defect("fill", message)


def device_known(program: Program) -> Iterator[Defect]:
    if not is_device_name(program.device):
        yield Defect("device", f"{shown(program.device)} is not supported; {ADVICE}")


def names_printable(program: Program) -> Iterator[Defect]:
    for location, name in definitions(program):
        # Python normalises other letters when it reads source ("ﬁ" becomes "fi"), so such a name
        # would come back changed.
        if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
            message = f"{shown(name)} is not a name; write an ASCII Python identifier, such as x0"
            yield Defect(location, message)
        if name.startswith("_") or name in RESERVED:
            yield Defect(location, f"the name {name!r} is reserved; write one such as x0")


def names_unique(program: Program) -> Iterator[Defect]:
    first: dict[str, str] = {}
    for location, name in definitions(program):
        if name in first:
            yield Defect(location, f"the name {name!r} is already defined at {first[name]}")
        first[name] = location


# --- storages and inputs --------------------------------------------------------------------------


def dtypes_fillable(program: Program) -> Iterator[Defect]:
    dtypes = {
        f"storages[{index}].dtype": storage.dtype for index, storage in enumerate(program.storages)
    } | {f"inputs[{index}].dtype": view.dtype for index, view in enumerate(program.inputs)}
    for location, dtype in dtypes.items():
        if dtype not in ELEMENT_DTYPES:
            message = f"tensors of {dtype} cannot be filled with values; use another dtype"
            yield Defect(location, message)


def storages_small(program: Program) -> Iterator[Defect]:
    total = 0
    for index, storage in enumerate(program.storages):
        location = f"storages[{index}].length"
        total += storage.nbytes
        if storage.length < 0:
            message = f"{shown(storage.length)} is negative; write 0 or more elements"
            yield Defect(location, message)
        if total > MOST_BYTES:
            message = f"the storages up to here have more than {MOST_BYTES:,} bytes; shorten them"
            yield Defect(location, message)


def values_readable(program: Program) -> Iterator[Defect]:
    for index, storage in enumerate(program.storages):
        for position, text in enumerate(storage.values):
            location = f"storages[{index}].values[{position}]"
            try:
                element_value(text, storage.dtype)
            except ValueError:
                yield Defect(location, f"{shown(text)} is not a value of {storage.dtype}")


def storage_exists(program: Program) -> Iterator[Defect]:
    count = len(program.storages)
    for index, view in enumerate(program.inputs):
        if not 0 <= view.storage < count:
            message = f"there is no storage {shown(view.storage)}; the program has {count} of them"
            yield Defect(f"inputs[{index}].storage", message)


def one_stride_per_size(program: Program) -> Iterator[Defect]:
    for index, view in enumerate(program.inputs):
        sizes, strides = len(view.sizes), len(view.strides)
        if sizes != strides:
            message = f"{strides} strides for {sizes} sizes; write one stride per dimension"
            yield Defect(f"inputs[{index}].strides", message)
        if sizes > MOST_DIMENSIONS:
            message = f"{sizes} dimensions are too many; at most {MOST_DIMENSIONS} are allowed"
            yield Defect(f"inputs[{index}].sizes", message)


def layout_in_range(program: Program) -> Iterator[Defect]:
    for index, view in enumerate(program.inputs):
        layout = {"sizes": view.sizes, "strides": view.strides, "offset": (view.offset,)}
        for field, values in layout.items():
            for value in values:
                if not 0 <= value <= MOST_BYTES:
                    message = f"{shown(value)} is not in the range 0..{MOST_BYTES}"
                    yield Defect(f"inputs[{index}].{field}", message)


def views_small(program: Program) -> Iterator[Defect]:
    for index, view in enumerate(program.inputs):
        # A size of 0 does not make the others harmless: PyTorch multiplies them all and refuses a
        # product of over 64 bits.
        numel = math.prod(max(size, 1) for size in view.sizes)
        if numel * view.dtype.itemsize > MOST_BYTES:
            yield Defect(
                f"inputs[{index}].sizes",
                f"{shown(view.sizes)} is more than {MOST_BYTES:,} bytes of {view.dtype};"
                " use smaller sizes",
            )


def views_inside_storage(program: Program) -> Iterator[Defect]:
    for index, view in enumerate(program.inputs):
        available, span = program.storages[view.storage].nbytes, reach(view.sizes, view.strides)
        end = (view.offset + span) * view.dtype.itemsize
        if span and end > available:  # an empty view covers no byte, even with an offset
            place = f"outside storage {view.storage}, which has {available} bytes"
            yield Defect(f"inputs[{index}]", f"the view ends at byte {end}, {place}")


# --- what a schema says ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """The schema of one argument.

    `repeats` is true for lists with a length, such as int[2], for which one number is enough.
    `wraps` is true for tensors for which the dispatcher also accepts a number.
    """

    name: str
    kind: str
    required: bool
    repeats: bool
    wraps: bool


@dataclass(frozen=True, slots=True)
class CallSchema:
    """The arguments and results of an overload, by its schema.

    Positional arguments may be given by name.
    """

    positional: tuple[Parameter, ...]
    by_name: dict[str, Parameter]
    returns: tuple[str, ...]


# In a graph that Dynamo captures, `x + 2` is `aten.add.Tensor(x, 2)`: the number counts as a tensor
# without dimensions that promotes as a number does. Torch allows it for these ops
# (`should_allow_numbers_as_tensors` in torch/csrc/utils/python_arg_parser.cpp).
WRAPPING = {"add", "sub", "mul", "div", "true_divide", "floor_divide"}


# Cached, since reading a schema takes longer than all the rules.
@functools.cache
def call_schema(op: str) -> CallSchema:
    """The call schema of a known operator."""
    schema = resolve(op)._schema
    parameters = {
        argument.name: Parameter(
            name=argument.name,
            kind=str(argument.real_type),
            required=not argument.has_default_value(),
            # `getattr`, since torch's stubs lack the attribute.
            repeats=getattr(argument, "N", None) is not None,
            wraps=argument.name == "other" and op.split(".")[1].rstrip("_") in WRAPPING,
        )
        for argument in schema.arguments
    }
    positional = tuple(
        parameters[argument.name] for argument in schema.arguments if not argument.kwarg_only
    )
    return CallSchema(
        positional, parameters, tuple(str(returned.type) for returned in schema.returns)
    )


# --- calls ----------------------------------------------------------------------------------------


def ops_known(program: Program) -> Iterator[Defect]:
    for index, instruction in enumerate(program.instructions):
        location = f"instructions[{index}].op"
        # `resolve` repeats the name in its message, so long or unprintable names are refused first.
        if not re.fullmatch(r"[\w.]{1,200}", instruction.op, re.ASCII):
            name = shown(instruction.op)
            message = f"{name} is not an operator name; write one such as aten.add.Tensor"
            yield Defect(location, message)
        try:
            resolve(instruction.op)
        except UserError as error:
            yield Defect(location, str(error))


def arguments_named_once(program: Program) -> Iterator[Defect]:
    for index, instruction in enumerate(program.instructions):
        location, op = f"instructions[{index}].kwargs", instruction.op
        parameters, given = call_schema(op).by_name, _given_by_position(instruction)
        for key, _ in instruction.kwargs:
            if key not in parameters:
                hint = did_you_mean(key, parameters)
                yield Defect(location, f"{op} takes no argument {shown(key)}{hint}")
            if key in given:
                yield Defect(f"{location}.{key}", f"{op} is given the argument {key!r} twice")
            given.add(key)


def no_surplus_arguments(program: Program) -> Iterator[Defect]:
    for index, instruction in enumerate(program.instructions):
        most, count = len(call_schema(instruction.op).positional), len(instruction.args)
        if count > most:
            message = f"{instruction.op} takes {most} positional arguments, {count} are given"
            yield Defect(f"instructions[{index}].args[{most}]", message)


def no_missing_arguments(program: Program) -> Iterator[Defect]:
    for index, instruction in enumerate(program.instructions):
        given = _given_by_position(instruction) | {key for key, _ in instruction.kwargs}
        for parameter in call_schema(instruction.op).by_name.values():
            if parameter.required and parameter.name not in given:
                needed = f"{parameter.name!r} ({parameter.kind})"
                message = f"{instruction.op} needs the argument {needed}"
                yield Defect(f"instructions[{index}].args", message)


def _given_by_position(instruction: Instruction) -> set[str]:
    positional = call_schema(instruction.op).positional
    return {parameter.name for parameter in positional[: len(instruction.args)]}


def arguments_fit(program: Program) -> Iterator[Defect]:
    for index, instruction in enumerate(program.instructions):
        for location, parameter, argument in _arguments(instruction):
            if not fits(argument, parameter):
                expected = f"{parameter.name!r} of {instruction.op} is {parameter.kind}"
                message = f"{expected}, got {shown(argument)}"
                yield Defect(f"instructions[{index}].{location}", message)


def devices_agree(program: Program) -> Iterator[Defect]:
    for index, instruction in enumerate(program.instructions):
        given = dict(instruction.kwargs).get("device")
        if given not in (None, program.device):
            message = f"is {shown(given)}, but the program is on {program.device!r}"
            yield Defect(f"instructions[{index}].kwargs.device", message)


def _arguments(instruction: Instruction) -> Iterator[tuple[str, Parameter, Argument]]:
    """For each argument given: its location in the instruction, its parameter, and the argument."""
    known = call_schema(instruction.op)
    pairs = zip(known.positional, instruction.args, strict=False)
    for position, (parameter, argument) in enumerate(pairs):
        yield f"args[{position}]", parameter, argument
    for key, argument in instruction.kwargs:
        yield f"kwargs.{key}", known.by_name[key], argument


def results_counted(program: Program) -> Iterator[Defect]:
    for index, instruction in enumerate(program.instructions):
        op, returns = instruction.op, call_schema(instruction.op).returns
        if not instruction.results or returns == ("List[Tensor]",):
            continue
        location, count = f"instructions[{index}].results", len(instruction.results)
        if set(returns) != {"Tensor"}:
            what = ", ".join(returns) or "nothing"
            yield Defect(location, f"{op} returns {what}, not tensors alone; name no results")
        elif count != len(returns):
            message = f"{op} returns {len(returns)} tensors, {count} are named; name all or none"
            yield Defect(location, message)


# --- which argument converts to which type --------------------------------------------------------


def fits(argument: Argument, parameter: Parameter) -> bool:
    """True if the dispatcher converts the argument to the type that the schema states."""
    if parameter.repeats and "List[int]" in parameter.kind and _is_int(argument):
        return True  # one number, repeated in each dimension
    if parameter.wraps and parameter.kind == "Tensor" and _is_number(argument):
        return True
    return _fits_kind(argument, parameter.kind)


def _fits_kind(argument: Argument, kind: str) -> bool:
    if kind.startswith("Optional["):
        return argument is None or _fits_kind(argument, kind[len("Optional[") : -1])
    if kind.startswith("List["):
        inner = kind[len("List[") : -1]
        return isinstance(argument, tuple) and all(_fits_kind(item, inner) for item in argument)
    # No program can contain the kinds without an entry, such as generators.
    return kind in KINDS and KINDS[kind](argument)


def _is_int(argument: Argument) -> bool:
    # A bool is an int to the dispatcher too.
    return isinstance(argument, int) and fits_int64(argument)


def _is_float(argument: Argument) -> bool:
    return isinstance(argument, float) or (
        isinstance(argument, int) and abs(argument) <= sys.float_info.max
    )


def _is_number(argument: Argument) -> bool:
    return isinstance(argument, float) or (
        isinstance(argument, int) and -(2**63) <= argument < 2**64
    )


def _is_plain_text(argument: Argument) -> bool:
    # Modes such as "floor", and equations of einsum. A program may come from a file and is run, so
    # no text can be a path.
    return (
        isinstance(argument, str) and re.fullmatch(r"[\w,>-]{1,40}", argument, re.ASCII) is not None
    )


KINDS: dict[str, Callable[[Argument], bool]] = {
    "Tensor": lambda argument: isinstance(argument, Ref),
    "int": _is_int,
    "bool": lambda argument: isinstance(argument, int),
    "float": _is_float,
    "number": _is_number,
    "str": _is_plain_text,
    "Device": lambda argument: isinstance(argument, str) and is_device_name(argument),
    # The dispatcher accepts the next three as the integers of their C++ enumerations. Only dtypes
    # have a value of their own in a program.
    "ScalarType": lambda argument: isinstance(argument, torch.dtype) or _is_int(argument),
    "Layout": _is_int,
    "MemoryFormat": _is_int,
}


# --- uses -----------------------------------------------------------------------------------------


def uses_defined(program: Program) -> Iterator[Defect]:
    everything = {name for _, name in definitions(program)}
    known = {view.name for view in program.inputs}
    for index, instruction in enumerate(program.instructions):
        for place, _, argument in _arguments(instruction):
            for location, name in _uses_in(argument, f"instructions[{index}].{place}"):
                if name not in known:
                    yield Defect(location, _undefined_message(name, known, everything))
        known.update(instruction.results)
    for index, name in enumerate(program.outputs):
        if name not in known:
            yield Defect(f"outputs[{index}]", _undefined_message(name, known, everything))


def _undefined_message(name: str, known: set[str], everything: set[str]) -> str:
    if name in everything:
        return f"refers to {name!r} before it is defined"
    hint = did_you_mean(name, sorted(known))
    return f"refers to {shown(name)}, which is not defined anywhere{hint}"


def _uses_in(argument: Argument, location: str) -> Iterator[tuple[str, str]]:
    """The location of each use in an argument, and the name that is used."""
    if isinstance(argument, Ref):
        yield location, argument.name
    elif isinstance(argument, tuple):
        for position, element in enumerate(argument):
            yield from _uses_in(element, f"{location}[{position}]")


# --- validation -----------------------------------------------------------------------------------


def validate(program: Program) -> None:
    """Raise a `UserError` with the location and the defect, unless the program is well formed."""
    defect = first_defect(program)
    if defect is not None:
        raise UserError(str(defect))


def first_defect(program: Program) -> Defect | None:
    """The first defect in the order of `RULES`.

    Later defects are meaningless, because each rule relies on the rules before it.
    """
    return next((defect for rule in RULES for defect in rule(program)), None)


RULES: tuple[WellFormednessRule, ...] = (
    # The checks below visit all parts one by one, so there must be few.
    few_parts,
    # The seed enters arithmetic on int64 tensors.
    seed_in_64_bits,
    # The fill is one that `aliasproof.ir.values` knows.
    fill_known,
    # Autograd sees a storage in one of the known ways.
    gradients_known,
    # This does not check whether the device is available.
    device_known,
    # Printed source contains the names as they are.
    names_printable,
    # A name is defined once, so the meaning of a use does not depend on its position.
    names_unique,
    # An input needs a dtype that can be filled with values.
    dtypes_fillable,
    # Lengths are 0 or more, and memory has room for all storages many times over.
    storages_small,
    # A storage's own values are numbers that its dtype has.
    values_readable,
    # An input views one of the storages.
    storage_exists,
    # Sizes and strides belong together, dimension by dimension.
    one_stride_per_size,
    # Sizes, strides and offset are not negative, and not larger than the largest storage.
    layout_in_range,
    # A stride of 0 must not turn a small storage into a view of terabytes.
    views_small,
    # In bytes, since storage and view may differ in dtype.
    views_inside_storage,
    # The dispatcher has the operator.
    ops_known,
    # Keyword arguments exist in the schema, and nothing is given twice.
    arguments_named_once,
    # No more positional arguments than the schema takes; those after its `*` need their name.
    no_surplus_arguments,
    # An argument without a default is given.
    no_missing_arguments,
    # Each argument converts to the type in the schema.
    arguments_fit,
    # A program is on one device.
    devices_agree,
    # All the tensors that a call returns are named, or none.
    results_counted,
    # Values are used after their definition, and the outputs exist.
    uses_defined,
)
