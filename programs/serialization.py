"""The JSON form of a `Program`. Reading it executes nothing; whatever is wrong with it is a `UserError` with its place.

The keys are the fields of the dataclasses; those with a default may be left out. An argument is
written as itself if JSON has it, a tuple as a list, and what is left as {"ref": "x0"}, {"dtype":
"float32"} or {"float": "-inf"}.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, NoReturn, TypeAlias

import torch

from programs.errors import UserError
from programs.program import Argument, Input, Instruction, Program, Ref, Storage
from programs.validation import nearest, shown, validate

VERSION = 1
DEEPEST = 8  # nesting of lists in an argument; no operator takes more than two

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

# All names, also the short ones (torch.float is torch.float32); `dtype_name` gives the one that is
# written.
DTYPES: dict[str, torch.dtype] = {
    name: each for name, each in vars(torch).items() if isinstance(each, torch.dtype)
}

# The object `math.nan`, not a fresh NaN each time: tuples that hold the same object are equal, so a
# program stays equal to itself after a round trip.
SPECIAL_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype within torch, such as `float32`."""
    return str(dtype).removeprefix("torch.")


# --- writing --------------------------------------------------------------------------------------


def to_json(program: Program) -> dict[str, Json]:
    """The program as dicts, lists, strings and finite numbers."""
    return {
        "version": VERSION,
        "seed": program.seed,
        "storages": [
            {"dtype": dtype_name(each.dtype), "length": each.length} for each in program.storages
        ],
        "inputs": [_input_to_json(each) for each in program.inputs],
        "instructions": [_instruction_to_json(each) for each in program.instructions],
        "outputs": list(program.outputs),
    }


def _input_to_json(each: Input) -> dict[str, Json]:
    return {
        "name": each.name,
        "storage": each.storage,
        "dtype": dtype_name(each.dtype),
        "sizes": list(each.sizes),
        "strides": list(each.strides),
        "offset": each.offset,
    }


def _instruction_to_json(each: Instruction) -> dict[str, Json]:
    return {
        "op": each.op,
        "args": [_argument_to_json(argument) for argument in each.args],
        "kwargs": {key: _argument_to_json(argument) for key, argument in each.kwargs},
        "results": list(each.results),
    }


def _argument_to_json(argument: Argument) -> Json:
    if isinstance(argument, Ref):
        return {"ref": argument.name}
    if isinstance(argument, torch.dtype):
        return {"dtype": dtype_name(argument)}
    if isinstance(argument, tuple):
        return [_argument_to_json(each) for each in argument]
    if isinstance(argument, float) and not math.isfinite(argument):
        return {"float": str(argument)}
    if argument is None or isinstance(argument, bool | int | float):
        return argument
    raise UserError(f"{shown(argument)} cannot be an argument of a program")


def dumps(program: Program) -> str:
    """The program as JSON text that a person can read: one storage, input or instruction a line."""
    fields = (f"  {json.dumps(key)}: {_lines(value)}" for key, value in to_json(program).items())
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _lines(value: Json) -> str:
    if not isinstance(value, list) or not any(isinstance(each, dict) for each in value):
        return json.dumps(value, allow_nan=False)
    return (
        "[\n" + ",\n".join(f"    {json.dumps(each, allow_nan=False)}" for each in value) + "\n  ]"
    )


# --- reading --------------------------------------------------------------------------------------


def loads(text: str, place: str = "<text>") -> Program:
    """The program in a JSON text.

    Raises `UserError` that starts with `place`, which may be the name of the file.
    """
    try:
        data = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        message = f"{place}: line {error.lineno} column {error.colno}: not JSON: {error.msg}"
        raise UserError(message) from error
    except (
        ValueError,
        RecursionError,
    ) as error:  # an integer of over 4,300 digits; thousands of opening brackets
        raise UserError(f"{place}: not a program: {shown(str(error))}") from error
    except UserError as error:
        raise UserError(f"{place}: {error}") from error
    try:
        return from_json(data)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error


def _refuse_constant(constant: str) -> NoReturn:
    written = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}[constant]
    raise UserError(f'{constant} is not JSON; write {{"float": "{written}"}}')


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise UserError(f"the key {shown(key)} stands twice in one object")
        found[key] = value
    return found


def from_json(data: object) -> Program:
    """The well-formed program that `to_json` wrote.

    Raises `UserError` that names the place of the defect.
    """
    if (
        isinstance(data, dict) and "version" in data
    ):  # before anything else: another version has other keys
        version = _integer(data["version"], "version")
        if version != VERSION:
            raise UserError(
                f"version: {shown(version)} is not known; this aliasproof reads version {VERSION}"
            )
        data = {key: value for key, value in data.items() if key != "version"}
    elif isinstance(data, dict):
        raise UserError('version: missing; write "version": 1')
    fields = _record(data, "", Program)
    storages = _list(fields["storages"], "storages")
    inputs = _list(fields["inputs"], "inputs")
    instructions = _list(fields["instructions"], "instructions")
    program = Program(
        tuple(_storage(each, f"storages[{index}]") for index, each in enumerate(storages)),
        tuple(_input(each, f"inputs[{index}]") for index, each in enumerate(inputs)),
        tuple(
            _instruction(each, f"instructions[{index}]") for index, each in enumerate(instructions)
        ),
        _texts(fields["outputs"], "outputs"),
        _integer(fields.get("seed", 0), "seed"),
    )
    validate(program)
    return program


