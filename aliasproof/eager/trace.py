"""`Trace`: the properties of an eager run on which contracts and comparisons depend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef

from aliasproof.eager.op_properties import KernelTrait, traits_of
from aliasproof.eager.rounding import (
    NO_ARGUMENTS,
    STEPS,
    Arguments,
    FusedRounding,
    any_is,
    drop_masked,
    huge_counts,
    is_inexact,
    moves,
    near_jump,
    nearness,
    rounding_name,
    rounds_alike,
)
from aliasproof.ir.eager_call import EagerCall
from aliasproof.ir.regions import Region
from aliasproof.ir.schemas import Kind, facts
from aliasproof.ir.values import StorageSet

# --- element origins ------------------------------------------------------------------------------
#
# `ElementOrigins`: which tensors have only elements of another tensor, as `x.amax()` has of x.
#
# If such a tensor is compared with the other one, an element is compared with itself. Its last bits
# depend on the kernel that computed it, but all kernels find that it equals itself.


# Each element of their results is an element of their floating-point operand.
_PICKING = (
    "_to_copy _unsafe_view alias amax amin aminmax clone collapse convert_element_type copy_strided"
    " cummax cummin detach flip gather index index_select kthvalue lift_fresh max median min mode"
    " msort nanmedian repeat reshape roll sort take topk view_copy"
)
PICKS = frozenset(_PICKING.split())
# A storage by identity, and the number of earlier writes to it.
_Contents: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class ElementOrigins:
    """The storages, and versions of their contents, from which data come, followed per call."""

    _writes: dict[int, int] = field(default_factory=dict)
    _origins: dict[int, frozenset[_Contents]] = field(default_factory=dict)
    # A weak reference keeps the identity of a storage, so that no later one gets it.
    _known: dict[int, StorageWeakRef] = field(default_factory=dict)

    def note(self, name: str, read: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> None:
        """Follow one call that is not a view: `made` are the tensors that it wrote or returned."""
        there = {_storage(tensor) for tensor in read}
        numbers = [tensor for tensor in read if tensor.is_floating_point()]
        source = numbers[0] if name in PICKS and len(numbers) == 1 else None
        for tensor in made:
            key = _storage(tensor)
            if key in there:
                self._writes[key] = self._writes.get(key, 0) + 1
                self._origins.pop(key, None)
            elif source is not None and tensor.dtype == source.dtype:
                self._known[key] = StorageWeakRef(tensor.untyped_storage())
                self._origins[key] = self._origins_of(source) | {self._contents(source)}

    def whole(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor | None:
        """All elements of the storage of one of the tensors, if the other's elements come from it.

        None if neither tensor comes from the other.
        """
        if one.dtype != other.dtype or not one.is_floating_point() or one.is_meta:
            return None
        for base, part in ((one, other), (other, one)):
            if self._contents(base) in self._origins_of(part) | {self._contents(part)}:
                return _elements(base)
        return None

    def _origins_of(self, tensor: torch.Tensor) -> frozenset[_Contents]:
        return self._origins.get(_storage(tensor), frozenset())

    def _contents(self, tensor: torch.Tensor) -> _Contents:
        key = _storage(tensor)
        self._known.setdefault(key, StorageWeakRef(tensor.untyped_storage()))
        return key, self._writes.get(key, 0)


def _storage(tensor: torch.Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata
    return key


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    count = tensor.untyped_storage().nbytes() // tensor.itemsize
    return tensor.detach().as_strided((count,), (1,), 0)


# --- trace ----------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The allowed differences of correct kernels in one tensor. NaN always equals NaN.

    - `rounds`: the last bits may differ, and the sign of a zero.
    - `zero_sign`: 0.0 and -0.0 are equal.
    - `parts`: complex values that are not finite are equal. Which part is infinite or NaN differs
      from kernel to kernel, since `inf * 0` is NaN.
    - `coarser`: another dtype with fewer digits that the data passed through. Then the last bits of
      that dtype may differ, for example if float64 data were rounded as float32.
    """

    rounds: bool = False
    zero_sign: bool = False
    parts: bool = False
    coarser: torch.dtype | None = None


EXACT = Tolerance()


