"""A user's file: Python that defines a function and its inputs, or the JSON of a program.

A Python file is executed, since the user asks for that. Other files are only read. Every problem
with a file is a `UserError` that names the place.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypeVar

import torch

from programs.errors import UserError
from programs.program import Program
from programs.serialization import loads

MODULE_NAME = "aliasproof_user_file"
ONLY = "only {} tensors can be compared byte by byte"
GIVE = "give FILE.py, PROGRAM.json or the folder of a finding"
LONGEST_MESSAGE = 200  # characters of an exception's message, in a message of ours

Result = TypeVar("Result")


class FileNames(NamedTuple):
    """The names in a Python file: of the function, and of the function that returns its inputs."""

    function: str = "program"
    inputs: str = "inputs"


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function and its inputs, unchanged."""

    function: Callable[..., object]
    inputs: tuple[torch.Tensor, ...]


def apply_to(
    path: Path, names: FileNames, action: Callable[[UserFunction | Program], Result]
) -> Result:
    """What an action returns for the contents of a user's file.

    Standard output of the user's code goes to standard error. Raises `UserError` with the path if
    the action does, or if the user's function exits.
    """
    # Standard output is for the results of the command, one JSON object in the extreme.
    with contextlib.redirect_stdout(sys.stderr):
        given = read(path, names)
        try:
            return action(given)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        except SystemExit as exit_of_user:
            raise UserError(
                f"{path}: {names.function} calls sys.exit({exit_of_user.code!r})"
            ) from exit_of_user


def read(path: Path, names: FileNames) -> UserFunction | Program:
    """The contents of a file. For a folder: the program of the finding in it."""
    if path.is_dir():
        if not (path / "program.json").is_file():
            raise UserError(f"{path} is a folder without program.json; {GIVE}")
        path = path / "program.json"
    if not path.exists():
        raise UserError(f"{path} does not exist; {GIVE}")
    if path.suffix == ".py":
        return _from_module(path, names)
    if path.suffix == ".json":
        return loads(_text(path), str(path))
    raise UserError(f"{path} is neither a .py nor a .json file; {GIVE}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not text in UTF-8: {error.reason} at byte {error.start}"
        ) from error


def _from_module(path: Path, names: FileNames) -> UserFunction:
    module = _execute(path)
    function = _callable(module, names.function, path, "a function of the inputs")
    make_inputs = _callable(
        module, names.inputs, path, "a function without arguments that returns a tuple of tensors"
    )
    try:
        made = make_inputs()
    except (Exception, SystemExit) as error:
        raise UserError(f"{path}: {names.inputs}() raises {raised_text(error, path)}") from error
    tensors = _tensors(made, f"{path}: {names.inputs}()")
    _check_arity(function, names.function, tensors, path)
    return UserFunction(function, tensors)


def _execute(path: Path) -> ModuleType:
    """The module of a file. Like a script, it can import modules from its own folder."""
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module  # dataclasses and pickle look up the module of a class
    sys.path.insert(0, str(path.resolve().parent))  # for imports of neighbours
    # Leave no __pycache__ among the user's files.
    write_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UserError(f"{path}: line {error.lineno}: not Python: {error.msg}") from error
    except OSError as error:
        # Reading the file fails, or the code in it opens another file that cannot be read.
        if not _lines_of(path, error):
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        raise UserError(f"{path} raises {raised_text(error, path)}") from error
    except (Exception, SystemExit) as error:
        raise UserError(f"{path} raises {raised_text(error, path)}") from error
    finally:
        sys.dont_write_bytecode = write_bytecode
    return module


def raised_text(error: BaseException, path: Path | None) -> str:
    """Type and message of an exception in one line, and the last line of the file in its stack."""
    lines = [] if path is None else _lines_of(path, error)
    message = " ".join(str(error).split())
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE - 1]}…"
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"{text} (line {lines[-1]})" if lines else text


def _lines_of(path: Path, error: BaseException) -> list[int | None]:
    """The lines of the file in the stack of an exception, the innermost last."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]


def _callable(module: ModuleType, name: str, path: Path, what: str) -> Callable[..., object]:
    # A file often uses other names: the message lists what it defines, and the two options.
    if not hasattr(module, name):
        defined = sorted(
            key
            for key, value in vars(module).items()
            if getattr(value, "__module__", None) == MODULE_NAME and callable(value)
        )
        others = (
            f"; it defines {', '.join(defined)} (see --function and --inputs)" if defined else ""
        )
        raise UserError(f"{path} defines no '{name}': {what}{others}")
    found = getattr(module, name)
    if not callable(found):
        raise UserError(
            f"{path}: '{name}' is of type {type(found).__name__}, not callable; it must be {what}"
        )
    function: Callable[..., object] = found
    return function


def _tensors(made: object, place: str) -> tuple[torch.Tensor, ...]:
    if isinstance(made, torch.Tensor):  # a common slip, and what it means is clear
        made = (made,)
    if not isinstance(made, (tuple, list)):
        raise UserError(
            f"{place} returns {_shown(made)}; return a tuple of tensors, one for each argument"
        )
    return checked(made, place)


def checked(tensors: Sequence[object], place: str) -> tuple[torch.Tensor, ...]:
    """The same tensors. Raises `UserError` with the index if one cannot be compared by bytes."""
    found = []
    for index, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise UserError(
                f"{place}[{index}] is {_shown(tensor)}, not a tensor; write constants into the"
                " function"
            )
        reason = not_comparable(tensor)
        if reason is not None:
            raise UserError(f"{place}[{index}] is {reason}")
        found.append(tensor)
    return tuple(found)


def not_comparable(tensor: torch.Tensor) -> str | None:
    """Why the bytes of a tensor cannot be compared, and what to do; None if they can."""
    # Not `isinstance`: a subclass can redefine what each op does, or have no storage at all.
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"of the subclass {type(tensor).__name__}; {ONLY.format('plain')}"
    if tensor.is_nested or tensor.layout != torch.strided:
        layout = "nested" if tensor.is_nested else tensor.layout
        return f"of layout {layout}; {ONLY.format('strided')}"
    if tensor.device.type == "meta":
        return "a meta tensor, which has no data"
    if tensor.is_quantized:
        return f"quantized; {ONLY.format('plain')}"
    if tensor.is_conj() or tensor.is_neg():
        return "a lazy conjugate or negation; call resolve_conj() and resolve_neg() on it"
    return None


def _shown(value: object) -> str:
    """A value of the wrong type: its text if that is short, and its type."""
    text = " ".join(repr(value).split())
    kind = type(value).__name__
    return (
        f"{text} of type {kind}"
        if len(text) <= 40 and not text.startswith("<")
        else f"a value of type {kind}"
    )


def _check_arity(
    function: Callable[..., object], name: str, tensors: Sequence[torch.Tensor], path: Path
) -> None:
    # A wrong number of inputs would else appear as an error of the eager run.
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(*tensors)
    except TypeError as error:
        given = f"{len(tensors)} tensor{'s' * (len(tensors) != 1)}"
        raise UserError(
            f"{path}: {name}{signature} cannot be called with the {given} of the inputs: {error}"
        ) from error
