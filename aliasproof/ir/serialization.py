"""The JSON form of a `Program`.

Reading it executes nothing. An error in it is a `UserError` that names the location. The keys are
the fields of the dataclasses; fields with a default may be left out. An argument that JSON can
express is written as itself, a tuple as a list. The others become {"ref": "x0"},
{"dtype": "float32"} or {"float": "-inf"}.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias, TypeVar

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.errors import UserError, did_you_mean, shown
from aliasproof.ir.execution import execute
from aliasproof.ir.program import Argument, Input, Instruction, Program, Ref, Storage, names_in
from aliasproof.ir.validation import Defect, validate

# --- memory bound ---------------------------------------------------------------------------------
#
# The allocations of a program from a file, before it runs: its calls on fake tensors have no data.
#
# A few bytes of JSON can request terabytes: `expand` to 4e9 elements costs nothing, and a `clone`
# of that brings the machine down. So the calls are made on fake tensors first (sizes, strides and
# dtypes, from the same kernels that PyTorch's compilers use), and each tensor that they return is
# counted. Views count as often as they repeat elements, since a write to a view takes as long as
# its elements.
#
# A fake kernel can raise where eager does not, and some operators have none. The size of some
# results depends on the data (`nonzero`). Then a *stand-in* replaces the result. It is as large as
# the arguments of the call allow, and later calls use it.
#
# Memory that a kernel allocates internally is not counted. For that, the processes that run a
# program have a memory limit (`aliasproof.processes.isolation`).


LARGEST = 256 * 2**20  # bytes of one tensor; an input has 64 MiB at most
MOST_TOGETHER = 2**30  # bytes of all storages
MOST_TOUCHED = 32 * 2**30  # bytes that calls read and write together: about a minute
MOST_DIMENSIONS = 64  # the limit of kernels
MOST_CALLS = 100_000  # ATen calls. A call of a composite op makes several.
MOST_RESULTS = 10_000  # tensors that one call returns
# For stand-ins: a larger number may be a size. Numbers far above are the open end of a slice.
LARGE_NUMBER, OPEN_END = 2**20, 2**62


class TooLarge(Exception):
    """A call returns or uses more than is allowed. The message says what."""


def require_bounded(program: Program) -> None:
    """Raises `UserError` with the instruction, if a call of the program is too large to run."""
    # Modes of the caller, such as one that watches calls, must not see these calls.
    # By default, if an op has no kernel for fake tensors, their mode runs its kernel on zeros.
    fakes = FakeTensorMode(allow_fallback_kernels=False)
    with _quiet(), _disable_current_modes(), torch.no_grad(), fakes, _Sizes():
        storages = [torch.empty(storage.nbytes, dtype=torch.uint8) for storage in program.storages]
        values = {}
        for view in program.inputs:
            layout = view.offset, view.sizes, view.strides
            empty = torch.empty(0, dtype=view.dtype)
            values[view.name] = empty.set_(storages[view.storage].untyped_storage(), *layout)
        for index, instruction in enumerate(program.instructions):
            try:
                _execute(instruction, values)
            except TooLarge as reason:
                location, message = f"instructions[{index}]", f"{instruction.op} {reason}"
                raise UserError(str(Defect(location, message))) from reason


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Turn off the log of fake tensors, which has a stack for each call that fails."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _execute(instruction: Instruction, values: dict[str, torch.Tensor]) -> None:
    """Run an instruction on fake tensors; if that fails, its results become stand-ins."""
    try:
        execute(instruction, values)
    except TooLarge:
        raise
    except Exception:  # noqa: BLE001 - whatever the kernel raises, eager may not
        # The largest possible result: operands are broadcast, and repeated.
        arguments = (instruction.args, tuple(value for _, value in instruction.kwargs))
        sizes = sorted(_nbytes(values[name]) for name in {*names_in(arguments)})
        nbytes = math.prod(sizes[-2:]) * math.prod(_factors(arguments))
        if nbytes > LARGEST:
            raise TooLarge(
                "gives a tensor whose size is not known before it runs, and which can have more"
                f" than {LARGEST:,} bytes"
            ) from None
        for name in instruction.results:
            values[name] = torch.empty(nbytes, dtype=torch.uint8)


def _factors(argument: Argument, *, in_list: bool = False) -> Iterator[int]:
    """The numbers that can be a size: numbers in lists, and large ones."""
    if isinstance(argument, tuple):
        for element in argument:
            yield from _factors(element, in_list=True)
    elif (
        isinstance(argument, int)
        and argument > 1
        and (in_list or LARGE_NUMBER < argument < OPEN_END)
    ):
        yield argument


def _nbytes(tensor: torch.Tensor) -> int:
    return max(tensor.numel(), 1) * tensor.dtype.itemsize


@dataclass(eq=False)
class _Sizes(TorchDispatchMode):
    """Counts the tensors that calls return. Raises `TooLarge`."""

    calls: int = 0
    together: int = 0
    touched: int = 0
    _storages: dict[int, tuple[torch.UntypedStorage, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise TooLarge(f"leads to more than {MOST_CALLS:,} calls of ATen operators")
        _require_short_lists(func, args)
        returned = func(*args, **(kwargs or {}))
        for tensor in tensors_in(returned):
            self._count(tensor)
        if not (isinstance(func, OpOverload) and func.is_view):
            self.touched += sum(map(_nbytes, tensors_in((args, kwargs, returned))))
        if self.touched > MOST_TOUCHED:
            raise TooLarge(f"is the call at which more than {MOST_TOUCHED:,} bytes are touched")
        return returned

    def _count(self, tensor: torch.Tensor) -> None:
        if tensor.dim() > MOST_DIMENSIONS:
            raise TooLarge(f"gives a tensor of {tensor.dim()} dimensions, above {MOST_DIMENSIONS}")
        storage = tensor.untyped_storage()
        _, before = self._storages.get(storage._cdata, (storage, 0))
        self.together += max(storage.nbytes() - before, 0)
        # Kept alive, so that no address is used twice.
        self._storages[storage._cdata] = storage, max(storage.nbytes(), before)
        largest = max(_nbytes(tensor), storage.nbytes())
        if largest > LARGEST:
            raise TooLarge(f"gives a tensor of {largest:,} bytes; at most {LARGEST:,} are allowed")
        if self.together > MOST_TOGETHER:
            raise TooLarge(
                f"is the call at which all storages have more than {MOST_TOGETHER:,} bytes"
            )


def _require_short_lists(func: Callable[..., Any], args: Sequence[Any]) -> None:
    """Check before the call, since long lists of sizes or results take long, even on fakes."""
    if not isinstance(func, OpOverload) or not args:
        return
    gives_list = any(str(returned.type) == "List[Tensor]" for returned in func._schema.returns)
    lists = [argument for argument in args if isinstance(argument, list | tuple) and not gives_list]
    dimensions = max(
        (len(sizes) for sizes in lists if sizes and isinstance(sizes[0], int)), default=0
    )
    if dimensions > MOST_DIMENSIONS:
        raise TooLarge(f"is given {dimensions:,} sizes; a tensor has at most {MOST_DIMENSIONS}")
    if gives_list and isinstance(args[0], torch.Tensor):
        longest = max(args[0].shape, default=0)
        if longest > MOST_RESULTS:
            raise TooLarge(f"can give {longest:,} tensors; at most {MOST_RESULTS:,} are allowed")


# --- serialization --------------------------------------------------------------------------------


VERSION = 1
DEEPEST = 8  # nesting of lists in an argument; no operator takes more than two

Part = TypeVar("Part", Program, Storage, Input, Instruction)
Element = TypeVar("Element")
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

# All names, also the short ones: torch.float is torch.float32. `dtype_name` is the written name.
DTYPE_BY_NAME: dict[str, torch.dtype] = {
    name: dtype for name, dtype in vars(torch).items() if isinstance(dtype, torch.dtype)
}

# The object `math.nan`, not a fresh NaN each time: tuples that contain the same object are equal,
# so a program stays equal to itself after a round trip.
SPECIAL_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype within torch, such as `float32`."""
    return str(dtype).removeprefix("torch.")