@dataclass(slots=True)
class Rounding:
    """The storages whose data correct kernels may compute differently, followed per call.

    - `inexact`: the last bits of the data depend on the kernel.
    - `inexact_as`: the same, for each dtype through which the data passed.
    - `computed`: an op computed the data, so the payload of a NaN, and the parts of a complex
      value that is not finite, depend on the kernel. Data that were only moved keep all bits.
    - `zero_signs`: the sign of a zero depends on the kernel.
    - `mixed`: tensors read the storage as more than one dtype.
    - `split`: tensors read a complex storage as real numbers.
    - `bits`: any value may differ, since kernel-dependent bits were read as another dtype, or since
      a difference between kernels was magnified (see `_magnifies`).
    - `origins`: which tensors have elements of others.

    `first` names the op where rounding began.
    """

    first: str | None = None
    inexact: StorageSet = field(default_factory=StorageSet)
    inexact_as: dict[torch.dtype, StorageSet] = field(default_factory=dict)
    computed: StorageSet = field(default_factory=StorageSet)
    zero_signs: StorageSet = field(default_factory=StorageSet)
    mixed: StorageSet = field(default_factory=StorageSet)
    split: StorageSet = field(default_factory=StorageSet)
    bits: StorageSet = field(default_factory=StorageSet)
    origins: ElementOrigins = field(default_factory=ElementOrigins)
    # Of the current call, which may overwrite its operands, so it is computed before.
    _magnified: bool = False

    def before(self, call: EagerCall, *, factor: bool) -> None:
        """Check the operands, and the other arguments, of a call that is about to run."""
        if facts(call.op).kind is not Kind.VIEW:
            name = rounding_name(call.op)
            self._magnified = self._magnifies(name, call.read(), call.arguments, factor=factor)

    def note(
        self,
        op: OpOverload,
        read: Sequence[torch.Tensor],
        made: Sequence[torch.Tensor],
        *,
        factor: bool,
    ) -> None:
        """Follow one call: `read` are its operands, `made` the tensors it wrote or returned.

        `factor` says that the arguments make the op add, multiply or round, beside its own
        operation. Then the kernel may round once or twice.
        """
        if facts(op).kind is Kind.VIEW:
            # It shares the storage of its base, so it needs no entry of its own. Only a view as
            # another dtype changes the meaning of the bits.
            if op is torch.ops.aten.view.dtype:
                self.mixed.add(read[0])
            elif any(view.is_complex() != read[0].is_complex() for view in made):
                self.split.add(read[0])
            self._note_bits(read)
            return
        name = rounding_name(op)
        traits = traits_of(name)
        steps = name in STEPS and not self._magnified  # then all kernels are on one side
        computes = bool(made or op._schema.returns)  # an assertion does not
        starts = computes and not steps and (factor or not rounds_alike(op, [*read, *made]))
        self.first = self.first or (str(op) if starts else None)
        # Results that are computed from inexact data are inexact as well, in the same dtypes.
        dtypes = {dtype for dtype, kept in self.inexact_as.items() if kept.any(read)}
        inexact = starts or (self.inexact.any(read) and not steps)
        bits = self._magnified or self.bits.any(read)
        if inexact and any(not is_inexact(it) for it in made):
            bits = bits or self._near_jump("trunc" if KernelTrait.MOVES in traits else name, read)
        computed = factor or not moves(op, [*read, *made])
        signs = KernelTrait.ANY_ZERO in traits or self.zero_signs.any(read)
        for tensor in made:
            if inexact:
                self.inexact.add(tensor)
                for dtype in {*dtypes, tensor.dtype}:
                    self.inexact_as.setdefault(dtype, StorageSet()).add(tensor)
            if bits:
                self.bits.add(tensor)
            if computed or self.computed.any(read):
                self.computed.add(tensor)
            # A kernel for complex numbers may multiply by 1 + 0j.
            if signs or (computed and tensor.is_complex()):
                self.zero_signs.add(tensor)
        self._note_bits(made)
        self.origins.note(name, read, made)

    def tolerance(self, tensor: torch.Tensor) -> Tolerance:
        """The allowed differences of correct kernels in a tensor of the run."""
        on_the_way = [dtype for dtype, kept in self.inexact_as.items() if tensor in kept]
        coarsest = max(on_the_way, key=_unit, default=tensor.dtype)
        return Tolerance(
            tensor in self.inexact,
            tensor in self.zero_signs,
            tensor in self.computed,
            coarsest if _unit(coarsest) > _unit(tensor.dtype) else None,
        )

    def _note_bits(self, tensors: Sequence[torch.Tensor]) -> None:
        for tensor in tensors:
            # Only current contents count; later writes are checked when they happen.
            as_bits = tensor in self.mixed and (
                tensor in self.inexact
                or (tensor in self.computed and any_is(tensor, torch.isnan))
                or (tensor in self.zero_signs and any_is(tensor, _is_zero))
            )
            as_parts = tensor in self.split and tensor in self.computed
            if as_bits or (as_parts and any_is(tensor, _is_not_finite)):
                self.bits.add(tensor)

    def _magnifies(
        self, name: str, read: Sequence[torch.Tensor], arguments: Arguments, *, factor: bool
    ) -> bool:
        """True if a small difference between correct kernels becomes a large one here.

        1e20 + 1 - 1e20 is 0 or 1, by the order. A rounding error times 1e20 is not small. A
        rounding error times infinity is infinite, and 0 times infinity is NaN. 1 / 0.0 has the sign
        of the zero. The floor of a number near 2 is 1 or 2. `expm1` of a complex infinity depends
        on its parts.
        """
        traits = traits_of(name)
        in_short = any(tensor.itemsize == 2 for tensor in read)
        if KernelTrait.CANCELS_IN_SHORT_DTYPES in traits and in_short:
            return True
        complex_ = any(tensor.is_complex() for tensor in read)
        multiplies = bool(traits & (KernelTrait.MULTIPLIES | KernelTrait.ADDS_IN_ANY_ORDER))
        orders = factor or KernelTrait.ADDS_IN_ANY_ORDER in traits or (complex_ and multiplies)
        inexact, computes = self.inexact.any(read), KernelTrait.MOVES not in traits
        read = drop_masked(name, read, arguments)
        if (orders or (inexact and computes)) and huge_counts(name, read):
            return True
        if KernelTrait.OVERFLOWS_EARLY in traits and any(map(_near_overflow_of_exp, read)):
            return True
        if computes and any(
            tensor.is_complex() and tensor in self.computed and any_is(tensor, _is_not_finite)
            for tensor in read
        ):
            return True
        jumps = KernelTrait.JUMPS in traits
        # A number that is rounded first can be on the other side of the jump. The factor of `round`
        # is a power of ten, and all kernels of eager divide by it.
        if jumps and factor and name != "round":
            return True
        if jumps and inexact and self._near_jump(name, read, arguments):
            return True
        reads_sign = KernelTrait.READS_ZERO_SIGN in traits
        skips = bool(traits & (KernelTrait.MAY_SKIP_ZEROS | KernelTrait.MAY_DROP_NAN))
        skips = skips or (complex_ and reads_sign)
        if skips or (inexact and multiplies):
            return any(any_is(tensor, _is_not_finite) for tensor in read)
        return reads_sign and any(
            any_is(tensor, _is_zero)
            for tensor in read
            if tensor in self.zero_signs or tensor in self.inexact
        )

    def _near_jump(
        self, name: str, read: Sequence[torch.Tensor], arguments: Arguments = NO_ARGUMENTS
    ) -> bool:
        """True if correct kernels may be on different sides of a jump of the op."""
        inexact = [tensor for tensor in read if tensor in self.inexact]
        dtypes = [dtype for dtype, kept in self.inexact_as.items() if kept.any(inexact)]
        near = max(map(nearness, dtypes), default=0.0)
        whole = self.origins.whole(*inexact) if len(inexact) == 2 else None
        return near_jump(name, inexact, read, arguments, near, whole)


