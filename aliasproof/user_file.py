"""A user's file: Python that defines a function and its inputs, or the JSON of a program.

A Python file is run, since the user asks for that; all else is only read. Whatever is wrong with a
file is a `UserError` that names the place.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from programs.errors import UserError
from programs.program import Program
from programs.serialization import loads

MODULE_NAME = "aliasproof_user_file"
LONGEST_MESSAGE = 200  # characters of another's error, in a line of ours


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function and the inputs to call it with, as its author wrote them."""

    function: Callable[..., object]
    inputs: tuple[torch.Tensor, ...]


def read(path: Path, function: str = "program", inputs: str = "inputs") -> UserFunction | Program:
    """What a file defines. A folder is that of a finding, of which the program is read."""
    if path.is_dir():
        if not (path / "program.json").is_file():
            raise UserError(
                f"{path} is a folder without program.json; give FILE.py, PROGRAM.json or a finding's folder"
            )
        path = path / "program.json"
    if not path.exists():
        raise UserError(
            f"{path} does not exist; give FILE.py, PROGRAM.json or the folder of a finding"
        )
    if path.suffix == ".py":
        return _from_module(path, function, inputs)
    if path.suffix == ".json":
        return loads(_text(path), str(path))
    raise UserError(
        f"{path} is neither a .py nor a .json file; give FILE.py, PROGRAM.json or the folder of a finding"
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not text in UTF-8: {error.reason} at byte {error.start}"
        ) from error


def _from_module(path: Path, function_name: str, inputs_name: str) -> UserFunction:
    module = _run(path)
    function = _callable(
        module, function_name, path, "the function to check, called with the inputs"
    )
    make_inputs = _callable(
        module, inputs_name, path, "a function without arguments that returns a tuple of tensors"
    )
    try:
        made = make_inputs()
    except (Exception, SystemExit) as error:
        raise UserError(f"{path}: {inputs_name}() raises {what_was_raised(error, path)}") from error
    tensors = _tensors(made, f"{path}: {inputs_name}()")
    _check_arity(function, function_name, tensors, path)
    return UserFunction(function, tensors)


def _run(path: Path) -> ModuleType:
    """The module, run as Python runs a script, so that it finds its neighbours, but under a name of its own."""
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module  # dataclasses and pickles look their module up
    sys.path.insert(0, str(path.resolve().parent))
    write_bytecode, sys.dont_write_bytecode = (
        sys.dont_write_bytecode,
        True,
    )  # no __pycache__ among the user's files
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UserError(f"{path}: line {error.lineno}: not Python: {error.msg}") from error
    except OSError as error:
        if not _lines_of(path, error):
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        raise UserError(f"{path} raises {what_was_raised(error, path)}") from error
    except (Exception, SystemExit) as error:
        raise UserError(f"{path} raises {what_was_raised(error, path)}") from error
    finally:
        sys.dont_write_bytecode = write_bytecode
    return module


def what_was_raised(error: BaseException, path: Path | None) -> str:
    """Type and message of an exception, in one line, and the last line of the file that it came through."""
    lines = [] if path is None else _lines_of(path, error)
    message = " ".join(str(error).split())
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE - 1]}…"
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"{text} (line {lines[-1]})" if lines else text


def _lines_of(path: Path, error: BaseException) -> list[int | None]:
    """The lines of the file that an exception came through, the last one last."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]


def _callable(module: ModuleType, name: str, path: Path, what: str) -> Callable[..., object]:
    if not hasattr(module, name):
        own = (
            (key, each)
            for key, each in vars(module).items()
            if getattr(each, "__module__", None) == MODULE_NAME
        )
        defined = sorted(key for key, each in own if callable(each))
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
    if isinstance(made, torch.Tensor):
        made = (made,)
    if not isinstance(made, (tuple, list)):
        raise UserError(
            f"{place} returns {_shown(made)}; return a tuple of tensors, one for each argument"
        )
    return checked(made, place)


def checked(tensors: Sequence[object], place: str) -> tuple[torch.Tensor, ...]:
    """The tensors, if all are such that their storages can be compared byte by byte; else a `UserError` with the index."""
    for index, each in enumerate(tensors):
        if not isinstance(each, torch.Tensor):
            raise UserError(
                f"{place}[{index}] is {_shown(each)}, not a tensor; set numbers within the function"
            )
        reason = not_comparable(each)
        if reason is not None:
            raise UserError(f"{place}[{index}] is {reason}")
    return tuple(each for each in tensors if isinstance(each, torch.Tensor))


def not_comparable(tensor: torch.Tensor) -> str | None:
    """Why the bytes of a tensor cannot be looked at, and what to do; None if they can."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"of the subclass {type(tensor).__name__}; only plain tensors can be compared byte by byte"
    if tensor.is_nested or tensor.layout != torch.strided:
        return f"of layout {'nested' if tensor.is_nested else tensor.layout}; only strided tensors can be compared byte by byte"
    if tensor.device.type == "meta":
        return "a meta tensor, which has no numbers"
    if tensor.is_quantized:
        return "quantized; only plain tensors can be compared byte by byte"
    if tensor.is_conj() or tensor.is_neg():
        return "a lazy conjugate or negation; call resolve_conj() and resolve_neg() on it"
    return None


def _shown(value: object) -> str:
    """A value of the wrong type, in a few words."""
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
