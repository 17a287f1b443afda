"""Replaces how AOTAutograd describes a function whose inputs were merged into synthetic bases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

# The first import must come first: `runtime_wrappers` alone imports itself in a circle.
from torch._functorch import aot_autograd  # noqa: F401
from torch._functorch._aot_autograd import runtime_wrappers
from torch._functorch._aot_autograd.schemas import OutputType

__all__ = ["OutputType", "description_replaced"]
_NAME = "create_synthetic_base_metadata"


@contextlib.contextmanager
def description_replaced(replacement: Callable[..., Any]) -> Iterator[None]:
    """Call `replacement(original, metadata, merged, *rest)` where torch calls the original.

    `merged` says for each input what became of it: its new index, or the base and a view of it.
    """
    original = getattr(runtime_wrappers, _NAME)

    def create(*args: Any) -> Any:
        return replacement(original, *args)

    with mock.patch.object(runtime_wrappers, _NAME, create):
        yield