@dataclass(slots=True)
class Trace:
    """The properties of an eager run. Storages are identified by address.

    - `written`: the storages that were written; `written_regions`: through which regions.
    - `reshaped`: the storages of tensors whose metadata a call changed (`t_`, `resize_`, `set_`).
    - `overlapping_writes`: those of these regions that overlap themselves; `expanded`: the storages
      whose data come from such a write, followed from call to call.
    - `from_expanded`: the inputs and outputs in such a storage, as `Observation` names them, and
      the Python numbers among the outputs, which may come from one.
    - `gradients`: the storages that a backward pass made, and those computed from them.
    - `overlapping_as_strided`: an `as_strided` made a view that overlaps itself.
    - `written_as_strided`: a write went through a chain of views with `as_strided` in it.
    - `overlapping_operands`: a call wrote memory that another operand of it covers.
    - `overlap_error`: eager refused a call since memory overlaps; the function may catch the error.
    - `outside`: an `as_strided` showed bytes that its argument does not cover.
    - `strided_layout`: an `as_strided` took an argument that is not dense from its storage's start.
    - `as_written`: the function calls no composite op that computes; None if that is not known yet.
    - `data_dependent`: the first call that read tensor data into Python or into a size.
    - `unspecified`: a call that this device runs in one way, though torch specifies none, as text.
    - `is_program`: the function is a `Program`, so it does nothing but call ATen ops.
    - `differentiates`: autograd recorded a call.
    - `custom_write`: an operator of another library than torch writes, by its schema.
    - `reads_location`: an operator showed the offset of a tensor or the size of its storage.
    - `reads_again`: an operator read an argument again after it had written it through another.
    - `random`: an op drew random numbers.
    - `without_fake`: fake tensors have no kernel for an op.
    - `unwatched`: the higher-order operators that ran without being watched.
    - `nbytes`: the bytes of all storages that the run was given or made, freed or not.
    - `captured`: how many of the last inputs a user's function captures; None for a program.
    - `rounding`, `fused`: the allowed differences of correct kernels, and of compilers that fuse.
    """

    inputs: tuple[InputLocation, ...] = ()
    written: set[int] = field(default_factory=set)
    written_regions: set[Region] = field(default_factory=set)
    reshaped: set[int] = field(default_factory=set)
    overlapping_writes: set[Region] = field(default_factory=set)
    expanded: StorageSet = field(default_factory=StorageSet)
    from_expanded: frozenset[str] = frozenset()
    gradients: StorageSet = field(default_factory=StorageSet)
    overlapping_as_strided: bool = False
    written_as_strided: bool = False
    overlapping_operands: bool = False
    overlap_error: bool = False
    outside: bool = False
    strided_layout: bool = False
    as_written: bool | None = None
    data_dependent: str | None = None
    unspecified: str | None = None
    is_program: bool = False
    differentiates: bool = False
    custom_write: bool = False
    reads_location: bool = False
    reads_again: bool = False
    random: bool = False
    without_fake: bool = False
    unwatched: dict[str, None] = field(default_factory=dict)
    nbytes: int = 0
    captured: int | None = None
    rounding: Rounding = field(default_factory=Rounding)
    fused: FusedRounding = field(default_factory=FusedRounding)

    def exact(self, value: object) -> bool:
        """True if every correct kernel must compute the same bits of a value of the run."""
        return not isinstance(value, torch.Tensor) or value not in self.rounding.inexact

    def tolerance(self, value: torch.Tensor) -> Tolerance:
        """The allowed differences of correct kernels in a tensor of the run."""
        return self.rounding.tolerance(value)

    def number_tolerance(self) -> Tolerance:
        """The same for a Python number, which may come from any tensor of the run."""
        return Tolerance(self.rounding.first is not None, bool(self.rounding.zero_signs))

    def bits_open(self, value: object) -> bool:
        """True if any value may be right: see `Rounding.bits`."""
        return isinstance(value, torch.Tensor) and value in self.rounding.bits

    def rounds_between(self, value: object) -> bool:
        """True if the value depends on a result that was rounded to a narrow dtype."""
        if not isinstance(value, torch.Tensor):  # a number, which may come from any tensor
            return bool(self.fused.rounded)
        return value in self.fused.differs