# --- writing --------------------------------------------------------------------------------------


def to_json(program: Program) -> dict[str, Json]:
    """The program as dicts, lists, strings and finite numbers.

    Keys that older files do not have are left out at their defaults.
    """
    fields = _written(program)
    head = [name for name in ("seed", "fill", "device") if name in fields]
    first: dict[str, Json] = {name: fields.pop(name) for name in head}
    return {"version": VERSION, **first, **fields}


# Fields that are written at their defaults, too.
_ALWAYS = {"seed", "offset", "kwargs", "results"}


def _written(part: Program | Storage | Input | Instruction) -> dict[str, Json]:
    """A dataclass as an object whose keys are its fields."""
    return {
        each.name: _FORMS[each.type][1](getattr(part, each.name))
        for each in dataclasses.fields(part)
        if each.name in _ALWAYS or getattr(part, each.name) != each.default
    }


def _argument_to_json(argument: Argument) -> Json:
    if isinstance(argument, Ref):
        return {"ref": argument.name}
    if isinstance(argument, torch.dtype):
        return {"dtype": dtype_name(argument)}
    if isinstance(argument, tuple):
        return [_argument_to_json(element) for element in argument]
    # JSON has no infinity and no NaN.
    if isinstance(argument, float) and not math.isfinite(argument):
        return {"float": str(argument)}
    if argument is None or isinstance(argument, bool | int | float | str):
        return argument
    raise UserError(f"{shown(argument)} cannot be an argument of a program")


