"""`Trace`: what an eager run did, as far as contracts and comparisons depend on it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch._ops import OpOverload

from generators.regions import Region
from generators.schemas import Kind, facts


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an input lies: the address of its storage, its region, and its dtype."""

    storage: int
    region: Region
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Placed:
        """The place of a tensor."""
        return cls(tensor.untyped_storage().data_ptr(), Region.of(tensor), tensor.dtype)


@dataclass(slots=True)
class Rounding:
    """Which storages hold numbers that kernels may round differently, followed from call to call.

    The storages are held, so that their identity is not reused. `first` names the op where it began.
    """

    first: str | None = None
    mixed_dtypes: bool = False
    seen_as_bits: bool = False
    _storages: dict[int, torch.UntypedStorage] = field(default_factory=dict)

    def reaches(self, tensor: torch.Tensor) -> bool:
        """True if the tensor's storage holds such numbers."""
        return tensor.untyped_storage()._cdata in self._storages

    def note(self, op: OpOverload, read: list[torch.Tensor], made: list[torch.Tensor], *, factor: bool) -> None:
        """Follow one call: `read` are its operands, `made` the tensors it wrote or returned.

        `factor` says that it scales an operand on the way, so that two roundings are left to the kernel.
        """
        if facts(op).kind is Kind.VIEW:
            self._note_view(op, read)
            return
        if factor or self._starts(op, read, made):
            self.first = self.first or str(op)
        elif not (self._storages and any(map(self.reaches, read))):
            return
        for each in made:
            self._storages[each.untyped_storage()._cdata] = each.untyped_storage()
        self.seen_as_bits = self.seen_as_bits or self.mixed_dtypes

    def _note_view(self, op: OpOverload, read: list[torch.Tensor]) -> None:
        if op is torch.ops.aten.view.dtype:
            self.mixed_dtypes = True
            self.seen_as_bits = self.seen_as_bits or any(map(self.reaches, read)) or any(map(_has_nan, read))

    def _starts(self, op: OpOverload, read: list[torch.Tensor], made: list[torch.Tensor]) -> bool:
        if self.mixed_dtypes and any(map(_has_nan, made)):
            return True
        return not _rounds_alike(op, [*read, *made])


@dataclass(slots=True)
class Trace:
    """What an eager run did.

    Storages are known by address. `written` were written to; `overlapping_writes` are regions that overlap themselves
    and were written through; `outside` is true if `as_strided` showed bytes that its argument does not cover.
    """

    inputs: tuple[Placed, ...] = ()
    written: set[int] = field(default_factory=set)
    overlapping_writes: set[Region] = field(default_factory=set)
    overlapping_as_strided: bool = False
    outside: bool = False
    rounding: Rounding = field(default_factory=Rounding)

    def exact(self, value: object) -> bool:
        """True if a value that the run left must come out to the same bits from every right kernel."""
        return not isinstance(value, torch.Tensor) or not self.rounding.reaches(value)

    @property
    def bits_open(self) -> bool:
        """True if bits that differ by kernel (a rounding, the payload of a NaN) were read as another dtype."""
        return self.rounding.seen_as_bits


def _has_nan(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and bool(tensor.isnan().any())


def _rounds_alike(op: OpOverload, tensors: list[torch.Tensor]) -> bool:
    """True if every kernel for the op must round to the same bits: moves, comparisons, single IEEE operations.

    Kernels differ by a unit in the last place where they may sum in another order or fuse a multiplication with an
    addition, as in a complex product or in an addition with a factor (`alpha`).
    """
    rounding = [each for each in tensors if each.is_floating_point() or each.is_complex()]
    name = op.overloadpacket.__name__.rstrip("_")
    if name in _ONE_ROUNDING:
        return not any(each.is_complex() for each in rounding)
    return name in _NO_ROUNDING or not rounding


_ONE_ROUNDING = {"mul", "square"}
# fmt: off
_NO_ROUNDING = {
    "add", "sub", "rsub", "neg", "abs", "sign", "relu", "clamp", "clamp_min", "clamp_max", "fill", "zero",
    "copy", "clone", "where", "masked_fill", "select_scatter", "slice_scatter", "diagonal_scatter",
    "as_strided_scatter", "index", "index_put", "index_copy", "index_fill", "index_select", "gather",
    "scatter", "cat", "stack", "flip", "zeros_like", "full_like", "zeros", "ones", "full", "eq", "ne", "gt",
    "ge", "lt", "le", "logical_not", "bitwise_not", "tril", "triu", "amax", "amin", "maximum", "minimum",
    "_to_copy", "_unsafe_view", "alias", "detach", "lift_fresh", "roll", "repeat", "view_copy",
}
# fmt: on