def _storage(data: object, place: str) -> Storage:
    fields = _record(data, place, Storage)
    return Storage(
        _dtype(fields["dtype"], f"{place}.dtype"), _integer(fields["length"], f"{place}.length")
    )


def _input(data: object, place: str) -> Input:
    fields = _record(data, place, Input)
    return Input(
        _text(fields["name"], f"{place}.name"),
        _integer(fields["storage"], f"{place}.storage"),
        _dtype(fields["dtype"], f"{place}.dtype"),
        _integers(fields["sizes"], f"{place}.sizes"),
        _integers(fields["strides"], f"{place}.strides"),
        _integer(fields.get("offset", 0), f"{place}.offset"),
    )


def _instruction(data: object, place: str) -> Instruction:
    fields = _record(data, place, Instruction)
    kwargs = fields.get("kwargs", {})
    if not isinstance(kwargs, dict):
        raise _expected("an object", kwargs, f"{place}.kwargs")
    return Instruction(
        _text(fields["op"], f"{place}.op"),
        _arguments(fields["args"], f"{place}.args", depth=0),
        tuple(_keyword_argument(key, value, f"{place}.kwargs") for key, value in kwargs.items()),
        _texts(fields.get("results", []), f"{place}.results"),
    )


def _keyword_argument(key: object, value: object, place: str) -> tuple[str, Argument]:
    key = _text(key, place)
    # What is no name is not repeated as it is in a place, which is part of one line of a message.
    return key, _argument(
        value, f"{place}.{key}" if key.isascii() and key.isidentifier() else place
    )


def _arguments(data: object, place: str, depth: int) -> tuple[Argument, ...]:
    if depth > DEEPEST:
        raise UserError(f"{place}: lists are nested more than {DEEPEST} deep")
    return tuple(
        _argument(each, f"{place}[{index}]", depth) for index, each in enumerate(_list(data, place))
    )


def _argument(data: object, place: str, depth: int = 0) -> Argument:
    if data is None or isinstance(data, bool | int | float):
        return data
    if isinstance(data, list):
        return _arguments(data, place, depth + 1)
    match data:
        case {"ref": name, **others} if not others:
            return Ref(_text(name, f"{place}.ref"))
        case {"dtype": name, **others} if not others:
            return _dtype(name, f"{place}.dtype")
        case {"float": name, **others} if not others:
            return _special_float(name, f"{place}.float")
    raise _expected(
        'null, true, false, a number, a list, {"ref": ...}, {"dtype": ...} or {"float": ...}',
        data,
        place,
    )


def _special_float(data: object, place: str) -> float:
    name = _text(data, place)
    if name not in SPECIAL_FLOATS:
        raise UserError(f"{place}: expected one of {', '.join(SPECIAL_FLOATS)}, got {shown(name)}")
    return SPECIAL_FLOATS[name]


def _dtype(data: object, place: str) -> torch.dtype:
    name = _text(data, place)
    if name not in DTYPES:
        raise UserError(f"{place}: unknown dtype {shown(name)}{nearest(name, DTYPES)}")
    return DTYPES[name]


def _record(
    data: object, place: str, kind: type[Program | Storage | Input | Instruction]
) -> dict[str, object]:
    """The object with just the fields of the dataclass `kind` for keys; those with a default may be missing."""
    if not isinstance(data, dict):
        raise _expected("an object", data, place or "program")
    fields = dataclasses.fields(kind)
    names = [each.name for each in fields]
    dot = place and f"{place}."
    for field in fields:
        if field.name not in data and field.default is dataclasses.MISSING:
            raise UserError(f"{dot}{field.name}: missing")
    for key in data:
        if key not in names:
            raise UserError(
                f"{place or 'program'}: unknown key {shown(key)}; the keys are {', '.join(names)}"
            )
    return data


def _list(data: object, place: str) -> list[object]:
    if not (isinstance(data, list)):
        raise _expected("a list", data, place)
    return data


def _texts(data: object, place: str) -> tuple[str, ...]:
    return tuple(_text(each, f"{place}[{index}]") for index, each in enumerate(_list(data, place)))


def _integers(data: object, place: str) -> tuple[int, ...]:
    return tuple(
        _integer(each, f"{place}[{index}]") for index, each in enumerate(_list(data, place))
    )


def _text(data: object, place: str) -> str:
    if not (isinstance(data, str)):
        raise _expected("a string", data, place)
    return data


def _integer(data: object, place: str) -> int:
    # To Python, true is the integer 1; in a file it is a mistake.
    if not (isinstance(data, int) and not isinstance(data, bool)):
        raise _expected("an integer", data, place)
    return data


def _expected(what: str, data: object, place: str) -> UserError:
    return UserError(f"{place}: expected {what}, got {shown(data)}")
