"""The values that a user's function can read or change: arguments, itself, variables around it.

A run gets a copy of these values, with its own tensors in place of the user's. So no run changes
the user's values, and no run sees the changes of an earlier one.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import random
import types
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import fx
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from aliasproof.ir.errors import UserError
from aliasproof.ir.object_graph import PLAIN, is_installed, is_library, leaves, objects
from aliasproof.targets.target import Function
from aliasproof.user_code.user_file import CallArguments, distinct_tensors, not_comparable

# Types of leaves with mutable state or data: these are copied.
COPIED = (*PLAIN, set, bytearray, np.ndarray, torch.Generator, random.Random, np.random.Generator)
MOST_LEAVES = 100_000  # of a variable around a function; a larger one is not copied
MOST_DATA = 1_000  # parts of a variable of an installed package
MOST_OWNERS = 2_000  # functions and classes that are searched, the nearest first


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that outlives a call: a global, closure variable, default or attribute.

    The holder is a namespace, a cell, the function that has the default, or a class. Variables of
    an installed package are copied like others, but not compared: logs and caches of a package
    change with each run.
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
            keywords = self.holder.__kwdefaults__ or {}
            if self.name in keywords:
                keywords[self.name] = value
            else:
                defaults = {**_defaults(self.holder), self.name: value}
                positional = [it for name, it in defaults.items() if name not in keywords]
                self.holder.__defaults__ = tuple(positional)
        elif isinstance(self.holder, type):
            setattr(self.holder, self.name, value)
        else:
            self.holder[self.name] = value


def variables_of(function: Function, arguments: CallArguments) -> Iterator[Variable]:
    """The variables of a function, and of all functions, modules and classes that it refers to."""
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
            # The attributes of a package's object, such as a registry, lead to all of the package.
            waiting += _owners(type(value) if variable.installed and not is_code else value)
            if not is_code and (not variable.installed or _is_data(value)):
                yield variable


def _is_data(value: object) -> bool:
    """Whether a value is small, and consists of containers, numbers, tensors and the like."""
    waiting, count = [value], 0
    while waiting and (count := count + 1) <= MOST_DATA:
        part = waiting.pop()
        if isinstance(part, (dict, list, tuple, deque)):
            waiting += part.values() if isinstance(part, dict) else part
        elif not isinstance(part, (*COPIED, torch.Tensor)):
            return False
    return not waiting


# The attributes of modules and tensors with their hooks.
_HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_post_accumulate_grad_hooks",
)


def _owners(value: object) -> Iterator[types.FunctionType | type]:
    """The user's functions and classes that may run where this value is used (a static guess).

    These include all methods of a class, but for a module, only those that `forward` names, and the
    hooks of modules and tensors.
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
            elif isinstance(part, torch.nn.Module | torch.Tensor):
                hooks = (getattr(part, name, None) or {} for name in _HOOKS)
                waiting += [list(them.values()) for them in hooks]
            # Not `getattr`: some objects claim to have any attribute.
            waiting.append(getattr(part, "__dict__", {}).get("__wrapped__"))


def _methods(classes: Sequence[type]) -> Iterator[types.FunctionType]:
    """The methods of an object of these classes, in method resolution order; see `_owners`."""
    methods = [
        (name, part)
        for own in classes
        for name, member in vars(own).items()
        for part in (member, getattr(member, "__func__", None), getattr(member, "fget", None))
        if isinstance(part, types.FunctionType)
    ]
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


def _variables_of(owner: types.FunctionType | type) -> Iterator[Variable]:
    if isinstance(owner, type):
        if issubclass(owner, enum.Enum):  # it refuses to exchange a member
            return
        installed = is_installed(owner.__module__)
        for name, value in vars(owner).items():
            # Other attributes are code, or machinery of the class.
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
    """The variables of modules that code uses, also of modules in modules: `helpers.count`."""
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


# Types of class attributes that a method may change.
_STATE = (bool, int, float, complex, type(None), list, dict, torch.Tensor)


def _defaults(function: types.FunctionType) -> dict[str, Any]:
    """The defaults of a function's parameters, by name."""
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    positional = names[len(names) - len(values) :]
    return dict(zip(positional, values, strict=True)) | (function.__kwdefaults__ or {})


