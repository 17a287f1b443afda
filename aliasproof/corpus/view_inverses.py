"""Replaces what functionalization does to undo a view, which is written in C++.

Functionalization turns a write through a view into a new base: `ViewMeta::reverse(base, written)`
(torch/csrc `FunctionalInverses.cpp`). C++ cannot be replaced from Python, but `reverse` calls
operators, and under a trace each of these passes through a dispatch mode in Python. The stack of
native frames says whether such a call comes from `reverse` of one kind of view, or from the
program.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload

from aliasproof.corpus.mends import Mend, mends

# `call(op, *args)` runs an operator below the mode that is being replaced.
Call: TypeAlias = Callable[..., Any]
# Takes `call`, the op and its arguments. Returns NotImplemented where nothing is replaced.
Replacement: TypeAlias = Callable[[Call, OpOverload, Sequence[Any]], Any]

aten = torch.ops.aten

_MOST_FRAMES = 128  # a call of `reverse` is 10 to 20 frames below the mode


def replaced_in_modes(replacement: Replacement) -> Mend:
    """Ask `replacement` about each operator that reaches the tracing or the fake mode."""
    replacement = _outside_of_calls(replacement)

    def dispatch(
        original: Callable[..., Any],
        mode: object,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        def call(op: OpOverload, *operands: Any, **options: Any) -> Any:
            return original(mode, op, types, operands, options)

        result = replacement(call, func, args)
        return original(mode, func, types, args, kwargs) if result is NotImplemented else result

    return mends(
        "torch.fx.experimental.proxy_tensor:ProxyTorchDispatchMode.__torch_dispatch__",
        "torch._subclasses.fake_tensor:FakeTensorMode.__torch_dispatch__",
    )(dispatch)


def mends_inverse(view: str, *ops: OpOverload) -> Callable[[Replacement], Mend | None]:
    """Ask the function about each of these operators that `reverse` of a kind of view calls."""
    if not reachable(view):
        return lambda replacement: None

    def mend(replacement: Replacement) -> Mend:
        def ask(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
            asked = op in ops and undoing(view)
            return replacement(call, op, args) if asked else NotImplemented

        return replaced_in_modes(ask)

    return mend


def _outside_of_calls(replacement: Replacement) -> Replacement:
    """The same, but nothing is replaced while the replacement calls an operator.

    The tracing mode asks the fake mode what such a call returns. The answer must be true of the
    operator that is in the graph.
    """
    depth = 0

    def replace(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
        def counting_call(*operands: Any, **options: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                return call(*operands, **options)
            finally:
                depth -= 1

        return NotImplemented if depth else replacement(counting_call, op, args)

    return replace


def reachable(view: str) -> bool:
    """Whether calls from `reverse` of this kind of view can be told: on Linux with glibc."""
    try:
        _code_of(view)
    except (AttributeError, OSError):
        return False
    return True


def undoing(view: str) -> bool:
    """Whether the current call comes from `reverse` of this kind of view, such as 'expand'."""
    start, end = _code_of(view)
    frames = (ctypes.c_void_p * _MOST_FRAMES)()
    count = _libc().backtrace(frames, _MOST_FRAMES)
    return any(start < (frames[index] or 0) <= end for index in range(count))


def with_strides_of(call: Call, base: Any, new: Any) -> Any:
    """The new base with the strides of the old one, which computing it can lose."""
    if new.shape != base.shape or new.stride() == base.stride():
        return new
    empty = call(aten.new_empty_strided.default, new, list(base.shape), list(base.stride()))
    return call(aten.copy.default, empty, new)


class _Symbol(ctypes.Structure):
    """`Dl_info` of <dlfcn.h>."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _ElfSymbol(ctypes.Structure):
    """`Elf64_Sym` of <elf.h>."""

    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_ubyte),
        ("other", ctypes.c_ubyte),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


_RTLD_DL_SYMENT = 1  # asks dladdr1 for the entry of the symbol, which has its size


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@functools.cache
def _code_of(view: str) -> tuple[int, int]:
    """The addresses between which the code of `reverse` is. It is exported by libtorch_cpu."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    # at::functionalization::<view>_ViewMeta::reverse(at::Tensor const&, at::Tensor const&), as the
    # Itanium ABI mangles it.
    owner = f"{view}_ViewMeta"
    name = f"_ZN2at17functionalization{len(owner)}{owner}7reverseERKNS_6TensorES4_"
    start = ctypes.cast(library[name], ctypes.c_void_p).value
    assert start is not None
    symbol, entry = _Symbol(), ctypes.POINTER(_ElfSymbol)()
    _libc().dladdr1(
        ctypes.c_void_p(start), ctypes.byref(symbol), ctypes.byref(entry), _RTLD_DL_SYMENT
    )
    return start, start + int(entry.contents.size)
