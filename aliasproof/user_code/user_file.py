"""A user's file: Python that defines a function and its inputs, or the JSON of a program.

A Python file is executed, since the user requests that. Other files are only read. Every problem
with a file is a `UserError` that names the file.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TypeVar

import torch

from aliasproof.formats.exported_program import read_exported
from aliasproof.formats.printed_graph import is_printed, read_printed
from aliasproof.formats.stored_graph import StoredGraph
from aliasproof.ir.errors import UserError
from aliasproof.ir.object_graph import PLAIN, leaves
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import CALLS
from aliasproof.ir.serialization import loads
from aliasproof.ir.stored_text import read_text
from aliasproof.processes.isolation import step
from aliasproof.reports.console import output_for_results, shortened
from aliasproof.targets.user_names import module_of
from aliasproof.user_code.given_path import EXPORTED, PRINTED, STORED_GRAPH, FileNames, file_to_read

# --- call arguments -------------------------------------------------------------------------------
#
# `inputs()` in a user's file, and `inputs` of `aliasproof.check`, may be one of four forms:
#
# - a tuple or a list: the positional arguments;
# - a dict with names as keys: the keyword arguments;
# - a pair of a tuple and a dict with names as keys: positional and keyword arguments;
# - any other value: the only argument.


ONLY = "only {} tensors can be compared byte by byte"


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Positional and keyword arguments, with a name for each."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: object) -> CallArguments:
        """The arguments in one of the four forms."""
        # Exact types: a named tuple or a dict of a class of its own is an argument, not a form.
        if type(given) is tuple and len(given) == 2:
            first, second = given
            if type(first) is tuple and _has_names(second):
                return cls(first, dict(second))
        if type(given) in (tuple, list):
            return cls(tuple(given), {})  # type: ignore[arg-type]
        if _has_names(given):
            return cls((), dict(given))  # type: ignore[call-overload]
        return cls((given,), {})

    def named_for(self, function: Callable[..., object]) -> CallArguments:
        """The same with the names of the function's parameters, if its signature is known."""
        # The arguments of a module go to its `forward`.
        function = function.forward if isinstance(function, torch.nn.Module) else function
        try:
            bound = inspect.signature(function).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):  # a builtin without signature; or eager reports it
            return self
        names: list[str] = []
        for name in bound.arguments:
            kind = bound.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                names += [f"{name}[{index}]" for index in range(len(bound.arguments[name]))]
            elif kind is not inspect.Parameter.VAR_KEYWORD:
                names.append(name)
        return CallArguments(self.args, self.kwargs, tuple(names[: len(self.args)]))

    def by_name(self) -> Iterator[tuple[str, object]]:
        """Each argument with its name; with its index, such as `[0]`, if the name is not known."""
        for index, value in enumerate(self.args):
            yield (self.names[index] if index < len(self.names) else f"[{index}]"), value
        yield from self.kwargs.items()

    def describe(self) -> str:
        """How many arguments there are: '1 positional argument and scale'."""
        positional = f"{len(self.args)} positional argument{'s' * (len(self.args) != 1)}"
        return " and ".join([positional, *self.kwargs])

    def leaves(self) -> Iterator[tuple[str, object]]:
        """The leaves of the arguments, by their paths."""
        for name, value in self.by_name():
            yield from leaves(value, name)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors in the arguments by their paths, each object once."""
        return dict(distinct_tensors(self.leaves()).values())

    def tensors_by_path(self) -> dict[str, torch.Tensor]:
        """The tensors by their paths; an object that occurs twice has both paths."""
        return {path: leaf for path, leaf in self.leaves() if isinstance(leaf, torch.Tensor)}

    def constants(self) -> list[tuple[str, object]]:
        """The leaves that are no tensors, by their paths."""
        return [it for it in self.leaves() if not isinstance(it[1], torch.Tensor)]

    def unknown_types(self) -> list[str]:
        """The types of leaves that are neither tensors nor plain values."""
        plain = (*PLAIN, torch.dtype, torch.device, torch.layout, torch.memory_format)
        return sorted(
            {type(leaf).__name__ for _, leaf in self.constants() if not isinstance(leaf, plain)}
        )


def distinct_tensors(
    leaves: Iterable[tuple[str, object]],
) -> dict[int, tuple[str, torch.Tensor]]:
    """Each tensor object among leaves with its first path, by identity."""
    tensors: dict[int, tuple[str, torch.Tensor]] = {}
    for path, leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            tensors.setdefault(id(leaf), (path, leaf))
    return tensors


def _has_names(value: object) -> bool:
    return type(value) is dict and all(isinstance(key, str) for key in value)


def check_arguments(given: object, place: str) -> CallArguments:
    """The arguments. Raises `UserError` with the path of a tensor that cannot be compared."""
    arguments = CallArguments.of(given)
    for path, tensor in arguments.tensors().items():
        reason = not_comparable(tensor)
        if reason is not None:
            raise UserError(f"{place}{path if path.startswith('[') else f': {path}'} is {reason}")
    return arguments


def not_comparable(tensor: torch.Tensor) -> str | None:
    """Why the bytes of a tensor cannot be compared, and what to do; None if they can."""
    # Not `isinstance`: a subclass can redefine what each op does, or have no storage at all.
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
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


MODULE_NAME = "aliasproof_user_file"
FORMS = (
    "return a tensor, a tuple of positional arguments, a dict of keyword arguments, or a pair of"
    " both"
)
SECOND_INPUTS = "second_inputs"
LONGEST_MESSAGE = 200  # characters of an exception's message, in a message of ours

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function and its inputs, unchanged, in one of the forms of `CallArguments`.

    `second_inputs` are for a second call; None if the file defines none. `notes` name values that
    the file does not determine.
    """

    function: Callable[..., object]
    inputs: object
    second_inputs: object = None
    notes: tuple[str, ...] = ()


