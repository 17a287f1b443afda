"""`Variable`: what outlives a call of a user's function, in all code that the function reaches."""

from __future__ import annotations

import contextlib
import enum
import functools
import random
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from aliasproof.ir.object_graph import PLAIN, is_installed, is_library, objects
from aliasproof.targets.target import Function
from aliasproof.user_code.call_arguments import CallArguments

# Leaves with a state of their own.
COPIED = (*PLAIN, set, bytearray, np.ndarray, torch.Generator, random.Random, np.random.Generator)
MOST_LEAVES = 100_000  # of the variables around a function; what has more is not copied
MOST_DATA = 1_000  # parts of a variable of an installed package
MOST_OWNERS = 2_000  # functions and classes that are looked at, the nearest first


@dataclass(frozen=True, slots=True)
class Variable:
    """What outlives a call: a global, a variable of a closure, a default, an attribute.

    The holder is a namespace, a cell, the function that has the default, or a class. What belongs
    to an installed package counts for the next run, but is not compared: logs and caches of a
    package change with what runs.
    """

    name: str
    holder: dict[str, Any] | types.CellType | types.FunctionType | type
    installed: bool = False

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


def variables_of(function: Function, arguments: CallArguments) -> Iterator[Variable]:
    """The variables of a function, and of the functions, modules and classes that it refers to."""
    seen: set[tuple[int, str]] = set()
    visited: set[types.FunctionType | type] = set()
    waiting = deque(_owners([function, *(value for _, value in arguments.by_name())]))
    while waiting:
        owner = waiting.popleft()
        if owner in visited or len(visited) > MOST_OWNERS:
            continue
        visited.add(owner)
        for variable in _variables_of(owner):
            value = variable.value
            if (key := (id(variable.holder), variable.name)) in seen:
                continue
            seen.add(key)
            is_code = isinstance(value, (type, types.FunctionType))
            # What an object of a package has, such as what is registered, leads to all of it.
            waiting += _owners(type(value) if variable.installed and not is_code else value)
            if not is_code and (not variable.installed or _is_data(value)):
                yield variable


def _is_data(value: object) -> bool:
    """Whether a value is made of numbers, tensors and the like, in containers, and not large."""
    waiting, count = [value], 0
    while waiting and (count := count + 1) <= MOST_DATA:
        part = waiting.pop()
        if isinstance(part, (dict, list, tuple, deque)):
            waiting += part.values() if isinstance(part, dict) else part
        elif not isinstance(part, (*COPIED, torch.Tensor)):
            return False
    return not waiting


def _owners(value: object) -> Iterator[types.FunctionType | type]:
    """The functions and classes of the user that use of this value runs, as far as is plain to see.

    All methods of a class are among them; of a module, those that `forward` names.
    """
    waiting, visited = [value], dict[int, object]()
    while waiting:
        for part in objects(waiting.pop(), MOST_LEAVES):
            # A partial of a method can be in the object of the method.
            if id(part) in visited:
                continue
            visited[id(part)] = part
            if isinstance(part, types.FunctionType):
                yield part
            kind = part if isinstance(part, type) else type(part)
            classes = [own for own in kind.__mro__ if not is_library(own.__module__)]
            yield from classes
            yield from _methods(classes)
            if isinstance(part, functools.partial):
                waiting.append(part.func)
            elif isinstance(part, types.MethodType):
                waiting.append(part.__func__)
            # Some objects say that they have any attribute.
            waiting.append(getattr(part, "__dict__", {}).get("__wrapped__"))


def _methods(classes: Sequence[type]) -> Iterator[types.FunctionType]:
    """What the methods of an object of these classes run, the first of which is its own."""
    methods = [(name, code) for own in classes for name, code in _functions_in(own)]
    if not any(issubclass(own, torch.nn.Module) for own in classes):
        yield from (method for _, method in methods)
        return
    waiting, named = ["forward"], set[str]()
    while waiting:
        name = waiting.pop()
        if name in named:
            continue
        named.add(name)
        for method in (method for own, method in methods if own == name):
            yield method
            waiting += _names(method.__code__)


def _functions_in(own: type) -> Iterator[tuple[str, types.FunctionType]]:
    for name, member in vars(own).items():
        parts = (member, getattr(member, "__func__", None), getattr(member, "fget", None))
        yield from ((name, part) for part in parts if isinstance(part, types.FunctionType))


def _variables_of(owner: types.FunctionType | type) -> Iterator[Variable]:
    if isinstance(owner, type):
        if issubclass(owner, enum.Enum):  # it refuses to exchange a member
            return
        installed = is_installed(owner.__module__)
        for name, value in vars(owner).items():
            # Other attributes are code, or belong to the machinery of the class.
            if not name.startswith("__") and isinstance(value, _STATE):
                yield Variable(name, owner, installed)
        return
    module = _module(owner.__globals__)
    installed = is_library(module) or is_installed(module)
    modules = [owner.__globals__]
    cells = owner.__closure__ or ()
    for name, cell in zip(owner.__code__.co_freevars, cells, strict=True):
        with contextlib.suppress(ValueError):  # the cell is empty
            if isinstance(cell.cell_contents, types.ModuleType):
                modules.append(vars(cell.cell_contents))
            else:
                yield Variable(name, cell, installed)
    if is_library(module):
        return
    for name in _defaults(owner):
        yield Variable(name, owner, installed)
    for name in owner.__dict__:
        if name != "__wrapped__":
            yield Variable(name, owner.__dict__, installed)
    yield from _globals(modules, list(_names(owner.__code__)))


def _globals(waiting: list[dict[str, Any]], names: Sequence[str]) -> Iterator[Variable]:
    """The variables of modules that code uses, also those of a module in one: `helpers.count`."""
    visited = set[int]()
    while waiting:
        namespace = waiting.pop()
        if is_library(_module(namespace)) or id(namespace) in visited:
            continue
        visited.add(id(namespace))
        installed = is_installed(_module(namespace))
        for name in filter(namespace.__contains__, names):
            if isinstance(namespace[name], types.ModuleType):
                waiting.append(vars(namespace[name]))
            else:
                yield Variable(name, namespace, installed)


def _module(namespace: Mapping[str, object]) -> str:
    return str(namespace.get("__name__", ""))


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
    # What pytest adds to `assert` has other names, such as `@pytest_ar`.
    yield from filter(str.isidentifier, code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
