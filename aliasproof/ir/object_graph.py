"""The parts of a value: containers, dataclasses, modules and instances, down to their leaves.

For Pytree, dataclasses, modules and instances of users' classes are leaves. Here they have parts,
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
# Dynamo computes these as tensors, with other rounding, and returns 0-D arrays instead of scalars
# (torch/_numpy/_dtypes.py).
NUMPY, NUMPY_NAME = (np.ndarray, np.generic), "NumPy array"
# `torch.compile` adds the last one to a module.
_MODULE_ATTRIBUTES = frozenset({*vars(torch.nn.Module()), "_is_torch_compile"})
# Instances of the classes of these packages are leaves, since a copy would not be an independent
# value (of a lock, a generator, a logger, an operator).
_LIBRARIES = {*sys.stdlib_module_names, "torch", "numpy", "aliasproof"}
_STATEFUL = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Each leaf with its path: 'cache.k', 'params[0]', "state['step']".

    An object with parts is visited once, so a value may contain itself.
    """
    # The dict keeps the visited objects alive, so that no identity is used twice.
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
    # A tensor has a `__dict__`, but only its bytes count.
    if isinstance(value, (torch.Tensor, *PLAIN)):
        return None
    if isinstance(value, dict):
        # Optimizers have tensors as keys; such an entry is named by its position in the dict.
        return [
            (f"[{key!r}]" if isinstance(key, PLAIN) else f"[{index}]", item)
            for index, (key, item) in enumerate(value.items())
        ]
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
    if not _has_attributes(value):
        return None
    # An object need not have all that its `__slots__` name.
    return ((f".{name}", getattr(value, name)) for name in _names(value) if hasattr(value, name))


def _parts_of_module(module: torch.nn.Module) -> Iterator[tuple[str, object]]:
    for held in (module._parameters, module._buffers, module._modules):
        for name, item in held.items():
            yield f"[{name}]" if name.isdigit() else f".{name}", item
    for name, item in vars(module).items():
        if name not in _MODULE_ATTRIBUTES:
            yield f".{name}", item


def _has_attributes(value: object) -> bool:
    """True for an instance of a user's class, with attributes that a function can change."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)):
        return False
    if dataclasses.is_dataclass(value) or isinstance(value, _STATEFUL):
        return True
    # An object without attributes may get its first one in a run.
    has_place = hasattr(value, "__dict__") or bool(_names(value))
    return has_place and not is_library(type(value).__module__)


def is_library(module: str) -> bool:
    """True if a module belongs to Python, torch, numpy or this project, not to the user."""
    return module.partition(".")[0] in _LIBRARIES


def is_installed(module: str) -> bool:
    """True if a module belongs to an installed package, so it is not edited.

    Its instances have parts. Its globals are ignored: logs, caches and threads of a package change
    in each run, and show nothing about the function.
    """
    path = getattr(sys.modules.get(module), "__file__", None)
    return path is not None and bool({"site-packages", "dist-packages"} & {*Path(path).parts})


def _names(value: object) -> list[str]:
    """The attributes in `__dict__` and in `__slots__`."""
    slots = (getattr(kind, "__slots__", ()) for kind in type(value).__mro__)
    names = [name for slot in slots for name in ((slot,) if isinstance(slot, str) else slot)]
    named = [name for name in names if name not in ("__dict__", "__weakref__")]
    return [*named, *getattr(value, "__dict__", {})]
