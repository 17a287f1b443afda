"""Does eager give a call one meaning? Decided at each ATen call, on the bytes that it reads and writes.

PyTorch raises on some writes to overlapping memory and is silently undefined on others. A compiler
may do as it likes there, so a program with such a call is discarded, never reported. `Watch` sees
every ATen call below a Python function, so it judges programs and users' functions alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from programs.errors import InternalError, Rejected
from programs.regions import Region, overlap, overlaps_itself
from programs.schemas import Facts, Kind, facts
from programs.storage_bytes import entries_of
from programs.trace import Placed, Trace


class Undefined(Rejected):
    """Eager gives the program no single meaning; the message names the op and says why."""


@dataclass(slots=True)
class EagerCall:
    """One ATen call, before it runs: operands by schema argument, flattened to tensors."""

    op: OpOverload
    facts: Facts
    arguments: dict[str, Any]
    written: list[torch.Tensor]
    overwritten: list[torch.Tensor]
    only_read: list[torch.Tensor]

    @classmethod
    def of(cls, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> EagerCall:
        known = facts(op)
        call = cls(op, known, {}, [], [], [])
        for index, argument in enumerate(op._schema.arguments):
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            call.arguments[argument.name] = value
            tensors = list(tensors_in(value))
            if not tensors:
                continue
            for tensor in tensors:
                if tensor.layout is not torch.strided:
                    raise Rejected(
                        f"{op} takes a {tensor.layout} tensor; only dense (strided) ones can be judged"
                    )
            (call.written if index in known.writes else call.only_read).extend(tensors)
            if index in known.overwrites:
                call.overwritten.extend(tensors)
        return call


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """All tensors in a value, in order, at any nesting of lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_in(each)


# Each rule takes a call that is about to run and says what is wrong with it, or None. -------------


def writes_through_itself(call: EagerCall) -> str | None:
    """A read-modify-write of a region in which two elements share a byte has no fixed number of updates."""
    for tensor in call.written:
        fresh_value_everywhere = (
            any(tensor is each for each in call.overwritten) and call.facts.kind is not Kind.OUT
        )
        if not fresh_value_everywhere and overlaps_itself(Region.of(tensor)):
            return "writes through a region that overlaps itself"
    return None


def scatters_into_itself(call: EagerCall) -> str | None:
    """A scatter into a tensor that overlaps itself: the clone in its kernel keeps the overlap or not, by layout."""
    if call.op.overloadpacket in _SCATTERS and overlaps_itself(Region.of(call.arguments["self"])):
        return "scatters into a tensor that overlaps itself"
    if call.op is torch.ops.aten.as_strided_scatter.default:
        sizes, strides = call.arguments["size"], call.arguments["stride"]
        if overlaps_itself(Region(0, tuple(sizes), tuple(strides), 1)):
            return "scatters through a view that overlaps itself"
    return None


def reads_what_it_writes(call: EagerCall) -> str | None:
    """An operand may share bytes with the destination only if a pointwise op reads each element where it writes it."""
    pointwise = call.facts.pointwise or call.op in UNTAGGED
    for target in call.written:
        region = Region.of(target)
        for operand in _read_while_it_writes(call):
            other = Region.of(operand)
            if overlap(region, other) and not (pointwise and region == other):
                return "reads memory that it is writing at other positions"
    return None


def _read_while_it_writes(call: EagerCall) -> Iterator[torch.Tensor]:
    """The operands that it does not write, but for a 0-d value that becomes a number first."""
    for index, argument in enumerate(call.op._schema.arguments):
        for operand in (
            tensors_in(call.arguments[argument.name]) if index not in call.facts.writes else ()
        ):
            if not read_as_number_first(call.op, argument.name, operand.dim()):
                yield operand


def read_as_number_first(op: OpOverload, argument: str, dims: int) -> bool:
    """True of a 0-d tensor that a kernel makes a number of before it writes."""
    return op in _READ_NUMBER_FIRST and argument == "value" and dims == 0


def writes_twice(call: EagerCall) -> str | None:
    """Two destinations of one call must not share bytes."""
    for index, one in enumerate(call.written):
        if any(overlap(Region.of(one), Region.of(other)) for other in call.written[:index]):
            return "writes the same memory through two arguments"
    return None


def stores_twice_by_index(call: EagerCall) -> str | None:
    """Equal indices in an indexed store leave open which value stays."""
    rule = _INDEXED_STORES.get(call.op.overloadpacket)
    if rule is None:
        return None
    positions = rule(call.arguments)
    if positions is not None and positions.unique().numel() != positions.numel():
        return "stores twice at the same index"
    return None


