"""`Trace`: what an eager run did, as far as contracts and comparisons depend on it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch._ops import OpOverload

from programs.regions import Region
from programs.schemas import Kind, facts


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


class Storages:
    """A set of storages. They are held, so that their identity is not reused."""

    def __init__(self) -> None:
        self._held: dict[int, torch.UntypedStorage] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Add the storage of a tensor."""
        storage = tensor.untyped_storage()
        self._held[storage._cdata] = storage

    def __contains__(self, tensor: torch.Tensor) -> bool:
        """True if the storage of the tensor is among them."""
        return bool(self._held) and tensor.untyped_storage()._cdata in self._held

    def any(self, tensors: list[torch.Tensor]) -> bool:
        """True if one of the tensors has its storage among them."""
        return bool(self._held) and any(each in self for each in tensors)


@dataclass(slots=True)
class Rounding:
    """Which storages hold numbers that kernels may round differently, followed from call to call.

    `open` hold such numbers; `mixed` are seen as more than one dtype; in `bits`, the bits of an
    open rounding or of a NaN (whose payload is open) were read as another dtype, so anything may
    show. `first` names the op where it began.
    """

    first: str | None = None
    open: Storages = field(default_factory=Storages)
    mixed: Storages = field(default_factory=Storages)
    bits: Storages = field(default_factory=Storages)

    def note(
        self, op: OpOverload, read: list[torch.Tensor], made: list[torch.Tensor], *, factor: bool
    ) -> None:
        """Follow one call: `read` are its operands, `made` the tensors it wrote or returned.

        `factor` says that it scales an operand on the way, so that two roundings are left to the
        kernel.
        """
        if facts(op).kind is Kind.VIEW:
            if op is torch.ops.aten.view.dtype:
                self.mixed.add(read[0])
                self._note_bits(read)
            return
        starts = factor or not _rounds_alike(op, [*read, *made])
        if starts:
            self.first = self.first or str(op)
        reads_open, reads_bits = self.open.any(read), self.bits.any(read)
        for each in made:
            if starts or reads_open:
                self.open.add(each)
            if reads_bits:
                self.bits.add(each)
        self._note_bits(made)

    def _note_bits(self, tensors: list[torch.Tensor]) -> None:
        for each in tensors:
            if each in self.mixed and (each in self.open or _has_nan(each)):
                self.bits.add(each)


@dataclass(slots=True)
class Trace:
    """What an eager run did.

    Storages are known by address. `written` were written to; `overlapping_writes` are regions that
    overlap themselves and were written through; `outside` is true if `as_strided` showed bytes that
    its argument does not cover. `as_written` says that the function is known to consist of
    operators that are no compositions of others.
    """

    inputs: tuple[Placed, ...] = ()
    written: set[int] = field(default_factory=set)
    overlapping_writes: set[Region] = field(default_factory=set)
    overlapping_as_strided: bool = False
    outside: bool = False
    as_written: bool = False
    rounding: Rounding = field(default_factory=Rounding)

    def exact(self, value: object) -> bool:
        """True if a value that the run left must come out to the same bits from every right kernel."""
        return not isinstance(value, torch.Tensor) or value not in self.rounding.open

    def bits_open(self, value: object) -> bool:
        """True if a value may show bits that differ by kernel (of a rounding, of a NaN) as a number of another dtype."""
        return isinstance(value, torch.Tensor) and value in self.rounding.bits


def _has_nan(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and bool(tensor.isnan().any())


def _rounds_alike(op: OpOverload, tensors: list[torch.Tensor]) -> bool:
    """True if every kernel for the op must round to the same bits: moves, comparisons, single IEEE operations.

    Kernels differ by a unit in the last place where they may sum in another order or fuse a
    multiplication with an addition, as in a complex product or in an addition with a factor
    (`alpha`).
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