def apply_to(
    path: Path, names: FileNames, action: Callable[[UserFunction | Program], Result]
) -> Result:
    """Read a user's file, and return the result of an action on its contents.

    Standard output of the user's code goes to standard error. Raises `UserError` with the path if
    the action does, or if the user's function exits.
    """
    with output_for_results():
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
    """The contents of a file; of a folder, the finding's program or the stored graph."""
    file = file_to_read(path)
    if file.name == STORED_GRAPH:
        stored = StoredGraph.read(file.parent)
        return UserFunction(stored.module, tuple(stored.inputs))
    # A Python file may be in any encoding.
    if file.suffix in (EXPORTED, *PRINTED) or (
        file.suffix == ".py"
        and is_printed(file.read_bytes().decode(errors="replace"), names.function)
    ):
        return _from_graph(file, names)
    if file.suffix == ".py":
        return _from_module(file, names)
    return loads(read_text(file, within=path) if path.is_dir() else read_text(file), str(file))


def _from_graph(path: Path, names: FileNames) -> UserFunction:
    """The graph that torch exported or printed. Several printed graphs are named by number.

    No code of the file runs, and nothing is unpickled.
    """
    number = int(names.function) if names.function.isdecimal() else None
    exported = path.suffix == EXPORTED
    try:
        graph = read_exported(path) if exported else read_printed(read_text(path), number)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return UserFunction(graph.module, tuple(graph.inputs), notes=graph.notes)


def _from_module(path: Path, names: FileNames) -> UserFunction:
    module = _module(path)
    function = _callable(module, names.function, path, "a function of the inputs")
    notes: tuple[str, ...] = ()
    calls = vars(module).get(CALLS)
    # A reduced Python program; another file may have other things of that name.
    if isinstance(calls, FunctionType) and not hasattr(module, names.inputs):
        setattr(module, names.inputs, lambda: _first_passed(calls))
        notes = (f"the first call in {CALLS}() is judged",)
    given = _inputs_from(path, module, names.inputs)
    _check_call(function, names.function, given, path)
    second = _inputs_from(path, module, SECOND_INPUTS) if hasattr(module, SECOND_INPUTS) else None
    return UserFunction(function, given, second, notes)


def _first_passed(calls: Callable[..., object]) -> object:
    """The arguments in the first call of a Python program."""

    def passed(*args: object, **kwargs: object) -> None:
        raise StopAsyncIteration(args, kwargs)  # the language has no name for it

    try:
        calls(passed)
    except StopAsyncIteration as end:
        return end.args
    return None


def _inputs_from(path: Path, module: ModuleType, name: str) -> object:
    """The inputs that a user's function makes. Raises `UserError` if they cannot be inputs."""
    make_inputs = _callable(module, name, path, f"a function without arguments; {FORMS}")
    step(f"{name}()")
    try:
        made = make_inputs()
    except (Exception, SystemExit) as error:
        raise UserError(f"{path}: {name}() raises {raised_text(error, path)}") from error
    # Two common mistakes: the `return` is missing, or parentheses make a generator.
    if made is None or isinstance(made, (Iterator, set, frozenset)):
        what = "None" if made is None else f"a value of type {type(made).__name__}"
        raise UserError(f"{path}: {name}() returns {what}; {FORMS}")
    check_arguments(made, f"{path}: {name}()")
    return made


def _module(path: Path) -> ModuleType:
    try:
        return module_of(path, MODULE_NAME)
    except (Exception, SystemExit) as error:
        raise UserError(f"{path} raises {raised_text(error, path)}") from error


def raised_text(error: BaseException, path: Path | None) -> str:
    """Type and message of an exception in one line, and the line of the file that raised it."""
    frames = [] if path is None else traceback.extract_tb(error.__traceback__)
    lines = [it.lineno for it in frames if path and Path(it.filename).resolve() == path.resolve()]
    message = shortened(" ".join(str(error).split()), LONGEST_MESSAGE)
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"{text} (line {lines[-1]})" if lines else text


def _callable(module: ModuleType, name: str, path: Path, what: str) -> Callable[..., object]:
    # Files often use other names: the message lists the defined names, and the two options.
    if not hasattr(module, name):
        defined = sorted(
            key
            for key, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__ and callable(value)
        )
        others = (
            f"; it defines {', '.join(defined)} (see --function and --inputs)" if defined else ""
        )
        raise UserError(f"{path} defines no '{name}': {what}{others}")
    member = getattr(module, name)
    if not callable(member):
        raise UserError(
            f"{path}: '{name}' is of type {type(member).__name__}, not callable; it must be {what}"
        )
    function: Callable[..., object] = member
    return function


def _check_call(function: Callable[..., object], name: str, given: object, path: Path) -> None:
    # Without this check, a wrong number of inputs would appear as an error of the eager run.
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none
        return
    arguments = CallArguments.of(given)
    try:
        signature.bind(*arguments.args, **arguments.kwargs)
    except TypeError as error:
        raise UserError(
            f"{path}: {name}{signature} cannot be called with {arguments.describe()}: {error}"
        ) from error
