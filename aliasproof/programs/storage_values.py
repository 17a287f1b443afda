"""The elements that a storage names itself, as text: read, written, and as a tensor."""

from __future__ import annotations

import itertools
from typing import TypeAlias

import torch

from aliasproof.programs.program import Storage

Number: TypeAlias = "bool | int | float | complex"


def element_value(text: str, dtype: torch.dtype) -> Number:
    """The number that a text means in a dtype. Raises `ValueError` if it means none."""
    if dtype == torch.bool:
        if text not in ("0", "1"):
            raise ValueError(f"a bool is 0 or 1, not {text}")
        return text == "1"
    if dtype.is_complex:
        return complex(text)
    if dtype.is_floating_point:
        return float(text)
    number, limits = int(text), torch.iinfo(dtype)
    if not limits.min <= number <= limits.max:
        raise ValueError(f"{dtype} has the range {limits.min} to {limits.max}")
    return number


def element_text(value: Number) -> str:
    """The text of an element: what `element_value` reads back."""
    if isinstance(value, bool):
        return str(int(value))
    # An integral value is written without a point, where that is short and keeps the sign of 0.
    if isinstance(value, float) and value.is_integer() and 0 < abs(value) < 2**53:
        return str(int(value))
    return str(value)


def explicit_values(storage: Storage) -> torch.Tensor:
    """The data of a storage with values of its own, which are repeated up to its length."""
    numbers = [element_value(text, storage.dtype) for text in storage.values]
    repeated = itertools.islice(itertools.cycle(numbers), storage.length)
    return torch.tensor(list(repeated), dtype=storage.dtype)


def texts_of(buffer: torch.Tensor) -> tuple[str, ...]:
    """The elements of a 1-d tensor as text, for `Storage.values`."""
    return tuple(map(element_text, buffer.tolist()))
