"""Data-dependent calls: they return tensor data to Python, or their shape depends on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch._ops import OpOverload

aten = torch.ops.aten

# They answer with a Python bool, and torch does not tag them.
_UNTAGGED = {aten.equal.default, aten.is_nonzero.default}


def is_data_dependent(op: OpOverload, arguments: Mapping[str, Any]) -> bool:
    """True if no trace without tensor data can go on after this call."""
    if torch.Tag.data_dependent_output in op.tags or op in _UNTAGGED:
        return True
    if torch.Tag.dynamic_output_shape not in op.tags:
        return False
    # Positions give an index its shape. Only the number of elements in a mask is data.
    return op is not aten.index.Tensor or any(map(_is_mask, arguments["indices"]))


@contextmanager
def reads_noted(note: Callable[[str], None]) -> Iterator[None]:
    """Note `tolist` and `numpy`, which read tensor data and call no operator."""

    def noted(name: str) -> Callable[..., Any]:
        right = getattr(torch.Tensor, name)

        def noting(*args: Any, **kwargs: Any) -> Any:
            note(f"Tensor.{name}")
            return right(*args, **kwargs)

        return noting

    with ExitStack() as patched:
        for name in ("tolist", "numpy"):
            patched.enter_context(mock.patch.object(torch.Tensor, name, noted(name)))
        yield


def _is_mask(index: torch.Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)
