"""Rounding of results: which ops round, in narrow dtypes, when fused, and what magnifies it.

Ops are found by the name that all forms of an op share (`op_properties.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from aliasproof.eager.op_properties import KernelTrait, traits_of
from aliasproof.ir.custom_operators import NAMESPACE
from aliasproof.ir.eager_call import EagerCall, tensors_in
from aliasproof.ir.schemas import Kind
from aliasproof.ir.values import StorageSet


def is_inexact(tensor: torch.Tensor) -> bool:
    """True for floating-point and complex tensors."""
    return tensor.is_floating_point() or tensor.is_complex()


def moves(op: OpOverload, tensors: Sequence[torch.Tensor]) -> bool:
    """True if all bits of the stored result come from one operand, or are a constant."""
    numbers = {tensor.dtype for tensor in tensors if is_inexact(tensor)}
    # Resolving a lazy conjugate or negative bit may change the sign of a NaN.
    lazy = any(tensor.is_conj() or tensor.is_neg() for tensor in tensors)
    traits = traits_of(rounding_name(op))
    in_short = bool(numbers & {torch.bfloat16, torch.float16})
    if KernelTrait.CHANGES_NANS_IN_SHORT_DTYPES in traits and in_short:
        return False
    return KernelTrait.MOVES in traits and len(numbers) <= 1 and not lazy


def rounds_alike(op: OpOverload, tensors: Sequence[torch.Tensor]) -> bool:
    """True if every kernel for the op must round to the same bits.

    That holds for moves, comparisons and single IEEE operations. Kernels differ by a unit in the
    last place if they may sum in another order, or fuse a multiplication with an addition (FMA).
    A complex product and an addition with a factor (`alpha`) allow that.
    """
    if op.namespace == NAMESPACE:  # our operators copy and add, whatever their names are
        return True
    rounding = list(filter(is_inexact, tensors))
    traits = traits_of(rounding_name(op))
    if KernelTrait.ONCE in traits:
        return not any(tensor.is_complex() for tensor in rounding)
    # An op without a row may round in any way, so its values are compared with a tolerance.
    return bool(traits & (KernelTrait.MOVES | KernelTrait.EXACT)) or not rounding


def rounds_again(arguments: Mapping[str, Any]) -> bool:
    """True if the arguments of a call make the op add or multiply, beside its own operation."""
    # A factor of 1 or -1 adds no rounding.
    factors = (arguments.get("alpha"), arguments.get("beta"))
    return (
        any(factor not in (None, 0, 1, -1) for factor in factors)
        or bool(arguments.get("accumulate"))
        or arguments.get("reduce") in ("sum", "prod", "mean", "add", "multiply")
        or arguments.get("decimals") not in (None, 0)
    )


def rounding_name(op: OpOverload) -> str:
    """The name of an op in the table of properties; all its overloads and forms share it."""
    name: str = op.overloadpacket.__name__
    return name.removeprefix("_foreach_").rstrip("_")


# --- narrow dtypes --------------------------------------------------------------------------------
#
# Dtypes without kernels of their own: `uint4`, `float8_e4m3fn`, `bits8` and the like.


# A dtype of the same size in which the bits can be compared and printed.
_AS_BITS: dict[torch.dtype, torch.dtype] = {
    getattr(torch, name): bits
    for names, bits in (
        ([f"{sign}int{count}" for sign in ("", "u") for count in range(1, 8)], torch.uint8),
        (["bits8", "bits1x8", "bits2x4", "bits4x2", "float4_e2m1fn_x2"], torch.uint8),
        (["bits16"], torch.int16),
    )
    for name in names
    if hasattr(torch, name)
}
_FLOAT8 = "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
# A dtype that represents each value exactly.
_AS_VALUES: dict[torch.dtype, torch.dtype] = {
    getattr(torch, name): torch.float32 for name in _FLOAT8.split() if hasattr(torch, name)
} | {torch.complex32: torch.complex64}


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the same values, in a dtype with kernels to compare and print.

    It is the tensor itself for most dtypes, and a view or a copy for the others.
    """
    if tensor.dtype in _AS_BITS:
        return tensor.view(_AS_BITS[tensor.dtype])
    return tensor.to(_AS_VALUES[tensor.dtype]) if tensor.dtype in _AS_VALUES else tensor


# --- fused rounding -------------------------------------------------------------------------------
#
# `FusedRounding`: which data depend on whether bfloat16 and float16 results are rounded at once.
#
# Eager computes such an op in float32 and rounds its result. A compiler that fuses it with the next
# op may skip the rounding, so the next op reads more digits than in eager. This only matters for
# ops whose results do not fit the narrow dtype: small integers are the same with and without
# rounding.


NARROW = (torch.bfloat16, torch.float16)