def dumps(program: Program) -> str:
    """The program as JSON text with one storage, input or instruction per line."""
    # `json.dumps(indent=2)` would put each number of a shape on a line of its own.
    fields = []
    for key, value in to_json(program).items():
        text = json.dumps(value, allow_nan=False)
        if isinstance(value, list) and any(isinstance(element, dict) for element in value):
            lines = ",\n".join(f"    {json.dumps(element, allow_nan=False)}" for element in value)
            text = f"[\n{lines}\n  ]"
        fields.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


# --- reading --------------------------------------------------------------------------------------


def loads(text: str, file: str = "<text>") -> Program:
    """The program in a JSON text.

    Raises `UserError` that starts with `file`, the name of the file.
    """
    try:
        return from_json(_json_value(text))
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def _json_value(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        message = f"line {error.lineno} column {error.colno}: not JSON: {error.msg}"
        raise UserError(message) from error
    except (ValueError, RecursionError) as error:
        # The text has an integer of over 4,300 digits, or thousands of opening brackets.
        raise UserError(f"not a program: {shown(str(error))}") from error


def _refuse_constant(constant: str) -> NoReturn:
    written = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}[constant]
    raise UserError(f'{constant} is not JSON; write {{"float": "{written}"}}')


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # `json` would silently keep the last value of a repeated key.
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise UserError(f"the key {shown(key)} occurs twice in one object")
        members[key] = value
    return members


def from_json(data: object) -> Program:
    """The well-formed program that `to_json` wrote, if it is not too large to run.

    Raises `UserError` that names the location of the defect.
    """
    if isinstance(data, dict):
        # Checked first, because another version has other keys.
        if "version" not in data:
            raise UserError('version: missing; write "version": 1')
        version = _integer(data["version"], "version")
        if version != VERSION:
            raise UserError(
                f"version: {shown(version)} is not known; this aliasproof reads version {VERSION}"
            )
        data = {key: value for key, value in data.items() if key != "version"}
    program = _read(Program, data, "")
    validate(program)
    require_bounded(program)
    return program


def _keyword_arguments(data: object, location: str) -> tuple[tuple[str, Argument], ...]:
    if not isinstance(data, dict):
        raise _type_error("an object", data, location)
    arguments = []
    for key, value in data.items():
        name = _text(key, location)
        # Part of a one-line message, so it repeats a key only if it is a plain name.
        dot = f".{name}" if name.isascii() and name.isidentifier() else ""
        arguments.append((name, _argument(value, f"{location}{dot}")))
    return tuple(arguments)


def _arguments(data: object, location: str, depth: int = 0) -> tuple[Argument, ...]:
    if depth > DEEPEST:
        raise UserError(f"{location}: lists are nested more than {DEEPEST} deep")
    return _each(functools.partial(_argument, depth=depth), data, location)


