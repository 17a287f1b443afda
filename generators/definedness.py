"""Does eager give a call one meaning? Decided at each ATen call, on the bytes that it reads and writes.

PyTorch raises on some writes to overlapping memory and is silently undefined on others. A compiler may do as it likes
there, so a program with such a call is discarded, never reported. `Watch` sees every ATen call below a Python function,
so it judges programs and users' functions alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from generators.errors import Rejected
from generators.regions import Region, overlap, overlaps_itself
from generators.schemas import Facts, facts


class Undefined(Rejected):
    """Eager gives the program no single meaning; the message names the op and says why."""


@dataclass(slots=True)
class Call:
    """One ATen call, before it runs: operands by schema argument, flattened to tensors."""

    op: OpOverload
    facts: Facts
    arguments: dict[str, Any]
    written: list[torch.Tensor]
    overwritten: list[torch.Tensor]
    only_read: list[torch.Tensor]

    @classmethod
    def of(cls, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        known = facts(op)
        call = cls(op, known, {}, [], [], [])
        for index, argument in enumerate(op._schema.arguments):
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            call.arguments[argument.name] = value
            tensors = list(tensors_in(value))
            if not tensors:
                continue
            (call.written if index in known.writes else call.only_read).extend(tensors)
            if index in known.overwrites:
                call.overwritten.extend(tensors)
        return call


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """All tensors in an argument, at any nesting of lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)


# Each rule takes a call that is about to run and says what is wrong with it, or None. ----------------------------------


def writes_through_itself(call: Call) -> str | None:
    """A read-modify-write of a region in which two elements share a byte has no fixed number of updates."""
    for tensor in call.written:
        fresh_value_everywhere = any(tensor is each for each in call.overwritten) and call.facts.kind.value != "out="
        if not fresh_value_everywhere and overlaps_itself(Region.of(tensor)):
            return "writes through a region that overlaps itself"
    return None


def reads_what_it_writes(call: Call) -> str | None:
    """An operand may share bytes with the destination only if a pointwise op reads each element where it writes it."""
    for target in call.written:
        region = Region.of(target)
        for operand in call.only_read:
            other = Region.of(operand)
            if overlap(region, other) and not (call.facts.pointwise and region == other):
                return "reads memory that it is writing at other positions"
    return None


def writes_twice(call: Call) -> str | None:
    """Two destinations of one call must not share bytes."""
    for index, one in enumerate(call.written):
        if any(overlap(Region.of(one), Region.of(other)) for other in call.written[:index]):
            return "writes the same memory through two arguments"
    return None


def stores_twice_by_index(call: Call) -> str | None:
    """Equal indices in an indexed store leave open which value stays."""
    rule = _INDEXED_STORES.get(call.op.overloadpacket)
    if rule is None:
        return None
    positions = rule(call.arguments)
    if positions is not None and positions.unique().numel() != positions.numel():
        return "stores twice at the same index"
    return None


def converts_out_of_range(call: Call) -> str | None:
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
    # Whole numbers up to the limits; the upper one is not exact in float64 for 64 bits, so it is excluded.
    inside = (numbers > float(limits.min) - 1) & (numbers < float(limits.max))
    return None if bool(inside.all()) else "converts a number that the integer dtype cannot hold"


def reads_broken_bool(call: Call) -> str | None:
    """A bool is the byte 0 or 1; other bytes, seen through a view of another dtype, mean nothing fixed."""
    for tensor in (*call.only_read, *call.written):
        read = tensor.dtype == torch.bool and not any(tensor is each for each in call.overwritten)
        if read and tensor.numel() and int(tensor.view(torch.uint8).max()) > 1:
            return "reads a bool that is neither 0 nor 1"
    return None


RULES: tuple[Callable[[Call], str | None], ...] = (
    writes_through_itself,
    reads_what_it_writes,
    writes_twice,
    stores_twice_by_index,
    converts_out_of_range,
    reads_broken_bool,
)


def _index_put_positions(arguments: dict[str, Any]) -> torch.Tensor | None:
    if arguments.get("accumulate"):
        return None
    chosen: torch.Tensor = torch.ops.aten.index.Tensor(_numbered(arguments["self"]), arguments["indices"])
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


def _numbered(tensor: torch.Tensor) -> torch.Tensor:
    return torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape)


_INDEXED_STORES: dict[object, Callable[[dict[str, Any]], torch.Tensor | None]] = {
    torch.ops.aten.index_put: _index_put_positions,
    torch.ops.aten.index_put_: _index_put_positions,
    torch.ops.aten._index_put_impl_: _index_put_positions,
    torch.ops.aten.scatter: _scatter_positions,
    torch.ops.aten.scatter_: _scatter_positions,
    torch.ops.aten.index_copy: _index_copy_positions,
    torch.ops.aten.index_copy_: _index_copy_positions,
}


