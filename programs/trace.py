"""`Trace`: what an eager run did, as far as contracts and comparisons depend on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch._ops import OpOverload

from programs.regions import Region
from programs.schemas import Kind, facts


@dataclass(frozen=True, slots=True)
class InputLocation:
    """Where an input is in memory: the address of its storage, its region, and its dtype."""

    storage: int
    region: Region
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> InputLocation:
        """The location of a tensor."""
        return cls(tensor.untyped_storage().data_ptr(), Region.of(tensor), tensor.dtype)


class StorageSet:
    """A set of storages, by identity."""

    def __init__(self) -> None:
        # The storages stay alive here, so that no later storage reuses an identity.
        self._storages: dict[int, torch.UntypedStorage] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Add the storage of a tensor."""
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage

    def __contains__(self, tensor: torch.Tensor) -> bool:
        """True if the storage of the tensor is in the set."""
        return bool(self._storages) and tensor.untyped_storage()._cdata in self._storages

    def any(self, tensors: Sequence[torch.Tensor]) -> bool:
        """True if the storage of one of the tensors is in the set."""
        return bool(self._storages) and any(tensor in self for tensor in tensors)


@dataclass(slots=True)
class Rounding:
    """Which storages have data that kernels may round differently, followed from call to call.

    - `inexact`: the last bits of the data depend on the kernel.
    - `mixed`: tensors read the storage as more than one dtype.
    - `bits`: kernel-dependent bits were read as another dtype, so any value may differ. They come
      from an inexact value, or from a NaN, whose payload depends on the kernel.

    `first` names the op where it began.
    """

    first: str | None = None
    inexact: StorageSet = field(default_factory=StorageSet)
    mixed: StorageSet = field(default_factory=StorageSet)
    bits: StorageSet = field(default_factory=StorageSet)

    def note(
        self,
        op: OpOverload,
        read: Sequence[torch.Tensor],
        made: Sequence[torch.Tensor],
        *,
        factor: bool,
    ) -> None:
        """Follow one call: `read` are its operands, `made` the tensors it wrote or returned.

        `factor` says that the op also multiplies an operand by a factor. Then the kernel may round
        once or twice.
        """
        if facts(op).kind is Kind.VIEW:
            # A view shares the storage of its base, so it needs no entry. Only a view of another
            # dtype changes what the bits mean.
            if op is torch.ops.aten.view.dtype:
                self.mixed.add(read[0])
                self._note_bits(read)
            return
        starts = factor or not _rounds_alike(op, [*read, *made])
        if starts:
            self.first = self.first or str(op)
        # What is computed from inexact data is inexact as well.
        reads_inexact, reads_bits = self.inexact.any(read), self.bits.any(read)
        for tensor in made:
            if starts or reads_inexact:
                self.inexact.add(tensor)
            if reads_bits:
                self.bits.add(tensor)
        self._note_bits(made)

    def _note_bits(self, tensors: Sequence[torch.Tensor]) -> None:
        for tensor in tensors:
            if tensor in self.mixed and (tensor in self.inexact or _has_nan(tensor)):
                self.bits.add(tensor)


@dataclass(slots=True)
class Trace:
    """What an eager run did. Storages are known by address.

    - `written`: the storages that were written; `written_regions`: through which regions.
    - `overlapping_writes`: those regions that overlap themselves.
    - `overlapping_as_strided`: an `as_strided` made a view that overlaps itself.
    - `written_as_strided`: a write went through a chain of views with `as_strided` in it.
    - `overlapping_operands`: a call wrote memory that another operand of it covers.
    - `outside`: an `as_strided` showed bytes that its argument does not cover.
    - `as_written`: the function calls no composite op that computes; None if nobody looked yet.
    - `data_dependent`: the first op that read tensor data into Python or into a size.
    - `unspecified`: a call that this device runs in one way, and torch specifies none; how.
    - `is_program`: the function is a `Program`, so it does nothing but call ATen ops.
    - `differentiates`: autograd recorded a call.
    - `custom_write`: an operator of another library than torch wrote a tensor.
    - `unwatched`: the higher-order operators that ran without a look at what they do.
    - `captured`: how many of the last inputs a user's function captures; None for a program.
    """

    inputs: tuple[InputLocation, ...] = ()
    written: set[int] = field(default_factory=set)
    written_regions: set[Region] = field(default_factory=set)
    overlapping_writes: set[Region] = field(default_factory=set)
    overlapping_as_strided: bool = False
    written_as_strided: bool = False
    overlapping_operands: bool = False
    outside: bool = False
    as_written: bool | None = None
    data_dependent: str | None = None
    unspecified: str | None = None
    is_program: bool = False
    differentiates: bool = False
    custom_write: bool = False
    unwatched: dict[str, None] = field(default_factory=dict)
    captured: int | None = None
    rounding: Rounding = field(default_factory=Rounding)

    def exact(self, value: object) -> bool:
        """True if every correct kernel must compute the same bits of a value that the run left."""
        return not isinstance(value, torch.Tensor) or value not in self.rounding.inexact

    def bits_open(self, value: object) -> bool:
        """True if a value may show kernel-dependent bits, read as another dtype."""
        return isinstance(value, torch.Tensor) and value in self.rounding.bits


