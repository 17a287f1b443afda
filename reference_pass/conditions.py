"""When a functional op may be in place: one function per condition, and the list of them.

A condition takes one candidate (`candidates.Candidate`). It returns the reason why this must not be
done, or None. The step numbers are those of `torch.fx.passes.reinplace.reinplace`. Each condition
is needed: leave it out (`reinplace(gm, conditions=[...])`), and the pass makes wrong programs.

The first chapter has four `CONDITIONS`. They are too few, because writes to inputs and to two
results at once can be safe here: then the epilogue may overwrite a result, and outputs may alias.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.metadata import run_with
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operand_reads import unread
from aliasproof.reference_pass.calls.operator_forms import SCATTERS, aten, bind, facts, is_pointwise
from aliasproof.reference_pass.calls.regions import Region, equal, overlap, overlaps_itself
from aliasproof.reference_pass.calls.storages import (
    encoding,
    same_elements,
    same_location,
    same_view,
    storage_of,
)
from aliasproof.reference_pass.candidates import Candidate, How, Slot
from aliasproof.reference_pass.liveness import END, Liveness

Condition: TypeAlias = Callable[[Candidate], str | None]


def same_size_and_dtype(candidate: Candidate) -> str | None:
    """(1a) The operand has the size and dtype of the result.

    So `add(ones(1), ones(10))` cannot be written into its first operand. The operand is also on the
    same device, and has the same lazy conjugate and negative bits.
    """
    for slot in candidate.slots:
        operand, value = slot.destination.meta["val"], slot.value
        # `equal` is true only if equality is known: two symbols that may differ are refused.
        if not equal(tuple(operand.shape), tuple(value.shape)):
            return (
                f"{slot.destination} has size {list(operand.shape)}, the result {list(value.shape)}"
            )
        if operand.dtype != value.dtype:
            return f"{slot.destination} is {operand.dtype}, the result {value.dtype}"
        # A CPU scalar may be an operand of a CUDA op.
        if operand.device != value.device:
            return f"{slot.destination} is on {operand.device}, the result on {value.device}"
        if encoding(operand) != encoding(value):
            return f"{slot.destination} has another lazy conjugate or negative bit than the result"
    return None


def same_layout(candidate: Candidate) -> str | None:
    """(1a) The operand has the layout of the result, since a use may depend on it.

    These are its strides, its offset, and the size of its storage. This is the naive answer;
    `eager` checks whether a use depends on them.
    """
    for slot in candidate.slots:
        operand = slot.destination.meta["val"]
        alike = equal(operand.stride(), slot.value.stride()) and same_location(operand, slot.value)
        if not alike:
            return f"{slot.destination} has another layout than the result"
    return None


def no_self_overlap(candidate: Candidate) -> str | None:
    """(1a) What is written does not overlap itself: `ones(1).expand(4).add_(1)` adds four times."""
    # For a scatter, this checks the part that it stores over, not its base: only that is written.
    for slot in candidate.slots:
        if overlaps_itself(Region.of(slot.written)):
            if slot.written is not slot.destination.meta["val"]:
                return f"the part of {slot.destination} that it writes overlaps itself"
            return f"{slot.destination} overlaps itself"
    return None


def not_an_input(candidate: Candidate) -> str | None:
    """(1b) The operand is not an alias of an input, or a later `copy_` overwrites what is written.

    Otherwise the caller would see the input change.
    """
    # A redundant candidate writes nothing, so it may be an input.
    for slot in _writing(candidate):
        if candidate.liveness.caller_reads(slot.written, Region.of(slot.written), candidate.at):
            return f"{slot.destination} is memory of an input, and no later copy_ overwrites it"
    return None


def dead_before_epilogue(candidate: Candidate) -> str | None:
    """(1b) The result is dead before a `copy_` of the epilogue overwrites its memory."""
    for slot in candidate.slots:
        if slot.result is None:
            continue
        region = Region.of(slot.destination.meta["val"])
        memory = candidate.liveness.memory(slot.written)
        last = candidate.liveness.last_read(slot.result) if memory.writes else -1
        # A write before the node itself does no harm: it overwrites older data.
        for write in memory.writes:
            if (
                candidate.at < write.at <= last
                and overlap(write.region, region)
                and not _copies_itself(write.by, slot, candidate.liveness)
            ):
                return (
                    f"{write.by} overwrites {slot.destination} before the last read of the result"
                )
    return None


def no_overlapping_operand(candidate: Candidate) -> str | None:
    """(1c) No operand, at any depth, in args or kwargs, shares a byte with what is written.

    Except for pointwise ops: these read each element before they write it. So an operand may have
    the same elements at the same bytes.
    """
    if candidate.how is How.COPIED:
        return None  # the copied value is a new tensor
    elementwise = _is_elementwise(candidate)
    in_place = candidate.how in (How.IN_PLACE, How.CAST_BACK)
    written: dict[int, list[Slot]] = {}  # by storage, since ops on lists write many operands
    for slot in _writing(candidate):
        written.setdefault(storage_of(slot.written), []).append(slot)
    for operand in _operands(candidate):
        for tensor in tensors_in(operand.meta["val"]):
            for slot in written.get(storage_of(tensor), ()):
                # `not_repeated` checks a destination that occurs twice. If the operator is not
                # elementwise, only its in-place form may read the destination.
                own = operand is slot.destination and (elementwise or in_place)
                alike = elementwise and same_elements(tensor, slot.written)
                if not own and not alike and overlap(Region.of(tensor), Region.of(slot.written)):
                    return f"{operand} shares memory with {slot.destination}"
    for slots in written.values():
        for index, slot in enumerate(slots):
            region = Region.of(slot.written)
            if any(overlap(region, Region.of(other.written)) for other in slots[:index]):
                return "two results would share memory"
    return None


def not_repeated(candidate: Candidate) -> str | None:
    """(2b) The operand occurs once among the arguments: kernels need not support `addmm_(a, a, a)`.

    Pointwise kernels support `mul_(a, a)`: they read each element before they write it.
    """
    # The base of a scatter is not an operand of the copy_ that it becomes.
    if candidate.how in (How.SCATTER, How.COPIED) or _is_elementwise(candidate):
        return None
    times = Counter(_operands(candidate))
    for slot in _writing(candidate):
        if times[slot.destination] > 1:
            return f"{slot.destination} is a repeated argument"
    return None


def no_later_use(candidate: Candidate) -> str | None:
    """(2) No alias of what is written is read later.

    (2a) To make a view of it is not a read. (2c) A scatter into it does not read the bytes that the
    scatter stores over.
    """
    for slot in _writing(candidate):
        later = candidate.liveness.later_reads(slot.written, Region.of(slot.written), candidate.at)
        for value, read in later:
            # A node that only overwrites the value may come once the result is dead.
            if (
                read.overwrites
                and slot.result is not None
                and candidate.liveness.last_read(slot.result) <= read.at
            ):
                continue
            reads = "may have kept" if read.at == END and read.by.op != "output" else "later reads"
            return f"{value} shares memory with it, and {read.by} {reads} {value}"
    return None


def no_new_alias(candidate: Candidate) -> str | None:
    """An invariant of FX passes: no output gets a new alias among inputs and other outputs."""
    live = candidate.liveness
    for slot in candidate.slots:
        # On the same storage as before there is no new alias, whatever else is on it.
        if live.returned_in(slot.value) and storage_of(slot.value) != storage_of(slot.written):
            if live.memory(slot.written).is_input:
                return f"the result is returned, and {slot.destination} is memory of an input"
            if live.returned_in(slot.written):
                return (
                    "the result is returned, and so is another value on the storage of"
                    f" {slot.destination}"
                )
            # A call may retain its arguments. A write to that memory was refused before.
            memory = live.memory(slot.written)
            if any(read.at == END for reads in memory.values.values() for read in reads):
                return f"the result is returned, and a call keeps the memory of {slot.destination}"
    # Results of one op that go into two views of one storage would alias each other.
    escaping = [
        storage_of(slot.written) for slot in candidate.slots if live.returned_in(slot.value)
    ]
    if len(set(escaping)) < len(escaping):
        return "two results that are returned would share a storage"
    return None


def source_is_at_destination(candidate: Candidate) -> str | None:
    """(2c), (5) A scatter, or copy, is erased only if its source is the bytes that it stores to."""
    if candidate.how is not How.REDUNDANT:
        return None
    (slot,) = candidate.slots
    source = bind(candidate.op, candidate.node.args, candidate.node.kwargs)["src"].meta["val"]
    # An earlier decision has put the source there, as in `a[0].add_(1)`.
    if not same_view(source, slot.written):
        return "its source is not at the bytes of its base that it stores to"
    return None


def all_conditions(*of_layout: Condition) -> tuple[Condition, ...]:
    """The conditions, in the order in which they are checked.

    The first one that fails gives the reason that is shown. The conditions `of_layout` say which
    layouts the operand may have, such as `same_layout`. They may rely on equal sizes.
    """
    return (
        same_size_and_dtype,
        *of_layout,
        no_self_overlap,
        not_repeated,
        no_overlapping_operand,
        source_is_at_destination,
        not_an_input,
        no_later_use,
        dead_before_epilogue,
        no_new_alias,
    )


# --- what the conditions need ---------------------------------------------------------------------


def _writing(candidate: Candidate) -> tuple[Slot, ...]:
    """The slots that would be written: none where the result is at its destination already."""
    return () if candidate.how in (How.REDUNDANT, How.VIEW) else candidate.slots


def _is_elementwise(candidate: Candidate) -> bool:
    """True if each written element depends only on the elements at the same index."""
    op = candidate.node.target
    copies = op is aten.copy.default or candidate.op is aten.copy_.default
    return isinstance(op, OpOverload) and (is_pointwise(op) or copies)


def _operands(candidate: Candidate) -> Iterator[fx.Node]:
    """The operands that the op would read, and the destinations, with repetitions."""
    # Those of the node as it is now: the candidate `foo.out` also has the destination as `out=`.
    node = candidate.node
    if not isinstance(node.target, OpOverload):
        yield from nodes_in((node.args, node.kwargs))
        return
    given = bind(node.target, node.args, node.kwargs)
    destinations = {slot.destination for slot in candidate.slots}
    for name, value in given.items():
        # A scatter becomes a copy_ into a view of its base, which reads nothing of the base.
        if node.target in SCATTERS and name == facts(node.target).names[0]:
            continue
        for operand in nodes_in(value):
            if name not in unread(node.target) or operand in destinations:
                yield operand


def _copies_itself(copy: fx.Node, slot: Slot, liveness: Liveness) -> bool:
    """True if a copy_ would copy the result, or a view of it, to the bytes where it is already."""
    destination, source = copy.args[0], copy.args[1]
    assert isinstance(destination, fx.Node)
    # The views from the result to the source of the copy_, the last one first.
    chain: list[fx.Node] = []
    while source is not slot.result:
        if not isinstance(source, fx.Node) or source not in liveness.views:
            return False
        chain.append(source)
        source = source.args[0]
    assert isinstance(source, fx.Node)
    # The same views are taken of the operand, in place of the result.
    instead = {source: slot.destination.meta["val"]}
    for view in reversed(chain):
        instead[view] = run_with(view, instead, liveness.semantics)
        if not isinstance(instead[view], torch.Tensor):
            return False
    return same_view(destination.meta["val"], instead[chain[0] if chain else source])