def _names(code: types.CodeType) -> Iterator[str]:
    """The names of globals (and attributes) in a function and in those that it defines."""
    # pytest adds names to `assert` that are no identifiers, such as `@pytest_ar`.
    yield from filter(str.isidentifier, code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


_CACHE = functools._lru_cache_wrapper


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A function, its arguments, and the variables that it and the functions in its file use."""

    function: Function
    arguments: CallArguments
    variables: tuple[Variable, ...]

    @classmethod
    def of(cls, function: Function, arguments: CallArguments) -> Surroundings:
        """Find them. Raises `UserError` if a module is lazy: its first call changes its class."""
        small = (
            variable
            for variable in variables_of(function, arguments)
            if all(index < MOST_LEAVES for index, _ in enumerate(leaves(variable.value)))
        )
        # Optimizers last: a parameter is named by the path in its module, not in its optimizer.
        variables = tuple(
            sorted(small, key=lambda variable: isinstance(variable.value, torch.optim.Optimizer))
        )
        made = cls(function, arguments.named_for(function), variables)
        for path, tensor in made.tensors().values():
            if is_lazy(tensor):
                raise UserError(f"{path} has no shape yet: call its module once before the check")
        return made

    def call(self) -> object:
        return self.function(*self.arguments.args, **self.arguments.kwargs)

    def for_second_call(
        self, replacements: Mapping[int, torch.Tensor], memo: Mapping[int, Any]
    ) -> Surroundings:
        """The arguments of a second call: with new inputs, and the state that the first call left.

        Tensors in the arguments, and their containers, are new; `replacements` has the tensors by
        identity. The second call shares all other values with the first, from `memo`: objects that
        the function, variables or objects among the arguments reach, and tensors that share their
        memory.
        """
        state = self._state()
        storages = {it.untyped_storage()._cdata for it in state.values() if _has_storage(it)}

        def anew(value: object) -> object:
            if isinstance(value, PLAIN):
                return value
            kept = memo.get(id(value), value)
            shares = _has_storage(value) and value.untyped_storage()._cdata in storages
            return kept if id(value) in state or shares else replacements.get(id(value), kept)

        args, kwargs = pytree.tree_map(
            anew,
            (self.arguments.args, dict(self.arguments.kwargs)),
            is_leaf=lambda value: id(value) in state,
        )
        return replace(self, arguments=replace(self.arguments, args=args, kwargs=kwargs))

    def _state(self) -> dict[int, object]:
        """The values that a call leaves to the next one, by identity: all except plain inputs."""
        inputs = pytree.tree_leaves((self.arguments.args, dict(self.arguments.kwargs)))
        kept = [it for it in inputs if not isinstance(it, (torch.Tensor, *PLAIN))]
        reached = [self.function, *(variable.value for variable in self.variables), *kept]
        return {id(it): it for value in reached for it in objects(value, MOST_LEAVES)}

    def compared(self) -> Surroundings:
        """The part of the surroundings in which a run must agree with eager."""
        own = [variable for variable in self.variables if not variable.installed]
        return replace(self, variables=tuple(own))

    def roots(self) -> Iterator[tuple[str, object]]:
        """The named values in which leaves are searched."""
        yield from self.arguments.by_name()
        # A module or a bound method contains tensors itself, under their own names.
        yield "", self.function
        yield from ((variable.name, variable.value) for variable in self.variables)

    def leaves(self) -> Iterator[tuple[str, object]]:
        """All leaves with their paths, those of the arguments first. All paths are distinct."""
        return distinctly_named(it for name, root in self.roots() for it in leaves(root, name))

    def tensors(self) -> dict[int, tuple[str, torch.Tensor]]:
        """Each tensor object with its first path, by identity."""
        return distinct_tensors(self.leaves())

    @contextlib.contextmanager
    def copy_with(
        self, replacements: Mapping[int, torch.Tensor], memo: dict[int, Any] | None = None
    ) -> Iterator[Surroundings]:
        """A copy in which `replacements`, by identity, take the place of tensors.

        Only within this context do the variables have the copied values. `memo` receives each copy,
        by the identity of the original.
        """
        memo = {} if memo is None else memo
        # Other leaves are shared: a lock or an operator has no meaningful copy.
        known = [leaf for _, leaf in self.leaves()]
        memo |= {id(leaf): leaf for leaf in known if not isinstance(leaf, COPIED)}
        with _disable_current_modes():  # in a trace, the state of a generator would be fake
            memo |= {id(it): copy.deepcopy(it) for it in known if isinstance(it, torch.Generator)}
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
                if not isinstance(value, PLAIN):
                    variable.set(_copy(value, memo))
            yield Surroundings(_copy(self.function, memo), arguments, self.variables)
        finally:
            _clear(caches)
            for variable, value in zip(self.variables, before, strict=True):
                variable.set(value)


def distinctly_named(values: Iterable[tuple[str, object]]) -> Iterator[tuple[str, object]]:
    """The values with distinct names: a global can have the name of an argument."""
    taken: Counter[str] = Counter()
    for name, value in values:
        taken[name] += 1
        yield (f"{name} ({taken[name]})" if taken[name] > 1 else name), value


def _clear(caches: Sequence[functools._lru_cache_wrapper[Any]]) -> None:
    """Clear caches, whose results may be tensors that a run wrote."""
    for cache in caches:
        cache.cache_clear()


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    try:
        made = copy.deepcopy(value, memo)
        if isinstance(value, torch.nn.Module):
            # The copy of a graph runs the code of the original, as other copies of modules do.
            # Torch gives each copy a class of its own, so Dynamo would compile it in each run.
            for original, copied in zip(value.modules(), made.modules(), strict=True):
                if isinstance(original, fx.GraphModule):
                    copied.__class__ = type(original)
        if isinstance(value, torch.optim.Optimizer):
            # `__getstate__` leaves some attributes out, such as the parameters of LBFGS.
            for name, item in vars(value).items():
                if name not in vars(made) and not callable(item):
                    setattr(made, name, copy.deepcopy(item, memo))
    # An object of a user's class may refuse to be copied. Then all runs share it; if they change
    # it, two eager runs differ, and the function is not judged.
    except Exception:  # noqa: BLE001 - see above
        return value
    # So is a container whose class copies wrongly, such as a dict that changes its keys.
    exact = not isinstance(value, dict) or _paths(made) == _paths(value)
    return made if exact else value


def _has_storage(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and not_comparable(value) is None


def _paths(value: object) -> list[str]:
    return [path for path, _ in leaves(value)]