class StridedChains:
    """The tensors that a chain of views with `as_strided` made.

    Functionalization of torch documents limits for these, and contracts ask.
    """

    def __init__(self) -> None:
        # The tensors stay alive here, so that no later one reuses an identity.
        self._made: dict[int, torch.Tensor] = {}

    def note(
        self, op: OpOverload, read: Sequence[torch.Tensor], made: Sequence[torch.Tensor]
    ) -> None:
        """Follow one call: `read` are its operands, `made` what it returned."""
        begins = op.overloadpacket in (torch.ops.aten.as_strided, torch.ops.aten.as_strided_)
        # Most programs call no `as_strided`, so nothing is to be followed.
        goes_on = self._made and facts(op).kind is Kind.VIEW and any(map(self.has, read))
        if begins or goes_on:
            self._made.update({id(tensor): tensor for tensor in made})

    def has(self, tensor: torch.Tensor) -> bool:
        """True if the tensor is one of these."""
        return id(tensor) in self._made


def _has_nan(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and bool(tensor.isnan().any())


# --- which ops round ------------------------------------------------------------------------------


def _rounds_alike(op: OpOverload, tensors: Sequence[torch.Tensor]) -> bool:
    """True if every kernel for the op must round to the same bits.

    That holds for moves, comparisons and single IEEE operations. Kernels differ by a unit in the
    last place where they may sum in another order, or fuse a multiplication with an addition (FMA).
    A complex product and an addition with a factor (`alpha`) allow that.
    """
    rounding = [each for each in tensors if each.is_floating_point() or each.is_complex()]
    name = rounding_name(op)
    if name in ONE_ROUNDING:
        return not any(tensor.is_complex() for tensor in rounding)
    # An op without an entry may round in any way, so its values are compared with a tolerance.
    return name in NO_ROUNDING or not rounding


def rounding_name(op: OpOverload) -> str:
    """The name of an op in the tables below; all its overloads and its in-place form share it."""
    name: str = op.overloadpacket.__name__
    return name.rstrip("_")


# These round once, which IEEE 754 defines; on complex values they round more than once.
ONE_ROUNDING = {"mul", "square"}

# These move values, compare them, or round each element at most once.
# fmt: off
NO_ROUNDING = {
    "add", "sub", "rsub", "neg", "abs", "sign", "relu", "clamp", "clamp_min", "clamp_max", "fill",
    "zero", "copy", "clone", "where", "masked_fill", "select_scatter", "slice_scatter",
    "diagonal_scatter", "as_strided_scatter", "index", "index_put", "index_copy", "index_fill",
    "index_select", "gather", "scatter", "cat", "stack", "flip", "zeros_like", "full_like",
    "zeros", "ones", "full", "eq", "ne", "gt", "ge", "lt", "le", "logical_not", "bitwise_not",
    "tril", "triu", "amax", "amin", "maximum", "minimum", "_to_copy", "_unsafe_view", "alias",
    "detach", "lift_fresh", "roll", "repeat", "view_copy",
}
# fmt: on

# Correct kernels may differ in these, for the reason given. An op that is in no table is treated
# the same way: an entry only says that the default is right for the op. Every op that programs are
# drawn from needs an entry in one of the tables; `tests/generators/test_precision.py` asks for it.
KERNELS_DIFFER = {
    "cos": "a library function without an exact result",
    "sigmoid": "a library function without an exact result",
    "div": "may multiply by the reciprocal; a complex quotient rounds several times",
    "lerp": "multiplies and adds",
    "addcmul": "multiplies and adds",
    "sum": "adds in any order",
    "cumsum": "adds in any order",
    "index_add": "adds equal indices in any order",
    "matmul": "calls one of the next four",
    "mm": "adds in any order",
    "bmm": "adds in any order",
    "mv": "adds in any order",
    "dot": "adds in any order",
}
