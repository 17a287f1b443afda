"""Where a small difference of an operand makes a large one of the result: jumps, and huge numbers.

The floor of a number near 2 is 1 or 2, and `argmin` of two numbers that are nearly equal is either
index. Away from its jumps, what an op says is the same on all kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import torch

from aliasproof.programs.narrow_dtypes import readable

Arguments: TypeAlias = Mapping[str, Any]
NO_ARGUMENTS: Arguments = MappingProxyType({})
PART = 1 << 20  # elements that are looked at at once
# Results that say on which side of a jump an operand is, and nothing else of it.
_STEPS = (
    "all any argmax argmin ceil eq fix floor ge greater greater_equal gt le less less_equal"
    " logical_and logical_not logical_or logical_xor lt ne not_equal round sign trunc"
)
STEPS = frozenset(_STEPS.split())
_COMPARING = "eq ge greater greater_equal gt le less less_equal lt ne not_equal"
_COMPARISONS = frozenset(_COMPARING.split())
_CHOOSING = "argmax argmin cummax cummin kthvalue max median min mode nanmedian sort topk"
_CHOOSES_ONE = frozenset(_CHOOSING.split())
_LARGEST, _SMALLEST = ("argmax", "max"), ("argmin", "min")
_SOFTMAX = ("_softmax", "softmax", "_log_softmax", "log_softmax", "_safe_softmax")
_ATTENTION = "_scaled_dot_product"
# How far off a correct kernel may be: some times the tolerance of `torch.testing.assert_close`.
_NEARNESS = {torch.bfloat16: 1.6e-2, torch.float32: 1e-4, torch.complex64: 1e-4}
_NEARNESS |= {torch.float64: 1e-6, torch.complex128: 1e-6}


def nearness(dtype: torch.dtype) -> float:
    """A relative distance that correct kernels may be apart in results of a dtype."""
    return _NEARNESS.get(dtype, 1.6e-2)


def near_jump(
    name: str,
    inexact: Sequence[torch.Tensor],
    read: Sequence[torch.Tensor],
    arguments: Arguments,
    near: float,
    whole: torch.Tensor | None = None,
) -> bool:
    """Whether one of the inexact operands is near a jump of an op. `near` is a relative distance.

    Of the arguments, `other` is the number that a comparison compares its only tensor with. `whole`
    has all elements of both operands of a comparison, if the elements of one come from the other.
    """
    numbers = [tensor for tensor in read if tensor.is_floating_point() or tensor.is_complex()]
    if len(numbers) == 2:
        one, other = map(readable, numbers)
        try:
            apart, limit = one - other, near * _scale(one, other)
            at_itself = whole is not None and not _meets_another(one, apart, whole, limit)
            if any_is(apart, lambda it: (it.abs() <= limit) & ~((it == 0) & at_itself)):
                return True
        except RuntimeError:  # they do not broadcast, so which elements meet is unknown
            return True
        if name in _COMPARISONS:
            return False
    if name in _CHOOSES_ONE:
        return any(_has_ties(name, tensor, arguments.get("dim"), near) for tensor in inexact)
    number = arguments.get("other") if name in _COMPARISONS else None
    at = float(number) if isinstance(number, int | float) else None
    half = 0.5 if name == "round" else 0.0
    return any(any_is(tensor, lambda x: _distance(x, at, half, near)) for tensor in inexact)


def _meets_another(
    one: torch.Tensor, apart: torch.Tensor, whole: torch.Tensor, limit: float
) -> bool:
    """Whether a number that is not apart from its other operand is near two of all elements.

    If not, it meets itself, and all kernels find it equal, whatever its last bits are.
    """
    if whole.numel() > PART or not whole.is_floating_point() or whole.is_meta:
        return True
    ordered = readable(whole).sort().values
    equal = one.expand_as(apart)[apart == 0]
    first = torch.searchsorted(ordered, equal - limit)
    return bool((torch.searchsorted(ordered, equal + limit, right=True) - first > 1).any())


def _distance(x: torch.Tensor, at: float | None, half: float, near: float) -> torch.Tensor:
    """Where a tensor is near a number; without one, near a whole number, or one and a half."""
    apart = x - at if at is not None else (x - half) - (x - half).round()
    return apart.abs() <= near * x.abs().clamp(min=1)


def _scale(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest finite number in two tensors, at least 1."""
    finite = [part[part.isfinite()].abs() for part in (one, other)]
    return max([1.0, *(float(part.max()) for part in finite if part.numel())])


def _has_ties(name: str, tensor: torch.Tensor, dim: object, near: float) -> bool:
    """Whether two elements among which the op chooses, or that it orders, are nearly equal."""
    if not tensor.is_floating_point() or tensor.is_meta:
        return True
    if not tensor.dim():
        return False
    ordered = readable(tensor)
    ordered = ordered.sort(dim).values if isinstance(dim, int) else ordered.flatten().sort().values
    along = dim if isinstance(dim, int) else -1
    if ordered.shape[along] < 2:
        return False
    apart = ordered.diff(dim=along)
    if name in _LARGEST or name in _SMALLEST:  # only the first two matter
        apart = apart.select(along, -1 if name in _LARGEST else 0)
    return any_is(apart, lambda apart: apart <= near * _scale(ordered, ordered))


def unmasked(
    name: str, read: Sequence[torch.Tensor], arguments: Arguments
) -> Sequence[torch.Tensor]:
    """The operands of a call; of those of a softmax or of attention, the largest of each row.

    What masks attention says nothing, be it the smallest number of a dtype or minus infinity: its
    exponential is zero if another number of its row is larger.
    """
    if name not in _SOFTMAX and not name.startswith(_ATTENTION):
        return read
    dim = arguments.get("dim", -1)
    return [_largest_of_rows(tensor, dim if isinstance(dim, int) else -1) for tensor in read]


def _largest_of_rows(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    if not tensor.is_floating_point() or not tensor.numel() or tensor.is_meta or not tensor.dim():
        return tensor
    return readable(tensor).amax(dim)


def huge_counts(name: str, read: Sequence[torch.Tensor]) -> bool:
    """Whether an operand has numbers so large that what small ones say is lost beside them.

    A huge number plus a small one is that huge number, up to rounding.
    """
    huge = [_huge(tensor) for tensor in read]
    if name in ("add", "sub", "rsub") and len(read) == 2:
        return all(huge)
    return any(huge)


def any_is(tensor: torch.Tensor, test: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Whether one of the numbers, or of the parts of complex ones, passes a test."""
    if tensor.numel() > PART:  # a mask of a large tensor takes as much memory again
        dim = max(range(tensor.dim()), key=lambda dim: tensor.shape[dim])
        length = max(1, PART * tensor.shape[dim] // tensor.numel())
        return any(any_is(part, test) for part in tensor.split(length, dim))
    tensor = readable(tensor)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if not tensor.is_floating_point() or not tensor.numel() or tensor.is_meta:
        return False
    return bool(test(tensor).any())


def _huge(tensor: torch.Tensor) -> bool:
    """Whether a finite number is so large that sums in another order differ by more than 1."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    kind = torch.finfo(tensor.dtype)
    # Narrow dtypes round small integers already, which their tolerance covers.
    limit = min(max(1 / kind.eps, 2.0**20), kind.max / 4)
    return any_is(tensor, lambda values: (values.abs() > limit) & values.isfinite())