class StridedChains:
    """The tensors that a chain of views with `as_strided` made.

    Functionalization of torch documents limits for these, and contracts check them.
    """

    def __init__(self) -> None:
        # The tensors are kept alive here, so that no later one reuses an identity.
        self._made: dict[int, torch.Tensor] = {}

    def note(
        self, op: OpOverload, read: Sequence[torch.Tensor], made: Sequence[torch.Tensor]
    ) -> None:
        """Follow one call: `read` are its operands, `made` its results."""
        begins = op.overloadpacket in (torch.ops.aten.as_strided, torch.ops.aten.as_strided_)
        # Most programs call no `as_strided`, so there is nothing to follow.
        goes_on = self._made and facts(op).kind is Kind.VIEW and any(map(self.has, read))
        if begins or goes_on:
            self._made.update({id(tensor): tensor for tensor in made})

    def has(self, tensor: torch.Tensor) -> bool:
        """True if such a chain made the tensor."""
        return id(tensor) in self._made


# --- tests of data --------------------------------------------------------------------------------


def _unit(dtype: torch.dtype) -> float:
    """The distance from 1 to the next number of a dtype; 0 if it has only whole numbers."""
    has_digits = dtype.is_floating_point or dtype.is_complex
    return torch.finfo(dtype).eps if has_digits else 0.0


def _is_zero(tensor: torch.Tensor) -> torch.Tensor:
    return tensor == 0


def _is_not_finite(tensor: torch.Tensor) -> torch.Tensor:
    return ~tensor.isfinite()


def _near_overflow_of_exp(tensor: torch.Tensor) -> bool:
    """True if `exp` of a number, or of its negation, overflows, but half of it would not."""
    if not is_inexact(tensor):
        return False
    first = math.log(torch.finfo(tensor.dtype).max)
    # A little more than log(2) beyond it, since the bounds are rounded, too.
    return any_is(
        tensor, lambda values: (values.abs() > first - 0.1) & (values.abs() < first + 0.8)
    )
