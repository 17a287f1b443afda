"""Replaces a kernel of the dispatcher while a context is entered."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch


@contextlib.contextmanager
def kernel_added(op: str, key: str, kernel: Callable[..., Any]) -> Iterator[None]:
    """Give an aten op without a kernel for this dispatch key one."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl(op, kernel, key)
        yield


@contextlib.contextmanager
def kernel_replaced(op: str, key: str, kernel: Callable[..., Any]) -> Iterator[None]:
    """Replace the kernel of an aten op for a dispatch key. The new one gets the old one first."""
    old = torch.library.get_kernel(f"aten::{op}", key)

    def call(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        return kernel(lambda *operands: old.call_boxed(keys, *operands), *args, **kwargs)

    with torch.library._scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of the override, which is intended
            library.impl(op, call, key, with_keyset=True, allow_override=True)
        yield