@dataclass(slots=True)
class FusedRounding:
    """Which storages have such data, followed from call to call.

    - `rounded`: an op lost digits when it rounded its result to a narrow dtype.
    - `differs`: an op read such a result, so it may have read the digits that eager lost.
    """

    rounded: StorageSet = field(default_factory=StorageSet)
    differs: StorageSet = field(default_factory=StorageSet)
    # The unrounded results of the current call; empty if it does not round.
    _unrounded: list[torch.Tensor] = field(default_factory=list)

    def before(self, call: EagerCall) -> None:
        """Note a call that is about to run."""
        self._unrounded = _without_rounding(call)

    def note(self, call: EagerCall, made: Sequence[torch.Tensor], *, moved: bool) -> None:
        """Follow one call: `made` are the tensors that it wrote, and those that it returned.

        `moved` says that the op passes on the elements that it reads unchanged.
        """
        if call.facts.kind is Kind.VIEW:
            return
        rounded, differs = (kept.any(call.read()) for kept in (self.rounded, self.differs))
        for tensor in made:
            # Elements that are only moved are rounded after all if their memory is narrow.
            if rounded and moved and tensor.dtype in NARROW:
                self.rounded.add(tensor)
            elif rounded:
                self.differs.add(tensor)
            if differs:
                self.differs.add(tensor)
        for tensor, exact in zip(made, self._unrounded, strict=False):
            if tensor.dtype in NARROW and not _equal(tensor.to(torch.float32), exact):
                self.rounded.add(tensor)


def _without_rounding(call: EagerCall) -> list[torch.Tensor]:
    """The written and returned tensors of a call if narrow operands and results are float32."""
    dtypes = {value for value in call.arguments.values() if isinstance(value, torch.dtype)}
    dtypes |= {tensor.dtype for tensor in (*call.only_read, *call.written)}
    # A random op must draw only once, in eager.
    if call.facts.random or call.facts.kind is Kind.VIEW or not dtypes.intersection(NARROW):
        return []
    given = {name: value for name, value in call.arguments.items() if value is not None}
    wide = tree_map(_wide, given)
    try:
        result = call.op(**wide)
    except RuntimeError:  # eager will raise as well, or has no such kernel
        return []
    writes = call.facts.writes
    names = [
        argument.name for index, argument in enumerate(call.op._schema.arguments) if index in writes
    ]
    written = [tensor for name in names for tensor in tensors_in(wide.get(name))]
    return [*written, *tensors_in(result)]


