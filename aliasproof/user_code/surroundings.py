"""What a user's function can read or change: its arguments, itself, and the variables around it.

A run gets a copy of all that, with its own tensors in place of the user's. So no run changes what
the user has, and a later run does not see what an earlier one left.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from aliasproof.targets.target import Function
from aliasproof.user_code.call_arguments import CallArguments
from aliasproof.user_code.object_graph import PLAIN, is_library, leaves

MOST_LEAVES = 100_000  # of the variables around a function; what has more is not copied


@dataclass(frozen=True, slots=True)
class Variable:
    """A global or a variable of a closure."""

    name: str
    holder: dict[str, Any] | types.CellType

    @property
    def value(self) -> Any:
        if isinstance(self.holder, types.CellType):
            return self.holder.cell_contents
        return self.holder[self.name]

    def set(self, value: object) -> None:
        if isinstance(self.holder, types.CellType):
            self.holder.cell_contents = value
        else:
            self.holder[self.name] = value


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A function, its arguments, and the variables that it and the functions in its file use."""

    function: Function
    arguments: CallArguments
    variables: tuple[Variable, ...]

    @classmethod
    def of(cls, function: Function, arguments: CallArguments) -> Surroundings:
        """Find the variables of a function."""
        small = filter(_is_small, _variables(function, arguments))
        # A parameter is called as its module calls it, not as its optimizer does.
        variables = tuple(
            sorted(small, key=lambda variable: isinstance(variable.value, torch.optim.Optimizer))
        )
        return cls(function, arguments.named_for(function), variables)

    def call(self) -> object:
        """Call the function with its arguments."""
        return self.function(*self.arguments.args, **self.arguments.kwargs)

    def leaves(self) -> Iterator[tuple[str, object]]:
        """All leaves with their paths: first those of the arguments. No two paths are equal."""
        # A module or a bound method has tensors itself: their names are those that it gives.
        roots = [
            *self.arguments.by_name(),
            ("", self.function),
            *((variable.name, variable.value) for variable in self.variables),
        ]
        taken: Counter[str] = Counter()
        for name, value in roots:
            for path, leaf in leaves(value, name):
                # A global can be called as an argument is.
                taken[path] += 1
                yield (f"{path} ({taken[path]})" if taken[path] > 1 else path), leaf

    def tensors(self) -> dict[int, tuple[str, torch.Tensor]]:
        """Each tensor object with its first path, by identity."""
        tensors: dict[int, tuple[str, torch.Tensor]] = {}
        for path, leaf in self.leaves():
            if isinstance(leaf, torch.Tensor):
                tensors.setdefault(id(leaf), (path, leaf))
        return tensors

    @contextlib.contextmanager
    def copy_with(self, replacements: Mapping[int, torch.Tensor]) -> Iterator[Surroundings]:
        """A copy, with other tensors by the identity of those that they replace.

        The variables have their copies within this context alone.
        """
        # Leaves stay what they are: a lock, a generator or an operator has no meaningful copy.
        memo: dict[int, Any] = {
            id(leaf): leaf for _, leaf in self.leaves() if not isinstance(leaf, PLAIN)
        }
        memo |= replacements
        arguments = CallArguments(
            tuple(_copy(value, memo) for value in self.arguments.args),
            {name: _copy(value, memo) for name, value in self.arguments.kwargs.items()},
            self.arguments.names,
        )
        before = [variable.value for variable in self.variables]
        try:
            for variable, value in zip(self.variables, before, strict=True):
                variable.set(_copy(value, memo))
            yield Surroundings(_copy(self.function, memo), arguments, self.variables)
        finally:
            for variable, value in zip(self.variables, before, strict=True):
                variable.set(value)


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    try:
        return copy.deepcopy(value, memo)
    # An object of a user's class may refuse to be copied in any way. Then all runs share it; if
    # they change it, two eager runs differ, and nothing is judged.
    except Exception:  # noqa: BLE001 - see above
        return value


def _is_small(variable: Variable) -> bool:
    return all(index < MOST_LEAVES for index, _ in enumerate(leaves(variable.value)))


# --- variables ------------------------------------------------------------------------------------


def _variables(function: Function, arguments: CallArguments) -> Iterator[Variable]:
    """The variables of a function, and of the functions and modules that these refer to."""
    seen: set[tuple[int, str]] = set()
    visited: set[types.FunctionType] = set()
    waiting = [
        *_functions(function),
        *(callee for _, value in arguments.by_name() for callee in _functions(value)),
    ]
    while waiting:
        code = waiting.pop(0)
        if code in visited:
            continue
        visited.add(code)
        for variable in _variables_of(code):
            if (key := (id(variable.holder), variable.name)) in seen:
                continue
            seen.add(key)
            waiting += _functions(variable.value)
            if not isinstance(variable.value, (type, types.ModuleType, types.FunctionType)):
                yield variable


def _functions(value: object) -> list[types.FunctionType]:
    """The Python functions that a call of this value runs, as far as they are plain to see."""
    wrapped = getattr(value, "__wrapped__", None)
    inner_functions = [] if wrapped is None else _functions(wrapped)
    if isinstance(value, types.FunctionType):
        return [value, *inner_functions]
    if isinstance(value, types.MethodType):
        return [*_functions(value.__func__), *_functions(value.__self__), *inner_functions]
    if isinstance(value, torch.nn.Module):
        forwards = {type(module).forward: None for module in value.modules()}
        return [forward for forward in forwards if isinstance(forward, types.FunctionType)]
    inner = getattr(value, "func", None)  # of functools.partial
    return [*_functions(inner), *inner_functions] if callable(inner) else inner_functions


def _variables_of(function: types.FunctionType) -> Iterator[Variable]:
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        with contextlib.suppress(ValueError):  # the cell is empty
            _ = cell.cell_contents
            yield Variable(name, cell)
    # The globals of torch are not the user's.
    if not is_library(str(function.__globals__.get("__name__", ""))):
        for name in _names(function.__code__):
            if name in function.__globals__:
                yield Variable(name, function.__globals__)


def _names(code: types.CodeType) -> Iterator[str]:
    """The names of globals (and attributes) in a function and in those that it defines."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def default_names(function: Function) -> Iterator[tuple[str, object]]:
    """The defaults of a function's parameters, by the parameter."""
    with contextlib.suppress(TypeError, ValueError):  # some builtins have no signature
        for name, parameter in inspect.signature(function).parameters.items():
            yield name, parameter.default
