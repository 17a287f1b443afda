"""Rules of `programs.definedness`: which calls eager leaves undefined.

Each rule takes a call that is about to run and says what is wrong with it, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch._ops import OpOverload

from aliasproof.programs.custom_operators import NAMESPACE
from aliasproof.programs.eager_call import EagerCall, tensors_in
from aliasproof.programs.foreach_calls import is_foreach
from aliasproof.programs.indexed_stores import stores_twice
from aliasproof.programs.regions import Region, overlap, overlaps_itself
from aliasproof.programs.schemas import Kind
from aliasproof.programs.undefined_arithmetic import (
    ARITHMETIC,
    quotient_is_out_of_range,
    takes_divisor_of_lowest,
)
from aliasproof.programs.wrong_kernels import WRONG_KERNELS

aten = torch.ops.aten


def writes_through_itself(call: EagerCall) -> str | None:
    """Two elements of a written region share a byte, so how often it is updated is not fixed."""
    for tensor in call.written:
        # A plain store of equal values is defined; `value_stored` checks that they are equal. An
        # `out=` argument is computed element by element, and may get different values.
        plain_store = call.overwrites(tensor) and call.facts.kind is not Kind.OUT
        # A random op stores a number per element.
        plain_store = plain_store and not call.facts.random
        if not plain_store and overlaps_itself(Region.of(tensor)):
            return "writes through a region that overlaps itself"
    return None


def scatters_into_itself(call: EagerCall) -> str | None:
    """A scatter clones a tensor that overlaps itself: the clone overlaps or not, by layout."""
    if call.op.overloadpacket in _SCATTERS and overlaps_itself(Region.of(call.arguments["self"])):
        return "scatters into a tensor that overlaps itself"
    # The other scatters have no view that could overlap itself.
    if call.op is aten.as_strided_scatter.default:
        sizes, strides = call.arguments["size"], call.arguments["stride"]
        if overlaps_itself(Region(0, tuple(sizes), tuple(strides), 1)):
            return "scatters through a view that overlaps itself"
    return None


def reads_what_it_writes(call: EagerCall) -> str | None:
    """A call reads bytes of its destination in an order that depends on the kernel.

    A pointwise op may read a region that is equal to the destination: each element is read before
    it is written.
    """
    pointwise = call.facts.pointwise or is_foreach(call.op)
    for target in call.written:
        region = Region.of(target)
        for operand in _read_while_it_writes(call):
            other = Region.of(operand)
            if overlap(region, other) and not (pointwise and region == other):
                return "reads memory that it is writing at other positions"
    return None


def _read_while_it_writes(call: EagerCall) -> Iterator[torch.Tensor]:
    """The operands that it does not write, except a 0-d value that it first makes a number."""
    for index, argument in enumerate(call.op._schema.arguments):
        if index in call.facts.writes:
            continue
        for operand in tensors_in(call.arguments[argument.name]):
            if not read_as_number_first(call.op, argument.name, operand.dim()):
                yield operand


def read_as_number_first(op: OpOverload, argument: str, dims: int) -> bool:
    """True for a 0-d tensor that a kernel converts to a number before it writes."""
    return op in _READ_NUMBER_FIRST and argument == "value" and dims == 0


def writes_twice(call: EagerCall) -> str | None:
    """Two destinations of one call share bytes."""
    # `_foreach` ops and ops with several `out=` arguments have more than one destination.
    for index, one in enumerate(call.written):
        if any(overlap(Region.of(one), Region.of(other)) for other in call.written[:index]):
            return "writes the same memory through two arguments"
    return None


def stores_twice_by_index(call: EagerCall) -> str | None:
    """An indexed store has equal indices, so which value stays depends on the kernel."""
    if stores_twice(call.op.overloadpacket, call.arguments):
        return "stores twice at the same index"
    return None


def reads_broken_bool(call: EagerCall) -> str | None:
    """A call reads a bool that is neither 0 nor 1, written through a view of another dtype.

    A copy counts: of the byte 2, `clone` stores 1, `cat` stores 2, and `flip` either, by layout.
    """
    if call.facts.kind is Kind.VIEW:  # it reads nothing
        return None
    for tensor in (*call.only_read, *call.written):
        # An overwritten tensor may also be an operand: `x.copy_(x)` reads nothing.
        if tensor.dtype != torch.bool or not tensor.numel() or call.overwrites(tensor):
            continue
        if int(tensor.view(torch.uint8).max()) > 1:
            return "reads a bool that is neither 0 nor 1"
    return None


RULES: tuple[Callable[[EagerCall], str | None], ...] = (
    writes_through_itself,
    scatters_into_itself,
    reads_what_it_writes,
    writes_twice,
    stores_twice_by_index,
    *ARITHMETIC,
    reads_broken_bool,
    *WRONG_KERNELS,
)


# These depend on the order in which a kernel reads and writes.
ABOUT_ORDER = (writes_through_itself, reads_what_it_writes, writes_twice)
BETWEEN_ARGUMENTS = (reads_what_it_writes, writes_twice)
# Their kernels can end the process or write elsewhere, so such calls do not run even on copies.
NEVER_RUN = (
    *(quotient_is_out_of_range, takes_divisor_of_lowest, reads_broken_bool),
    *WRONG_KERNELS,
)
# The rules say what is undefined for torch's operators and for ours.
DEFINED_BY_RULES = ("aten", "prims", "prim", "quantized", "mkldnn", "inductor", NAMESPACE)

_READ_NUMBER_FIRST = {aten.fill_.Tensor, aten.masked_fill_.Tensor}

_SCATTERS = {
    aten.select_scatter,
    aten.slice_scatter,
    aten.diagonal_scatter,
    aten.as_strided_scatter,
    aten.copy,
}