def _wide(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.to(torch.float32) if value.dtype in NARROW else value.clone()
    return torch.float32 if value in NARROW else value


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if all elements are equal; NaN equals NaN."""
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


# --- rounded numbers ------------------------------------------------------------------------------


def rounds_a_number(call: EagerCall) -> bool:
    """True if a kernel may round a number of the call to bfloat16 or float16 before it computes.

    Kernels for these dtypes compute in float32. Of two correct kernels, one rounds the number first
    (`mul_.Scalar`), and one does not (`mul.Scalar`, for vectors). A 0-d tensor of another dtype is
    such a number, too. A move stores the rounded number in any case.
    """
    tensors = [*call.only_read, *call.written]
    narrow = {tensor.dtype for tensor in tensors if tensor.dtype in NARROW}
    if not narrow or KernelTrait.MOVES in traits_of(rounding_name(call.op)):
        return False
    given = tree_leaves([call.arguments[name] for name in _number_arguments(call.op)])
    numbers = [it for it in given if type(it) in (int, float, complex)]
    wider = [
        tensor
        for tensor in tensors
        if tensor.dim() == 0 and tensor.dtype not in narrow and not tensor.is_meta
    ]
    return any(
        not _representable(value, dtype)
        for value in (*numbers, *(readable(tensor).item() for tensor in wider))
        for dtype in narrow
    )


@functools.cache
def _number_arguments(op: OpOverload) -> tuple[str, ...]:
    """The arguments that are operands: `Scalar` and `float`, but not sizes, dims or flags."""
    return tuple(
        argument.name
        for argument in op._schema.arguments
        if any(kind in str(argument.type) for kind in ("number", "float"))
    )


def _representable(value: complex, dtype: torch.dtype) -> bool:
    """True if the dtype represents a number exactly. NaN counts as exact."""
    parts = (value.real, value.imag)
    return all(
        part != part or torch.tensor(float(part), dtype=dtype).item() == part for part in parts
    )


# --- jumps ----------------------------------------------------------------------------------------
#
# Operations that magnify a small difference of an operand: jumps, and huge numbers.
#
# The floor of a number near 2 is 1 or 2, and `argmin` of two numbers that are nearly equal is
# either index. Away from its jumps, an op has the same result on all kernels.


Arguments: TypeAlias = Mapping[str, Any]
NO_ARGUMENTS: Arguments = MappingProxyType({})
PART = 1 << 20  # elements that are tested at once
# The results of these only say on which side of a jump an operand is.
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
# The possible error of a correct kernel: a multiple of `torch.testing.assert_close`'s tolerance.
_NEARNESS = {torch.bfloat16: 1.6e-2, torch.float32: 1e-4, torch.complex64: 1e-4}
_NEARNESS |= {torch.float64: 1e-6, torch.complex128: 1e-6}


def nearness(dtype: torch.dtype) -> float:
    """The relative distance by which correct kernels may differ in results of a dtype."""
    return _NEARNESS.get(dtype, 1.6e-2)


def near_jump(
    name: str,
    inexact: Sequence[torch.Tensor],
    read: Sequence[torch.Tensor],
    arguments: Arguments,
    near: float,
    whole: torch.Tensor | None = None,
) -> bool:
    """True if one of the inexact operands is near a jump of an op. `near` is a relative distance.

    `other`, in the arguments, is the number with which a comparison compares its only tensor.
    `whole` has all elements of both operands of a comparison, if those of one come from the other.
    """
    numbers = list(filter(is_inexact, read))
    if len(numbers) == 2:
        one, other = map(readable, numbers)
        try:
            apart, limit = one - other, near * _scale(one, other)
            at_itself = whole is not None and not _meets_another(one, apart, whole, limit)
            if any_is(apart, lambda it: (it.abs() <= limit) & ~((it == 0) & at_itself)):
                return True
        except RuntimeError:  # they do not broadcast, so it is unknown which elements are compared
            return True
        if name in _COMPARISONS:
            return False
    if name in _CHOOSES_ONE:
        return any(_has_ties(name, tensor, arguments.get("dim"), near) for tensor in inexact)
    number = arguments.get("other") if name in _COMPARISONS else None
    at = float(number) if isinstance(number, int | float) else None
    half = 0.5 if name == "round" else 0.0

    def is_near(x: torch.Tensor) -> torch.Tensor:
        """A mask of the elements near `at`, or if it is None, whole numbers shifted by `half`."""
        apart = x - at if at is not None else (x - half) - (x - half).round()
        return apart.abs() <= near * x.abs().clamp(min=1)

    return any(any_is(tensor, is_near) for tensor in inexact)


def _meets_another(
    one: torch.Tensor, apart: torch.Tensor, whole: torch.Tensor, limit: float
) -> bool:
    """True if a number that equals its other operand is near two of all elements.

    If not, it is compared with itself, and all kernels find it equal, whatever its last bits are.
    """
    if whole.numel() > PART or not whole.is_floating_point() or whole.is_meta:
        return True
    ordered = readable(whole).sort().values
    equal = one.expand_as(apart)[apart == 0]
    first = torch.searchsorted(ordered, equal - limit)
    return bool((torch.searchsorted(ordered, equal + limit, right=True) - first > 1).any())


def _scale(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest finite number in two tensors, at least 1."""
    finite = [part[part.isfinite()].abs() for part in (one, other)]
    return max([1.0, *(float(part.max()) for part in finite if part.numel())])


def _has_ties(name: str, tensor: torch.Tensor, dim: object, near: float) -> bool:
    """True if two elements among which the op chooses, or that it orders, are nearly equal."""
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


def drop_masked(
    name: str, read: Sequence[torch.Tensor], arguments: Arguments
) -> Sequence[torch.Tensor]:
    """The operands of a call; for a softmax or attention, only the largest element of each row.

    The values that mask attention, the smallest number of a dtype or minus infinity, do not matter:
    their exponential is zero if another number of the row is larger.
    """
    if name not in _SOFTMAX and not name.startswith(_ATTENTION):
        return read
    given = arguments.get("dim")
    dim = given if isinstance(given, int) else -1
    return [
        readable(tensor).amax(dim)
        if tensor.is_floating_point() and tensor.numel() and not tensor.is_meta and tensor.dim()
        else tensor
        for tensor in read
    ]


def huge_counts(name: str, read: Sequence[torch.Tensor]) -> bool:
    """True if an operand has numbers so large that small ones are lost beside them.

    A huge number plus a small one is that huge number, up to rounding.
    """
    huge = [_huge(tensor) for tensor in read]
    if name in ("add", "sub", "rsub") and len(read) == 2:
        return all(huge)
    return any(huge)


def any_is(tensor: torch.Tensor, test: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """True if one of the numbers, or of the parts of complex numbers, passes a test."""
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
    """True if a finite number is so large that sums in another order differ by more than 1."""
    if not is_inexact(tensor):
        return False
    kind = torch.finfo(tensor.dtype)
    # Narrow dtypes already round small integers, which their tolerance covers.
    limit = min(max(1 / kind.eps, 2.0**20), kind.max / 4)
    return any_is(tensor, lambda values: (values.abs() > limit) & values.isfinite())
