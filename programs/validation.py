"""What makes a `Program` well formed, as a table of rules.

A well-formed program can be printed, written, read and handed to the dispatcher; whether eager then
accepts its sizes, and whether eager gives it one meaning, is not decided here. The rules refuse
nothing that a call of an ATen overload accepts, but for implicit conversions that would hide a
tensor: a number for a tensor, a tensor for a number, and a tensor for the list of its rows.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import keyword
import math
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch

from programs.errors import UserError
from programs.program import Argument, Input, Instruction, Program, Ref
from programs.schemas import resolve

MOST_BYTES = (
    64 * 2**20
)  # of all storages together, and of one view with its repeated elements counted each time
MOST_PARTS = 10_000  # storages, inputs, instructions, outputs, each
MOST_DIMENSIONS = 16

# What can be filled with numbers: no quantised, packed or sub-byte dtypes, nor complex32, whose
# every use warns.
ELEMENT_DTYPES = frozenset(
    getattr(torch, name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
)

RESERVED = frozenset(
    {"torch", "aten", "float", "getattr"}
)  # names that the printed source uses itself


@dataclass(frozen=True, slots=True)
class Defect:
    """What is wrong with a program and where, such as `instructions[3].args[1]`."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


WellFormednessRule: TypeAlias = Callable[[Program], Iterator[Defect]]


def validate(program: Program) -> None:
    """Raise a `UserError` that names the place and the defect, unless the program is well formed."""
    defect = first_defect(program)
    if defect is not None:
        raise UserError(str(defect))


def first_defect(program: Program) -> Defect | None:
    """The first defect in the order of `RULES`.

    Only the first means something: each rule relies on those before it.
    """
    return next((defect for rule in RULES for defect in rule(program)), None)