def _argument(data: object, location: str, depth: int = 0) -> Argument:
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return _arguments(data, location, depth + 1)
    # A mapping pattern accepts further keys, hence the guards.
    match data:
        case {"ref": name, **others} if not others:
            return Ref(_text(name, f"{location}.ref"))
        case {"dtype": name, **others} if not others:
            return _dtype(name, f"{location}.dtype")
        case {"float": name, **others} if not others:
            if _text(name, f"{location}.float") in SPECIAL_FLOATS:
                return SPECIAL_FLOATS[name]
            expected = f"expected one of {', '.join(SPECIAL_FLOATS)}"
            raise UserError(f"{location}.float: {expected}, got {shown(name)}")
    raise _type_error(
        'null, a bool, a number, a text, a list, {"ref": ...}, {"dtype": ...} or {"float": ...}',
        data,
        location,
    )


def _dtype(data: object, location: str) -> torch.dtype:
    name = _text(data, location)
    if name not in DTYPE_BY_NAME:
        raise UserError(
            f"{location}: unknown dtype {shown(name)}{did_you_mean(name, DTYPE_BY_NAME)}"
        )
    return DTYPE_BY_NAME[name]


def _read(kind: type[Part], data: object, location: str) -> Part:
    """An instance of a dataclass, from an object whose keys are its fields.

    Fields with a default may be missing. The location of the program itself is empty.
    """
    if not isinstance(data, dict):
        raise _type_error("an object", data, location or "program")
    known = {each.name: each for each in dataclasses.fields(kind)}
    dot = location and f"{location}."
    for name, each in known.items():
        if name not in data and each.default is dataclasses.MISSING:
            raise UserError(f"{dot}{name}: missing")
    for key in data:
        if key not in known:
            keys = f"the keys are {', '.join(known)}"
            raise UserError(f"{location or 'program'}: unknown key {shown(key)}; {keys}")
    given = {name: each for name, each in known.items() if name in data}
    return kind(
        **{name: _FORMS[each.type][0](data[name], f"{dot}{name}") for name, each in given.items()}
    )


def _each(
    read: Callable[[object, str], Element], data: object, location: str
) -> tuple[Element, ...]:
    if not isinstance(data, list):
        raise _type_error("a list", data, location)
    return tuple(read(item, f"{location}[{index}]") for index, item in enumerate(data))


def _text(data: object, location: str) -> str:
    if not isinstance(data, str):
        raise _type_error("a string", data, location)
    return data


def _boolean(data: object, location: str) -> bool:
    if not isinstance(data, bool):
        raise _type_error("true or false", data, location)
    return data


def _integer(data: object, location: str) -> int:
    # To Python, true is the integer 1, but in a file it is an error.
    if not (isinstance(data, int) and not isinstance(data, bool)):
        raise _type_error("an integer", data, location)
    return data


def _parts(kind: type[Part]) -> tuple[Callable[[Any, str], Any], Callable[[Any], Any]]:
    return functools.partial(_each, functools.partial(_read, kind)), lambda it: [*map(_written, it)]


def _same(value: Any) -> Any:
    return value


# By the annotation of a field: how its value is read, at a location, and how it is written.
_FORMS: dict[Any, tuple[Callable[[Any, str], Any], Callable[[Any], Any]]] = {
    "bool": (_boolean, _same),
    "int": (_integer, _same),
    "str": (_text, _same),
    "torch.dtype": (_dtype, dtype_name),
    "tuple[int, ...]": (functools.partial(_each, _integer), list),
    "tuple[str, ...]": (functools.partial(_each, _text), list),
    "tuple[Argument, ...]": (_arguments, lambda it: [*map(_argument_to_json, it)]),
    "tuple[tuple[str, Argument], ...]": (
        _keyword_arguments,
        lambda it: {key: _argument_to_json(value) for key, value in it},
    ),
    "tuple[Storage, ...]": _parts(Storage),
    "tuple[Input, ...]": _parts(Input),
    "tuple[Instruction, ...]": _parts(Instruction),
}


def _type_error(what: str, data: object, location: str) -> UserError:
    return UserError(f"{location}: expected {what}, got {shown(data)}")