# The watch. ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Uninitialised:
    """The bytes of one storage that nothing has written yet. The storage is held, so that its address is not reused."""

    storage: torch.UntypedStorage
    mask: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.mask = torch.ones(self.storage.nbytes(), dtype=torch.bool)

    def bytes_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The part of the mask that the tensor covers, one more dimension for the bytes of an element."""
        size = tensor.element_size()
        strides = [stride * size for stride in tensor.stride()]
        return self.mask.as_strided((*tensor.shape, size), (*strides, 1), tensor.storage_offset() * size)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an input lies: the address of its storage, and its region."""

    storage: int
    region: Region

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Placed:
        return cls(tensor.untyped_storage().data_ptr(), Region.of(tensor))


@dataclass(slots=True)
class Trace:
    """What an eager run did: where its inputs lay, which storages (by address) it wrote, which ops it called.

    `inexact` names the first op whose result depends on the order or grouping of roundings.
    """

    inputs: tuple[Placed, ...] = ()
    written: set[int] = field(default_factory=set)
    ops: set[OpOverload] = field(default_factory=set)
    overlapping_as_strided: bool = False
    inexact: str | None = None


class Watch(TorchDispatchMode):
    """Raises `Undefined` before a call that eager gives no single meaning, at any depth below the user's function.

    What happened is left in `trace`.
    """

    def __init__(self, inputs: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()
        self.trace = Trace(tuple(map(Placed.of, inputs)))
        self._uninitialised: dict[int, Uninitialised] = {}

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        call = Call.of(func, args, kwargs or {})
        for rule in RULES:
            reason = rule(call)
            if reason is not None:
                raise Undefined(f"{func} {reason}")
        self._check_initialised(call)
        expected = _value_stored(call)
        result = func(*args, **(kwargs or {}))
        if expected is not None and not _same(call.written[0], expected):
            raise Undefined(f"{func} writes different values to one place")
        self._note(call, result)
        return result

    def require_initialised(self, tensors: Sequence[torch.Tensor]) -> None:
        """Raises `Undefined` if one of the tensors (what a function returned) shows memory that was never written."""
        for tensor in tensors:
            if self._shows_garbage(tensor):
                raise Undefined("returns memory that was never written")

    def _check_initialised(self, call: Call) -> None:
        if not self._uninitialised or call.facts.kind.value == "view":
            return
        read = [*call.only_read, *(each for each in call.written if not any(each is o for o in call.overwritten))]
        if any(self._shows_garbage(each) for each in read):
            raise Undefined(f"{call.op} reads memory that was never written")

    def _shows_garbage(self, tensor: torch.Tensor) -> bool:
        state = self._uninitialised.get(tensor.untyped_storage()._cdata)
        return state is not None and bool(state.bytes_of(tensor).any())

    def _note(self, call: Call, result: object) -> None:
        for tensor in call.written:
            storage = tensor.untyped_storage()
            self.trace.written.add(storage.data_ptr())
            state = self._uninitialised.get(storage._cdata)
            if state is not None:
                state.bytes_of(tensor).fill_(False)
        self.trace.ops.add(call.op)
        if self.trace.inexact is None and not _rounds_alike(call):
            self.trace.inexact = str(call.op)
        if call.op is torch.ops.aten.as_strided.default and overlaps_itself(Region.of(result)):  # type: ignore[arg-type]
            self.trace.overlapping_as_strided = True
        if call.op.overloadpacket.__name__ in _ALLOCATES:
            for tensor in tensors_in(result):
                state = Uninitialised(tensor.untyped_storage())
                self._uninitialised[state.storage._cdata] = state


def _rounds_alike(call: Call) -> bool:
    """True if every kernel for the op must round to the same bits: moves, comparisons, single IEEE operations.

    Kernels differ by a unit in the last place where they may sum in another order or fuse a multiplication with an
    addition, as in a complex product.
    """
    if call.facts.kind.value == "view":
        return True
    name = call.op.overloadpacket.__name__.rstrip("_")
    if name in _ONE_ROUNDING:
        return not any(each.is_complex() for each in (*call.only_read, *call.written))
    return name in _NO_ROUNDING or not any(
        each.is_floating_point() or each.is_complex() for each in (*call.only_read, *call.written)
    )


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

_ALLOCATES = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}


def _value_stored(call: Call) -> torch.Tensor | None:
    """What a copy into a region that overlaps itself must leave everywhere to be well defined; None for other calls."""
    if call.op is not torch.ops.aten.copy_.default or not overlaps_itself(Region.of(call.written[0])):
        return None
    target = call.written[0]
    source: torch.Tensor = call.arguments["src"]
    return source.to(target.dtype).expand(target.shape).clone()


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(((one == other) | ((one != one) & (other != other))).all())
