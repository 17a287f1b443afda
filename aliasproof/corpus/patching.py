"""`Patch`: corrects a compiler in this process while it is entered.

Each decorator makes a `Patch` from a function that computes what torch should compute. The original
is looked up when the patch is entered: Inductor takes two seconds to import, and most bugs do not
need it. The patches are in `corpus/patches`, one module per layer, and in the plug-ins of compilers
beyond torch.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeAlias
from unittest import mock

import torch

from aliasproof import torch_parts
from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.plugins import plugins

Function: TypeAlias = Callable[..., Any]

PASSES = "torch._inductor.fx_passes"
# The second table is used where Inductor draws random numbers itself.
DECOMPOSITIONS = (
    "torch._inductor.decomposition:decompositions",
    "torch._inductor.decomposition:fast_random_decomps",
)


@dataclass(frozen=True, slots=True)
class Patch:
    """Calling it returns a context in which the compiler is corrected.

    A patch is not `available` if this platform lacks something that it needs. `replaced` has, for
    each replacement, the path of the original, the new function, and keys if the original is a
    table.
    """

    enter: Callable[[], AbstractContextManager[None]]
    available: bool = True
    replaced: tuple[tuple[str, Function, tuple[Any, ...]], ...] = ()

    def __call__(self) -> AbstractContextManager[None]:
        return self.enter()

    def why_not(self) -> str | None:
        """Why the patch does not fit this torch and is not applied; None if it fits."""
        return _why_not(self)


@functools.cache
def _why_not(patch: Patch) -> str | None:
    for path, replacement, keys in patch.replaced:
        try:
            owner, name = _owner(path)
            found = getattr(owner, name)
            table: Any = found() if keys and callable(found) else found
            originals = [table[key] for key in keys] if keys else [found]
        except (ImportError, AttributeError, KeyError) as error:
            return f"torch has no {path}: {type(error).__name__}: {error}"
        if not all(torch_parts.is_called_so(original, replacement) for original in originals):
            return f"{path} takes other arguments"
    return None


def _owner(path: str) -> tuple[Any, str]:
    """The module or class that contains the object of a path, and the object's name there."""
    module, _, names = path.partition(":")
    *owners, name = names.split(".")
    return functools.reduce(getattr, owners, importlib.import_module(module)), name


def find_patch(layer: str, name: str) -> Patch:
    """The patch with this name in the module of a layer. Raises `UserError` if there is none."""
    found = _patches_of(layer)
    if name not in found:
        hint = did_you_mean(name, found)
        path = _module_of(layer).replace(".", "/")
        raise UserError(f"{path}.py has no patch '{name}'{hint}")
    return found[name]


def _module_of(layer: str) -> str:
    if layer in plugins():
        return f"{plugins()[layer].package}.patches"
    return f"aliasproof.corpus.patches.{layer}"


@functools.cache
def _patches_of(layer: str) -> dict[str, Patch]:
    module = _module_of(layer)
    names = vars(importlib.import_module(module)) if find_spec(module) else {}
    return {name: value for name, value in names.items() if isinstance(value, Patch)}


def together(*patches: Patch) -> Patch:
    """One patch that applies all of these."""

    @contextlib.contextmanager
    def enter_all() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch())
            yield

    return Patch(enter_all, replaced=tuple(it for patch in patches for it in patch.replaced))


def replaces(*paths: str, keys: Sequence[Any] = ()) -> Callable[[Function], Patch]:
    """Torch calls `replacement(original, *arguments)` in place of functions.

    A path names a function or a method, as `torch.module:Class.method`. With keys, it names a
    table, or a function that returns a table, and these entries are replaced.
    """
    replaced = _entries_replaced if keys else _attribute_replaced

    def declared(path: str, replacement: Function) -> Patch:
        enter = functools.partial(replaced, path, replacement, *keys)
        return Patch(enter, replaced=((path, replacement, tuple(keys)),))

    return lambda replacement: together(*(declared(path, replacement) for path in paths))


def replaces_outside(path: str) -> Callable[[Function], Patch]:
    """As `replaces`, for a compiler beyond torch: does nothing while its package is not loaded."""
    package = path.partition(".")[0]

    def declared(replacement: Function) -> Patch:
        patch = replaces(path)(replacement)
        return Patch(lambda: patch() if package in sys.modules else contextlib.nullcontext())

    return declared


@contextlib.contextmanager
def _attribute_replaced(path: str, replacement: Function) -> Iterator[None]:
    owner, name = _owner(path)
    original = getattr(owner, name)
    call: Any = functools.wraps(original)(_with_original(original, replacement))
    if isinstance(inspect.getattr_static(owner, name), classmethod):
        call = staticmethod(call)  # the original is bound to its class already
    with mock.patch.object(owner, name, call):
        yield


@contextlib.contextmanager
def _entries_replaced(path: str, replacement: Function, *keys: Any) -> Iterator[None]:
    table: Any = getattr(*_owner(path))
    table = table() if callable(table) else table
    with mock.patch.dict(table, {key: _with_original(table[key], replacement) for key in keys}):
        yield


def _with_original(original: Function, replacement: Function) -> Function:
    """A plain function: another callable would not become a method of a class."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    return call


def replaces_kernel(op: str, *keys: str) -> Callable[[Function], Patch]:
    """The dispatcher calls `replacement(original, *arguments)` for an aten op with these keys."""
    return lambda replacement: together(
        *(Patch(functools.partial(_kernel_replaced, op, key, replacement)) for key in keys)
    )


@contextlib.contextmanager
def _kernel_replaced(op: str, key: str, replacement: Function) -> Iterator[None]:
    old = torch.library.get_kernel(f"aten::{op}", key)

    def call(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        return replacement(lambda *operands: old.call_boxed(keys, *operands), *args, **kwargs)

    with torch.library._scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of the override, which is intended
            library.impl(op, call, key, with_keyset=True, allow_override=True)
        yield


def adds_kernel(key: str, *ops: str) -> Callable[[Function], Patch]:
    """The dispatcher calls the function for aten ops that have no kernel for this key."""
    return lambda kernel: Patch(functools.partial(_kernel_added, key, ops, kernel))


@contextlib.contextmanager
def _kernel_added(key: str, ops: Sequence[str], kernel: Function) -> Iterator[None]:
    with torch.library._scoped_library("aten", "IMPL") as library:
        for op in ops:
            library.impl(op, kernel, key)
        _forget_kernels(ops)
        yield
    _forget_kernels(ops)


def _forget_kernels(ops: Sequence[str]) -> None:
    """Clear the caches in which the Python dispatcher stores the kernel for a key."""
    for op in ops:
        name, _, overload = op.partition(".")
        getattr(getattr(torch.ops.aten, name), overload or "default")._dispatch_cache.clear()
