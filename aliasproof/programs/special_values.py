"""The fill *special*: values at which inverses and rewrites that are right in algebra are wrong.

`base + (new - base)` is `new` for small integers, and NaN or 0 for infinity, NaN or 1e20. A rewrite
of `x + 0` to `x` changes -0.0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TypeAlias

import torch

Number: TypeAlias = "bool | int | float | complex"

INDEX_DTYPES = (torch.int64, torch.int32)

# From one position to the next. A power of two is coprime to the odd number of choices below, so
# each of them has its turn.
STEP = 4


def special_values(
    plain: torch.Tensor, positions: Sequence[int], index: int, seed: int
) -> torch.Tensor:
    """The 1-d tensor `plain`, with about half of its elements replaced by special values.

    `positions` are the positions of its elements in the order of counting, and `index` is that of
    the storage in its program. What stays lets an element be told from its neighbour.

    A storage of a dtype of indices is replaced if the sum of index and seed is even. The others
    keep values that can serve as indices. Bools have no special values.
    """
    dtype = plain.dtype
    if dtype == torch.bool or (dtype in INDEX_DTYPES and (index + seed) % 2):
        return plain
    parts = [special_parts(dtype)] * (2 if dtype.is_complex else 1)
    values = []
    for position, value in zip(positions, plain.tolist(), strict=True):
        turn = STEP * position + index + seed
        # Of a complex value, one part or both are replaced: both turns have other periods.
        chosen = [_choice(part, turn + shift * position) for shift, part in enumerate(parts)]
        values.append(_special_number(value, chosen))
    return torch.tensor(values, dtype=dtype)


@functools.cache
def special_parts(dtype: torch.dtype) -> tuple[Number, ...]:
    """The special values of a dtype; of a complex one, those of its real and imaginary parts.

    Subnormals are left out: a correct kernel may flush them to zero.
    """
    if not (dtype.is_floating_point or dtype.is_complex):
        limits = torch.iinfo(dtype)
        integers = (limits.max, limits.min, -1, limits.max - 1)
        return tuple(dict.fromkeys(max(number, limits.min) for number in integers))
    kind = torch.finfo(dtype)
    numbers = (math.inf, kind.max, math.nan, -0.0, 1e20, -math.inf, kind.tiny, kind.min)
    # A dtype without infinity, or without a sign, would turn these into other values.
    return tuple(number for number in numbers if _represents(dtype, number))


def _represents(dtype: torch.dtype, number: float) -> bool:
    stored = torch.tensor([number], dtype=dtype).to(torch.complex128).real.item()
    close = stored == number or math.isclose(stored, number, rel_tol=0.01)
    same = close and math.copysign(1, stored) == math.copysign(1, number)
    return same or (math.isnan(number) and math.isnan(stored))


def _choice(numbers: Sequence[Number], turn: int) -> Number | None:
    """The number whose turn it is; None in every second turn, where the plain value stays."""
    turn %= 2 * len(numbers) + 1
    return numbers[turn] if turn < len(numbers) else None


def _special_number(value: Number, chosen: Sequence[Number | None]) -> Number:
    if len(chosen) == 1:
        return value if chosen[0] is None else chosen[0]
    assert isinstance(value, complex)
    real, imaginary = (
        old if new is None else float(new.real)
        for old, new in zip((value.real, value.imag), chosen, strict=True)
    )
    return complex(real, imaginary)