class _Shown(reprlib.Repr):
    """A one-line form of any value, short enough for an error message."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 3, 60, 60

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write integers of more than 4,300 digits.
        return f"an integer of {x.bit_length()} bits" if x.bit_length() > 128 else str(x)

    def repr_Ref(self, x: Ref, level: int) -> str:  # noqa: N802 - reprlib looks for this name
        return f"the tensor {self.repr1(x.name, level)}"


shown = _Shown().repr


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, if any is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


# --- the program as a whole -----------------------------------------------------------------------


def few_parts(program: Program) -> Iterator[Defect]:
    for place in ("storages", "inputs", "instructions", "outputs"):
        count = len(getattr(program, place))
        if count > MOST_PARTS:
            yield Defect(place, f"{count:,} are too many; at most {MOST_PARTS:,} are allowed")


def seed_in_64_bits(program: Program) -> Iterator[Defect]:
    if not _fits_int64(program.seed):
        yield Defect("seed", f"expected an integer of 64 bits with sign, got {shown(program.seed)}")


def names_printable(program: Program) -> Iterator[Defect]:
    for place, name in _definitions(program):
        # Python folds other letters when it reads source ("ﬁ" becomes "fi"), so such a name would
        # come back changed.
        if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
            yield Defect(
                place, f"{shown(name)} is no name; write an ASCII Python identifier, such as x0"
            )
        if name.startswith("_") or name in RESERVED:
            yield Defect(place, f"the name {name!r} is reserved; write one such as x0")


def names_unique(program: Program) -> Iterator[Defect]:
    first: dict[str, str] = {}
    for place, name in _definitions(program):
        if name in first:
            yield Defect(place, f"the name {name!r} is already defined at {first[name]}")
        first[name] = place


def _definitions(program: Program) -> Iterator[tuple[str, str]]:
    """Where each name is defined, and the name."""
    for index, each in enumerate(program.inputs):
        yield f"inputs[{index}].name", each.name
    for index, instruction in enumerate(program.instructions):
        for position, name in enumerate(instruction.results):
            yield f"instructions[{index}].results[{position}]", name


# --- storages and inputs --------------------------------------------------------------------------


def dtypes_fillable(program: Program) -> Iterator[Defect]:
    dtypes = [
        (f"storages[{index}].dtype", each.dtype) for index, each in enumerate(program.storages)
    ]
    dtypes += [(f"inputs[{index}].dtype", each.dtype) for index, each in enumerate(program.inputs)]
    for place, dtype in dtypes:
        if dtype not in ELEMENT_DTYPES:
            yield Defect(
                place, f"tensors of {dtype} cannot be filled with numbers; take another dtype"
            )


def storages_small(program: Program) -> Iterator[Defect]:
    total = 0
    for index, storage in enumerate(program.storages):
        total += storage.nbytes
        if storage.length < 0:
            yield Defect(
                f"storages[{index}].length",
                f"{shown(storage.length)} is negative; write 0 or more elements",
            )
        if total > MOST_BYTES:
            message = (
                f"the storages up to here hold more than {MOST_BYTES:,} bytes; make them shorter"
            )
            yield Defect(f"storages[{index}].length", message)


def storage_exists(program: Program) -> Iterator[Defect]:
    count = len(program.storages)
    for index, each in enumerate(program.inputs):
        if not 0 <= each.storage < count:
            yield Defect(
                f"inputs[{index}].storage",
                f"there is no storage {shown(each.storage)}, only {count} of them",
            )


def one_stride_a_size(program: Program) -> Iterator[Defect]:
    for index, each in enumerate(program.inputs):
        if len(each.sizes) != len(each.strides):
            message = f"{len(each.strides)} strides for {len(each.sizes)} sizes; write one stride a dimension"
            yield Defect(f"inputs[{index}].strides", message)
        if len(each.sizes) > MOST_DIMENSIONS:
            message = (
                f"{len(each.sizes)} dimensions are too many; at most {MOST_DIMENSIONS} are allowed"
            )
            yield Defect(f"inputs[{index}].sizes", message)


def layout_in_range(program: Program) -> Iterator[Defect]:
    for index, each in enumerate(program.inputs):
        numbers = {"sizes": each.sizes, "strides": each.strides, "offset": (each.offset,)}
        for key, values in numbers.items():
            for value in values:
                if not 0 <= value <= MOST_BYTES:
                    yield Defect(
                        f"inputs[{index}].{key}",
                        f"{shown(value)} is not in the range 0..{MOST_BYTES}",
                    )


def views_small(program: Program) -> Iterator[Defect]:
    for index, each in enumerate(program.inputs):
        # A size of 0 does not excuse the others: PyTorch multiplies them all and refuses a product
        # of over 64 bits.
        if math.prod(max(size, 1) for size in each.sizes) * each.dtype.itemsize > MOST_BYTES:
            message = f"{shown(each.sizes)} is more than {MOST_BYTES:,} bytes of {each.dtype}; take smaller sizes"
            yield Defect(f"inputs[{index}].sizes", message)


def views_inside_storage(program: Program) -> Iterator[Defect]:
    for index, each in enumerate(program.inputs):
        available = program.storages[each.storage].nbytes
        if _end(each) > available:
            message = f"the view ends at byte {_end(each)}, outside storage {each.storage} of {available} bytes"
            yield Defect(f"inputs[{index}]", message)


def _end(view: Input) -> int:
    """The byte after the last one that the view covers; 0 for an empty view, which covers none, whatever its offset."""
    if 0 in view.sizes:
        return 0
    last = view.offset + sum(
        (size - 1) * stride for size, stride in zip(view.sizes, view.strides, strict=True)
    )
    return (last + 1) * view.dtype.itemsize


# --- instructions ---------------------------------------------------------------------------------


def ops_known(program: Program) -> Iterator[Defect]:
    for index, instruction in enumerate(program.instructions):
        place = f"instructions[{index}].op"
        if not re.fullmatch(
            r"[\w.]{1,200}", instruction.op, re.ASCII
        ):  # not to be repeated as it is in a message
            yield Defect(
                place,
                f"{shown(instruction.op)} is no operator name; write one such as aten.add.Tensor",
            )
        try:
            resolve(instruction.op)
        except UserError as error:
            yield Defect(place, str(error))


@dataclass(frozen=True, slots=True)
class Parameter:
    """What the schema says of one argument.

    `repeats` is true of lists with a length, such as int[2].
    """

    name: str
    kind: str
    required: bool
    repeats: bool


@dataclass(frozen=True, slots=True)
class CallSchema:
    """What the schema of an overload says of its arguments and results.

    Positional arguments may be given by name.
    """

    positional: tuple[Parameter, ...]
    by_name: dict[str, Parameter]
    returns: tuple[str, ...]


@functools.cache
def signature(op: str) -> CallSchema:
    """The signature of a known operator.

    Cached, since reading a schema takes longer than all the rules.
    """
    schema = resolve(op)._schema
    parameters = {
        each.name: Parameter(
            name=each.name,
            kind=str(each.real_type),
            required=not each.has_default_value(),
            repeats=getattr(each, "N", None) is not None,  # an attribute that torch's stubs lack
        )
        for each in schema.arguments
    }
    positional = tuple(parameters[each.name] for each in schema.arguments if not each.kwarg_only)
    return CallSchema(positional, parameters, tuple(str(each.type) for each in schema.returns))


def arguments_named_once(program: Program) -> Iterator[Defect]:
    for index, instruction in enumerate(program.instructions):
        parameters, given = signature(instruction.op).by_name, _given_by_position(instruction)
        for key, _ in instruction.kwargs:
            if key not in parameters:
                message = (
                    f"{instruction.op} takes no argument {shown(key)}{nearest(key, parameters)}"
                )
                yield Defect(f"instructions[{index}].kwargs", message)
            if key in given:
                message = f"{instruction.op} is given the argument {key!r} twice"
                yield Defect(f"instructions[{index}].kwargs.{key}", message)
            given.add(key)


def no_surplus_arguments(program: Program) -> Iterator[Defect]:
    for index, instruction in enumerate(program.instructions):
        most, count = len(signature(instruction.op).positional), len(instruction.args)
        if count > most:
            message = f"{instruction.op} takes {most} positional arguments, {count} are given"
            yield Defect(f"instructions[{index}].args[{most}]", message)


def no_missing_arguments(program: Program) -> Iterator[Defect]:
    for index, instruction in enumerate(program.instructions):
        given = _given_by_position(instruction) | {key for key, _ in instruction.kwargs}
        for parameter in signature(instruction.op).by_name.values():
            if parameter.required and parameter.name not in given:
                message = (
                    f"{instruction.op} needs the argument {parameter.name!r} ({parameter.kind})"
                )
                yield Defect(f"instructions[{index}].args", message)


def _given_by_position(instruction: Instruction) -> set[str]:
    return {each.name for each in signature(instruction.op).positional[: len(instruction.args)]}


def arguments_fit(program: Program) -> Iterator[Defect]:
    for index, instruction in enumerate(program.instructions):
        for place, parameter, argument in _bound(instruction):
            if not fits(argument, parameter):
                message = f"{parameter.name!r} of {instruction.op} is {parameter.kind}, got {shown(argument)}"
                yield Defect(f"instructions[{index}].{place}", message)


def _bound(instruction: Instruction) -> Iterator[tuple[str, Parameter, Argument]]:
    """For each argument given: its place in the instruction, what the schema says of it, and the argument."""
    known = signature(instruction.op)
    for position, (parameter, argument) in enumerate(
        zip(known.positional, instruction.args, strict=False)
    ):
        yield f"args[{position}]", parameter, argument
    for key, argument in instruction.kwargs:
        yield f"kwargs.{key}", known.by_name[key], argument


def fits(argument: Argument, parameter: Parameter) -> bool:
    """True if the dispatcher converts the argument to the type that the schema states."""
    if parameter.repeats and "List[int]" in parameter.kind and _is_int(argument):
        return True  # the one number that is repeated
    return _fits_kind(argument, parameter.kind)


def _fits_kind(argument: Argument, kind: str) -> bool:
    if kind.startswith("Optional["):
        return argument is None or _fits_kind(argument, kind[len("Optional[") : -1])
    if kind.startswith("List["):
        element = kind[len("List[") : -1]
        return isinstance(argument, tuple) and all(_fits_kind(each, element) for each in argument)
    # Devices, generators and strings, for instance: no program can hold one.
    return kind in KINDS and KINDS[kind](argument)


def _fits_int64(value: int) -> bool:
    return -(2**63) <= value < 2**63


def _is_int(argument: Argument) -> bool:
    return isinstance(argument, int) and _fits_int64(
        argument
    )  # a bool is an int to the dispatcher too


def _is_float(argument: Argument) -> bool:
    return isinstance(argument, float) or (
        isinstance(argument, int) and abs(argument) <= sys.float_info.max
    )


def _is_number(argument: Argument) -> bool:
    return isinstance(argument, float) or (
        isinstance(argument, int) and -(2**63) <= argument < 2**64
    )


KINDS: dict[str, Callable[[Argument], bool]] = {
    "Tensor": lambda argument: isinstance(argument, Ref),
    "int": _is_int,
    "bool": lambda argument: isinstance(argument, int),
    "float": _is_float,
    "number": _is_number,
    # The next three travel as the integers of their C++ enumerations; only dtypes have a value of
    # their own here.
    "ScalarType": lambda argument: isinstance(argument, torch.dtype) or _is_int(argument),
    "Layout": _is_int,
    "MemoryFormat": _is_int,
}


def results_counted(program: Program) -> Iterator[Defect]:
    for index, instruction in enumerate(program.instructions):
        returns = signature(instruction.op).returns
        if not instruction.results or returns == ("List[Tensor]",):
            continue
        place, count = f"instructions[{index}].results", len(instruction.results)
        if set(returns) != {"Tensor"}:
            what = ", ".join(returns) or "nothing"
            yield Defect(
                place, f"{instruction.op} returns {what}, not tensors alone; name no results"
            )
        elif count != len(returns):
            yield Defect(
                place,
                f"{instruction.op} returns {len(returns)} tensors, {count} are named; name all or none",
            )


# --- uses -----------------------------------------------------------------------------------------


def uses_defined(program: Program) -> Iterator[Defect]:
    everything = {name for _, name in _definitions(program)}
    known = {each.name for each in program.inputs}
    for index, instruction in enumerate(program.instructions):
        for place, name in _uses(instruction):
            if name not in known:
                yield Defect(f"instructions[{index}].{place}", _undefined(name, known, everything))
        known.update(instruction.results)
    for index, name in enumerate(program.outputs):
        if name not in known:
            yield Defect(f"outputs[{index}]", _undefined(name, known, everything))


def _undefined(name: str, known: set[str], everything: set[str]) -> str:
    if name in everything:
        return f"refers to {name!r} before it is defined"
    return f"refers to {shown(name)}, which is not defined anywhere{nearest(name, sorted(known))}"


def _uses(instruction: Instruction) -> Iterator[tuple[str, str]]:
    """Where in the instruction each name is used, and the name."""
    places = ((f"args[{position}]", each) for position, each in enumerate(instruction.args))
    for place, argument in itertools.chain(
        places, ((f"kwargs.{key}", each) for key, each in instruction.kwargs)
    ):
        yield from _uses_in(argument, place)


def _uses_in(argument: Argument, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(argument, Ref):
        yield place, argument.name
    elif isinstance(argument, tuple):
        for position, element in enumerate(argument):
            yield from _uses_in(element, f"{place}[{position}]")


RULES: tuple[WellFormednessRule, ...] = (
    # No more parts than can be looked at one by one.
    few_parts,
    # The seed enters arithmetic on int64 tensors.
    seed_in_64_bits,
    # Names stand in printed source as they are.
    names_printable,
    # A name is defined once, so that a use has one meaning without regard to its position.
    names_unique,
    # Only what can be filled with numbers can be an input.
    dtypes_fillable,
    # Lengths are 0 or more, and all storages together fit into memory many times.
    storages_small,
    # An input lives in one of the storages.
    storage_exists,
    # Sizes and strides belong together, dimension by dimension.
    one_stride_a_size,
    # Sizes, strides and offset are not negative, nor larger than any storage could justify.
    layout_in_range,
    # A stride of 0 must not turn a small storage into a view of terabytes.
    views_small,
    # In bytes, since storage and view may differ in dtype.
    views_inside_storage,
    # The operator is one that the dispatcher has.
    ops_known,
    # Keyword arguments exist in the schema, and nothing is given twice.
    arguments_named_once,
    # No more positional arguments than the schema takes; those after its star go by name.
    no_surplus_arguments,
    # What has no default is given.
    no_missing_arguments,
    # Each argument converts to the type in the schema.
    arguments_fit,
    # All the tensors that a call returns are named, or none.
    results_counted,
    # Values are used after their definition, and the outputs exist.
    uses_defined,
)
