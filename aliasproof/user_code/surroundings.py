"""What a user's function can read or change: its arguments, itself, and the variables around it.

A run gets a copy of all that, with its own tensors in place of the user's. So no run changes what
the user has, and a later run does not see what an earlier one left.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import random
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from aliasproof.programs.object_graph import PLAIN, is_installed, is_library, leaves, objects
from aliasproof.targets.target import Function
from aliasproof.user_code.call_arguments import CallArguments

# Leaves with a state of their own.
_COPIED = (*PLAIN, set, bytearray, np.ndarray, torch.Generator, random.Random, np.random.Generator)
_CACHE = functools._lru_cache_wrapper
MOST_LEAVES = 100_000  # of the variables around a function; what has more is not copied


@dataclass(frozen=True, slots=True)
class Variable:
    """What outlives a call: a global, a variable of a closure, a default, an attribute.

    The holder is a namespace, a cell, the function that has the default, or a class.
    """

    name: str
    holder: dict[str, Any] | types.CellType | types.FunctionType | type

    @property
    def value(self) -> Any:
        if isinstance(self.holder, types.CellType):
            return self.holder.cell_contents
        if isinstance(self.holder, types.FunctionType):
            return _defaults(self.holder)[self.name]
        return (vars(self.holder) if isinstance(self.holder, type) else self.holder)[self.name]

    def set(self, value: object) -> None:
        if isinstance(self.holder, types.CellType):
            self.holder.cell_contents = value
        elif isinstance(self.holder, types.FunctionType):
            _set_default(self.holder, self.name, value)
        elif isinstance(self.holder, type):
            setattr(self.holder, self.name, value)
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
        # Other leaves stay what they are: a lock or an operator has no meaningful copy.
        memo: dict[int, Any] = {
            id(leaf): leaf for _, leaf in self.leaves() if not isinstance(leaf, _COPIED)
        }
        memo |= replacements
        arguments = CallArguments(
            tuple(_copy(value, memo) for value in self.arguments.args),
            {name: _copy(value, memo) for name, value in self.arguments.kwargs.items()},
            self.arguments.names,
        )
        before = [variable.value for variable in self.variables]
        caches = [it for it in (self.function, *before) if isinstance(it, _CACHE)]
        try:
            _clear(caches)
            for variable, value in zip(self.variables, before, strict=True):
                variable.set(_copy(value, memo))
            yield Surroundings(_copy(self.function, memo), arguments, self.variables)
        finally:
            _clear(caches)
            for variable, value in zip(self.variables, before, strict=True):
                variable.set(value)


def _clear(caches: Sequence[functools._lru_cache_wrapper[Any]]) -> None:
    """Forget results, which can be tensors that a run wrote."""
    for cache in caches:
        cache.cache_clear()


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    try:
        made = copy.deepcopy(value, memo)
        if isinstance(value, torch.optim.Optimizer):
            # `__getstate__` leaves some attributes out, such as the parameters of LBFGS.
            for name, item in vars(value).items():
                if name not in vars(made) and not callable(item):
                    setattr(made, name, copy.deepcopy(item, memo))
    # An object of a user's class may refuse to be copied in any way. Then all runs share it; if
    # they change it, two eager runs differ, and nothing is judged.
    except Exception:  # noqa: BLE001 - see above
        return value
    # So may a container whose class copies something else, such as a dict that changes its keys.
    exact = not isinstance(value, dict) or _paths(made) == _paths(value)
    return made if exact else value


def _paths(value: object) -> list[str]:
    return [path for path, _ in leaves(value)]


def _is_small(variable: Variable) -> bool:
    return all(index < MOST_LEAVES for index, _ in enumerate(leaves(variable.value)))


# --- variables ------------------------------------------------------------------------------------


def _variables(function: Function, arguments: CallArguments) -> Iterator[Variable]:
    """The variables of a function, and of the functions, modules and classes that it refers to."""
    seen: set[tuple[int, str]] = set()
    visited: set[types.FunctionType | type] = set()
    waiting = [*_owners(function), *_owners([value for _, value in arguments.by_name()])]
    while waiting:
        owner = waiting.pop(0)
        if owner in visited:
            continue
        visited.add(owner)
        for variable in _variables_of(owner):
            value = variable.value
            if (key := (id(variable.holder), variable.name)) in seen:
                continue
            seen.add(key)
            waiting += _owners(value)
            if not isinstance(value, (type, types.ModuleType, types.FunctionType)):
                yield variable


def _owners(value: object) -> Iterator[types.FunctionType | type]:
    """The functions and classes of the user that use of this value runs, as far as is plain to see.

    All methods of a class are among them; of a module, only the one named `forward`.
    """
    for part in objects(value, MOST_LEAVES):
        if isinstance(part, types.FunctionType):
            yield part
        elif isinstance(part, types.MethodType):
            yield from _owners(part.__func__)
        kind = part if isinstance(part, type) else type(part)
        for own in _user_classes(kind):
            yield own
            names = ["forward"] if issubclass(own, torch.nn.Module) else list(vars(own))
            methods = (vars(own).get(name) for name in names)
            yield from (it for it in methods if isinstance(it, types.FunctionType))
        if isinstance(part, functools.partial):
            yield from _owners(part.func)
        inner = getattr(part, "__wrapped__", None)
        if inner is not None:
            yield from _owners(inner)


def _user_classes(kind: type) -> list[type]:
    return [own for own in kind.__mro__ if not is_library(own.__module__)]


def _variables_of(owner: types.FunctionType | type) -> Iterator[Variable]:
    if isinstance(owner, type):
        # An enum refuses to exchange a member.
        if is_installed(owner.__module__) or issubclass(owner, enum.Enum):
            return
        for name, value in vars(owner).items():
            # Other attributes are code, or belong to the machinery of the class.
            if not name.startswith("__") and isinstance(value, _STATE):
                yield Variable(name, owner)
        return
    cells = owner.__closure__ or ()
    for name, cell in zip(owner.__code__.co_freevars, cells, strict=True):
        with contextlib.suppress(ValueError):  # the cell is empty
            _ = cell.cell_contents
            yield Variable(name, cell)
    # The globals and defaults of torch and of installed packages are not the user's.
    module = str(owner.__globals__.get("__name__", ""))
    if is_library(module) or is_installed(module):
        return
    for name in _defaults(owner):
        yield Variable(name, owner)
    for name in owner.__dict__:
        if name != "__wrapped__":
            yield Variable(name, owner.__dict__)
    for name in _names(owner.__code__):
        if name in owner.__globals__:
            yield Variable(name, owner.__globals__)


# The values of a class that a method may change.
_STATE = (bool, int, float, complex, type(None), list, dict, torch.Tensor)


def _defaults(function: types.FunctionType) -> dict[str, Any]:
    """The defaults of a function's parameters, by name."""
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    positional = names[len(names) - len(values) :]
    return dict(zip(positional, values, strict=True)) | (function.__kwdefaults__ or {})


def _set_default(function: types.FunctionType, name: str, value: object) -> None:
    keywords = function.__kwdefaults__ or {}
    if name in keywords:
        keywords[name] = value
        return
    values = {own: old for own, old in _defaults(function).items() if own not in keywords}
    function.__defaults__ = tuple({**values, name: value}.values())


def _names(code: types.CodeType) -> Iterator[str]:
    """The names of globals (and attributes) in a function and in those that it defines."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