def converts_out_of_range(call: EagerCall) -> str | None:
    """Casting NaN, infinity or a number out of range to an integer is undefined in C++."""
    if call.op is torch.ops.aten.copy_.default:
        source, dtype = call.arguments["src"], call.arguments["self"].dtype
    elif call.op is torch.ops.aten._to_copy.default:
        source, dtype = call.arguments["self"], call.arguments["dtype"]
    else:
        return None
    if dtype is None or dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return None
    if not (source.is_floating_point() or source.is_complex()) or source.numel() == 0:
        return None
    numbers = (source.real if source.is_complex() else source).double()
    limits = torch.iinfo(dtype)
    # Whole numbers up to the limits; the upper one is not exact in float64 for 64 bits, so it is
    # excluded.
    inside = (numbers > float(limits.min) - 1) & (numbers < float(limits.max))
    return None if bool(inside.all()) else "converts a number that the integer dtype cannot hold"


def reads_broken_bool(call: EagerCall) -> str | None:
    """A bool is the byte 0 or 1; other bytes, seen through a view of another dtype, mean nothing fixed."""
    if call.facts.kind is Kind.VIEW:
        return None
    for tensor in (*call.only_read, *call.written):
        read = tensor.dtype == torch.bool and not any(tensor is each for each in call.overwritten)
        if read and tensor.numel() and int(tensor.view(torch.uint8).max()) > 1:
            return "reads a bool that is neither 0 nor 1"
    return None


RULES: tuple[Callable[[EagerCall], str | None], ...] = (
    writes_through_itself,
    scatters_into_itself,
    reads_what_it_writes,
    writes_twice,
    stores_twice_by_index,
    converts_out_of_range,
    reads_broken_bool,
)


def _index_put_positions(arguments: dict[str, Any]) -> torch.Tensor | None:
    if arguments.get("accumulate"):
        return None
    chosen: torch.Tensor = torch.ops.aten.index.Tensor(
        _numbered(arguments["self"]), arguments["indices"]
    )
    return chosen


def _scatter_positions(arguments: dict[str, Any]) -> torch.Tensor | None:
    index, dim = arguments["index"], arguments["dim"]
    if arguments.get("src") is None or index.numel() == 0 or index.dim() == 0:
        return None
    numbers = _numbered(arguments["self"])
    for each in range(index.dim()):
        if each != dim % index.dim():
            numbers = numbers.narrow(each, 0, index.shape[each])
    return numbers.gather(dim, index)


def _index_copy_positions(arguments: dict[str, Any]) -> torch.Tensor | None:
    index: torch.Tensor = arguments["index"]
    return index


def _put_positions(arguments: dict[str, Any]) -> torch.Tensor | None:
    if arguments.get("accumulate"):
        return None
    positions: torch.Tensor = arguments["index"] % max(arguments["self"].numel(), 1)
    return positions


def _numbered(tensor: torch.Tensor) -> torch.Tensor:
    return torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape)


_READ_NUMBER_FIRST = {torch.ops.aten.fill_.Tensor, torch.ops.aten.masked_fill_.Tensor}
UNTAGGED = {
    torch.ops.aten.masked_fill_.Tensor
}  # as pointwise as `masked_fill.Scalar`, which alone has the tag

_SCATTERS = {
    torch.ops.aten.select_scatter,
    torch.ops.aten.slice_scatter,
    torch.ops.aten.diagonal_scatter,
    torch.ops.aten.as_strided_scatter,
    torch.ops.aten.copy,
}

_INDEXED_STORES: dict[object, Callable[[dict[str, Any]], torch.Tensor | None]] = {
    torch.ops.aten.index_put: _index_put_positions,
    torch.ops.aten.index_put_: _index_put_positions,
    torch.ops.aten._index_put_impl_: _index_put_positions,
    torch.ops.aten.scatter: _scatter_positions,
    torch.ops.aten.scatter_: _scatter_positions,
    torch.ops.aten.index_copy: _index_copy_positions,
    torch.ops.aten.index_copy_: _index_copy_positions,
    torch.ops.aten.put: _put_positions,
    torch.ops.aten.put_: _put_positions,
}


# The watch. ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Uninitialised:
    """The bytes of one storage that nothing has written yet.

    The storage is held, so that its address is not reused.
    """

    storage: torch.UntypedStorage
    known: int = 0  # bytes at the start that were written before
    mask: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.mask = np.arange(self.storage.nbytes()) >= self.known

    def cover(self, storage: torch.UntypedStorage) -> None:
        """Lengthen the mask if the storage has grown since."""
        grown = storage.nbytes() - self.mask.size
        if grown > 0:
            self.mask = np.concatenate((self.mask, np.ones(grown, np.bool_)))

    def bytes_of(self, tensor: torch.Tensor) -> npt.NDArray[np.bool_]:
        """The part of the mask that the tensor covers, one more dimension for the bytes of an element."""
        return entries_of(
            self.mask,
            tensor.shape,
            tensor.stride(),
            int(tensor.storage_offset()),
            tensor.element_size(),
        )


def _own(op: OpOverload, reason: Exception) -> InternalError:
    """What goes wrong in the watch itself is neither eager's error nor the program's."""
    return InternalError(f"watching {op} failed: {type(reason).__name__}: {reason}")


