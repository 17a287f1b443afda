"""Rules on the instructions of a program: calls against the schemas of their operators, and uses.

`aliasproof.programs.validation.RULES` lists them in order and says what each is for.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from aliasproof.programs.defect import Defect, definitions, fits_int64
from aliasproof.programs.devices import is_device_name
from aliasproof.programs.errors import UserError, did_you_mean, shown
from aliasproof.programs.program import Argument, Instruction, Program, Ref
from aliasproof.programs.schemas import resolve

# --- what a schema says ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """What the schema says of one argument.

    `repeats` is true for lists with a length, such as int[2], for which one number is enough.
    `wraps` is true for tensors for which the dispatcher takes a number, too.
    """

    name: str
    kind: str
    required: bool
    repeats: bool
    wraps: bool


@dataclass(frozen=True, slots=True)
class CallSchema:
    """What the schema of an overload says of its arguments and results.

    Positional arguments may be given by name.
    """

    positional: tuple[Parameter, ...]
    by_name: dict[str, Parameter]
    returns: tuple[str, ...]


# `x + 2` is `aten.add.Tensor(x, 2)` in a graph that Dynamo captures: a tensor without dimensions
# that promotes as a number does. Torch does so for these (`should_allow_numbers_as_tensors` in
# torch/csrc/utils/python_arg_parser.cpp).
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
        # `resolve` repeats the name in its message, so a long or unprintable one is caught before.
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


def _is_word(argument: Argument) -> bool:
    # Modes such as "floor". A program comes from a file and is run, so no text can be a path.
    return isinstance(argument, str) and re.fullmatch(r"\w{1,40}", argument, re.ASCII) is not None


KINDS: dict[str, Callable[[Argument], bool]] = {
    "Tensor": lambda argument: isinstance(argument, Ref),
    "int": _is_int,
    "bool": lambda argument: isinstance(argument, int),
    "float": _is_float,
    "number": _is_number,
    "str": _is_word,
    "Device": lambda argument: isinstance(argument, str) and is_device_name(argument),
    # The dispatcher takes the next three as the integers of their C++ enumerations. Only dtypes
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
        for location, name in _uses(instruction):
            if name not in known:
                message = _undefined_message(name, known, everything)
                yield Defect(f"instructions[{index}].{location}", message)
        known.update(instruction.results)
    for index, name in enumerate(program.outputs):
        if name not in known:
            yield Defect(f"outputs[{index}]", _undefined_message(name, known, everything))


def _undefined_message(name: str, known: set[str], everything: set[str]) -> str:
    if name in everything:
        return f"refers to {name!r} before it is defined"
    hint = did_you_mean(name, sorted(known))
    return f"refers to {shown(name)}, which is not defined anywhere{hint}"


def _uses(instruction: Instruction) -> Iterator[tuple[str, str]]:
    """The location in the instruction of each use, and the name that is used."""
    args = ((f"args[{position}]", value) for position, value in enumerate(instruction.args))
    kwargs = ((f"kwargs.{key}", value) for key, value in instruction.kwargs)
    for location, argument in itertools.chain(args, kwargs):
        yield from _uses_in(argument, location)


def _uses_in(argument: Argument, location: str) -> Iterator[tuple[str, str]]:
    if isinstance(argument, Ref):
        yield location, argument.name
    elif isinstance(argument, tuple):
        for position, element in enumerate(argument):
            yield from _uses_in(element, f"{location}[{position}]")
