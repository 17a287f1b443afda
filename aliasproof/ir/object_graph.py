"""What a value consists of: containers, dataclasses, modules and instances, down to their leaves.

Pytree takes dataclasses, modules and instances of user's classes as leaves. Here they have parts,
so that the tensors in them can be found, named and exchanged.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch

PLAIN = (bool, int, float, complex, str, type(None))
# Dynamo computes them as tensors, with other rounding, and gives 0-D arrays in place of scalars
# (torch/_numpy/_dtypes.py).
NUMPY, NUMPY_NAME = (np.ndarray, np.generic), "NumPy array"
# `torch.compile` marks a module.
_MODULE_ATTRIBUTES = frozenset({*vars(torch.nn.Module()), "_is_torch_compile"})
# Instances of their classes are leaves, since a copy of one would not be a value of its own (a
# lock, a generator, a logger, an operator).
_LIBRARIES = {*sys.stdlib_module_names, "torch", "numpy", "aliasproof"}
_STATEFUL = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Each leaf with its path: 'cache.k', 'params[0]', "state['step']".

    An object with parts is visited once, so that a value may contain itself.
    """
    # It keeps the visited objects alive, so that no identity is used twice.
    return _leaves(value, path, {})


def objects(value: object, most: int) -> list[object]:
    """The first leaves of a value, at most `most`, and the objects on the paths to them."""
    visited: dict[int, object] = {}
    first = [leaf for _, leaf in itertools.islice(_leaves(value, "", visited), most)]
    return [*visited.values(), *first]


def _leaves(value: object, path: str, visited: dict[int, object]) -> Iterator[tuple[str, object]]:
    parts = parts_of(value)
    if parts is None:
        yield path, value
    elif id(value) not in visited:
        visited[id(value)] = value
        for step, part in parts:
            yield from _leaves(part, (path + step).removeprefix("."), visited)


def parts_of(value: object) -> Iterable[tuple[str, object]] | None:
    """The parts of a value with the step to each, such as `.k` or `[0]`; None for a leaf."""
    # A tensor has a `__dict__`, but its bytes are what counts.
    if isinstance(value, (torch.Tensor, *PLAIN)):
        return None
    if isinstance(value, dict):
        return [(_key(key, index), item) for index, (key, item) in enumerate(value.items())]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", getattr(value, name)) for name in value._fields]
    if isinstance(value, (list, tuple, collections.deque)):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    if isinstance(value, types.MethodType):
        return [("", value.__self__)]
    if isinstance(value, functools.partial):
        return [(".args", value.args), (".keywords", value.keywords)]
    if isinstance(value, torch.nn.Module):
        return None if isinstance(value, torch.jit.ScriptModule) else _parts_of_module(value)
    if isinstance(value, torch.optim.Optimizer):
        return [(".state", value.state), (".param_groups", value.param_groups)]
    return _attributes(value) if _has_attributes(value) else None


def _key(key: object, index: int) -> str:
    # Optimizers have tensors as keys; where such an entry is in the dict names it.
    return f"[{key!r}]" if isinstance(key, PLAIN) else f"[{index}]"


def _parts_of_module(module: torch.nn.Module) -> Iterator[tuple[str, object]]:
    for held in (module._parameters, module._buffers, module._modules):
        for name, item in held.items():
            yield f"[{name}]" if name.isdigit() else f".{name}", item
    for name, item in vars(module).items():
        if name not in _MODULE_ATTRIBUTES:
            yield f".{name}", item


def _has_attributes(value: object) -> bool:
    """Whether it is an instance of a user's class, with attributes that a function can change."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)):
        return False
    if dataclasses.is_dataclass(value) or isinstance(value, _STATEFUL):
        return True
    # It may get its first attribute in a run.
    has_place = hasattr(value, "__dict__") or bool(_names(value))
    return has_place and not is_library(type(value).__module__)


def is_library(module: str) -> bool:
    """Whether a module belongs to Python, torch, numpy or this project, not to the user."""
    return module.partition(".")[0] in _LIBRARIES


def is_installed(module: str) -> bool:
    """Whether a module belongs to a package that was installed, so it is not edited.

    Its instances have parts. Its globals do not count: logs, caches and threads of a package change
    with what runs, and say nothing of the function.
    """
    path = getattr(sys.modules.get(module), "__file__", None)
    return path is not None and bool({"site-packages", "dist-packages"} & {*Path(path).parts})


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    for name in _names(value):
        if hasattr(value, name):
            yield f".{name}", getattr(value, name)


def _names(value: object) -> list[str]:
    """The attributes in `__dict__` and in `__slots__`."""
    slots = (getattr(kind, "__slots__", ()) for kind in type(value).__mro__)
    names = [name for slot in slots for name in ((slot,) if isinstance(slot, str) else slot)]
    named = [name for name in names if name not in ("__dict__", "__weakref__")]
    return [*named, *getattr(value, "__dict__", {})]