class Watch(TorchDispatchMode):
    """Raises `Undefined` before a call that eager gives no single meaning, at any depth below the user's function.

    What happened is left in `trace`.
    """

    def __init__(self, inputs: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()
        self.trace = Trace(tuple(map(Placed.of, inputs)))
        dtypes = {(tensor.untyped_storage()._cdata, tensor.dtype): tensor for tensor in inputs}
        seen = Counter(storage for storage, _ in dtypes)
        for (storage, _), tensor in dtypes.items():
            if seen[storage] > 1:
                self.trace.rounding.mixed.add(tensor)
        self._uninitialised: dict[int, Uninitialised] = {}
        self._before_resize = 0  # bytes of the storage that `resize_` is about to change

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        mistake = None
        expected = None
        call = EagerCall.of(func, args, kwargs)
        try:
            self._refuse_undefined(call)
            expected = value_stored(call.op, call.arguments)
            if func is torch.ops.aten.resize_.default:
                self._before_resize = call.written[0].untyped_storage().nbytes()
        except Rejected:
            raise
        except Exception as reason:  # noqa: BLE001 - nothing is swallowed: it is raised below
            mistake = reason
        result = func(
            *args, **kwargs
        )  # if the arguments make no sense, eager says so here, better than a rule could
        if mistake is not None:
            raise _own(func, mistake) from mistake
        try:
            if expected is not None and not same_values(call.written[0], expected):
                raise Undefined(f"{func} writes different values to one place")
            self._note(call, result)
        except Rejected:
            raise
        except Exception as reason:
            raise _own(func, reason) from reason
        return result

    def _refuse_undefined(self, call: EagerCall) -> None:
        for rule in RULES:
            reason = rule(call)
            if reason is not None:
                raise Undefined(f"{call.op} {reason}")
        self._check_initialised(call)

    def require_initialised(self, tensors: Sequence[torch.Tensor]) -> None:
        """Raises `Undefined` if one of the tensors (what a function returned) shows memory that was never written."""
        for tensor in tensors:
            if self._shows_garbage(tensor):
                raise Undefined("returns memory that was never written")

    def _check_initialised(self, call: EagerCall) -> None:
        if not self._uninitialised or call.facts.kind is Kind.VIEW:
            return
        read = [
            *call.only_read,
            *(each for each in call.written if not any(each is o for o in call.overwritten)),
        ]
        if call.op.overloadpacket.__name__ != "resize_" and any(
            self._shows_garbage(each) for each in read
        ):
            raise Undefined(f"{call.op} reads memory that was never written")

    def _shows_garbage(self, tensor: torch.Tensor) -> bool:
        state = self._uninitialised.get(tensor.untyped_storage()._cdata)
        if state is None:
            return False
        state.cover(tensor.untyped_storage())
        return bool(state.bytes_of(tensor).any())

    def _note(self, call: EagerCall, result: object) -> None:
        trace = self.trace
        for tensor in call.written:
            trace.written.add(tensor.untyped_storage().data_ptr())
            if overlaps_itself(region := Region.of(tensor)):
                trace.overlapping_writes.add(region)
            state = self._uninitialised.get(tensor.untyped_storage()._cdata)
            if state is not None:
                state.cover(tensor.untyped_storage())
                state.bytes_of(tensor)[...] = False
        returned = [each for each in tensors_in(result) if each.layout is torch.strided]
        factor = call.arguments.get("alpha") not in (None, 1, -1)
        trace.rounding.note(
            call.op, [*call.only_read, *call.written], [*call.written, *returned], factor=factor
        )
        if call.op is torch.ops.aten.as_strided.default:
            shown, given = Region.of(returned[0]), Region.of(call.only_read[0])
            trace.overlapping_as_strided = trace.overlapping_as_strided or overlaps_itself(shown)
            trace.outside = trace.outside or not set(shown.addresses()) <= set(given.addresses())
        name = call.op.overloadpacket.__name__
        if name in ALLOCATES:
            for tensor in returned:
                state = Uninitialised(tensor.untyped_storage())
                self._uninitialised[state.storage._cdata] = state
        elif name == "resize_":
            self._note_resize(call.written[0].untyped_storage())

    def _note_resize(self, storage: torch.UntypedStorage) -> None:
        """Bytes that a storage grew by were never written."""
        state = self._uninitialised.setdefault(
            storage._cdata, Uninitialised(storage, known=self._before_resize)
        )
        state.cover(storage)


ALLOCATES = {
    "empty",
    "empty_like",
    "empty_strided",
    "empty_permuted",
    "new_empty",
    "new_empty_strided",
}


def value_stored(op: OpOverload, arguments: Mapping[str, Any]) -> torch.Tensor | None:
    """What a copy into a region that overlaps itself must leave everywhere to be well defined; None for other calls."""
    if op is not torch.ops.aten.copy_.default or not overlaps_itself(Region.of(arguments["self"])):
        return None
    target, source = arguments["self"], arguments["src"]
    expected: torch.Tensor = source.to(target.dtype).expand(target.shape).clone()
    return expected


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if element by element both are equal, or both NaN."""
    return bool(((one == other) | ((one != one) & (other != other))).all())
