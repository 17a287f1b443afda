"""When a functional op may be in place: one function a condition, and the list of them.

A *candidate* says what would be done: node `b = foo(a, args)` becomes `foo_(a, args)`, and all
users of `b` use `a`. A condition looks at one candidate and gives the reason why it may not be
done, or None. The steps are those of the docstring of `torch.fx.passes.reinplace.reinplace`.

Leave one out (`reinplace(gm, conditions=[...])`) and the pass makes wrong programs: that is what
each is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from reference_pass.alias_analysis import run_call, same_numbers, storage_of
from reference_pass.emission import holds_a_part
from reference_pass.liveness import Liveness
from reference_pass.operator_forms import (
    COPIES_STORAGE,
    SCATTERS,
    aten,
    bind,
    facts,
    goes_by_place,
    is_pointwise,
    nodes_in,
    starts_between,
    tensors_in,
    unread,
)
from reference_pass.regions import Region, equal, known, overlap, overlaps_itself, same_strides


class How(Enum):
    """In what way a candidate would be in place."""

    IN_PLACE = "in place"  # (3b) foo_(a, args)
    SWAPPED = "in place of the other operand"  # foo_(args, a), for a commutative foo
    OUT = "into an operand"  # foo.out(a, args, out=a or one of args)
    CAST_BACK = (
        "in place with its cast"  # a.ge_(b) for a.ge(b) followed by a cast to the dtype of a
    )
    SCATTER = "into its base"  # (3a) view(a, args).copy_(b) for foo_scatter(a, b, args)
    REDUNDANT = "there already"  # (5) a scatter of what lies in the base already


@dataclass(frozen=True, slots=True)
class Slot:
    """One result and where it would go.

    `value` is the tensor that it is now, `destination` the operand, `written` what would be
    written: the operand, or the part of it that a scatter stores over.
    """

    result: fx.Node | None
    value: torch.Tensor
    destination: fx.Node
    written: torch.Tensor


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that would be in place, how, by which call, and the slots: one for each tensor written."""

    node: fx.Node
    how: How
    op: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    slots: tuple[Slot, ...]
    liveness: Liveness

    @property
    def at(self) -> int:
        """The position of the node."""
        return self.liveness.position[self.node]


Condition: TypeAlias = Callable[[Candidate], str | None]


def same_size_and_dtype(candidate: Candidate) -> str | None:
    """(1a) The operand has the size and dtype of the result: `add(ones(1), ones(10))` cannot go into its first operand.

    And it is on its device, and as little a conjugate or a negative view.
    """
    for slot in candidate.slots:
        place = slot.destination.meta["val"]
        if not equal(tuple(place.shape), tuple(slot.value.shape)):
            return f"{slot.destination} has size {list(place.shape)}, the result {list(slot.value.shape)}"
        if place.dtype != slot.value.dtype:
            return f"{slot.destination} is {place.dtype}, the result {slot.value.dtype}"
        if place.device != slot.value.device:
            return f"{slot.destination} is on {place.device}, the result on {slot.value.device}"
        if (place.is_conj(), place.is_neg()) != (slot.value.is_conj(), slot.value.is_neg()):
            return f"{slot.destination} is a conjugate or a negative view"
    return None


def same_stride(candidate: Candidate) -> str | None:
    """(1a) The operand has the strides of the result, or no use of the result can tell them apart.

    Nor can the op itself: kernels draw random numbers in the order of memory, and some with several
    results take them to be laid out alike. Fakes do not tell the strides of tensors without
    elements, so no view of these may go by them.
    """
    itself = facts(candidate.op).random or len(facts(candidate.op).writes) > 1
    for slot in candidate.slots:
        place = slot.destination.meta["val"]
        if known(slot.value.numel() == 0):
            if (
                slot.result is not None
                and (user := _viewed_without_elements(slot.result)) is not None
            ):
                return f"{slot.destination} has no elements, of such no fake tells the strides, and {user} goes by them"
            continue
        alike = equal(
            place.stride(), slot.value.stride()
        )  # all of them: a view as another dtype goes by all
        if not alike and itself:
            return f"{slot.destination} has strides {place.stride()}, the result {slot.value.stride()}, and the op goes by them"
        if (
            not alike
            and slot.result is not None
            and (user := _tells_strides(slot.result, place, candidate.liveness)) is not None
        ):
            return f"{slot.destination} has strides {place.stride()}, the result {slot.value.stride()}, and {user} can tell"
    return None


def same_place(candidate: Candidate) -> str | None:
    """(1a) The operand starts in its storage where the result does in its own, or nothing goes by that.

    `as_strided` does, views of larger elements, and outputs that share a storage. Nor may a scatter
    of the result copy a storage that it cannot, or that of a larger input.
    """
    live = candidate.liveness
    for slot in candidate.slots:
        place = slot.destination.meta["val"]
        if slot.result is None or storage_of(place) == storage_of(slot.value):
            continue
        alike = known(place.storage_offset() == slot.value.storage_offset()) and same_strides(
            tuple(place.shape), place.stride(), slot.value.stride()
        )
        moved = (place.storage_offset() - slot.value.storage_offset()) * place.itemsize
        larger = not known(
            place.untyped_storage().nbytes() <= slot.value.untyped_storage().nbytes()
        )
        for value in (
            _starting_with(slot.result, live) if larger or not alike or holds_a_part(place) else ()
        ):
            shown = [] if alike else tensors_in(value.meta["val"])
            if any(len(live.returned_in(each)) > 1 for each in shown):
                return f"{slot.destination} starts elsewhere in its storage, and outputs that share the result's show it"
            for user in value.users:
                if user.op == "output" or not user.args or user.args[0] is not value:
                    continue
                if (not alike and goes_by_place(user.target)) or starts_between(user, moved):
                    return f"{slot.destination} starts elsewhere in its storage, and {user} goes by that"
                if user.target not in COPIES_STORAGE:
                    continue
                if holds_a_part(place):
                    return f"{user} copies all of the storage of {slot.destination}, which is no whole number of elements"
                if larger and live.memory(place).is_input and live.escapes(user.meta["val"]):
                    return f"{user} is returned, so it would copy all of the input that {slot.destination} lies in"
    return None


def no_self_overlap(candidate: Candidate) -> str | None:
    """(1a) What is written does not overlap itself: `ones(1).expand(4).add_(1)` adds more than once."""
    for slot in candidate.slots:
        if overlaps_itself(Region.of(slot.written)):
            return f"{slot.destination} overlaps itself"
    return None


def not_an_input(candidate: Candidate) -> str | None:
    """(1b) The operand is no alias of an input, or a later `copy_` into that input stores over all that is written here.

    Otherwise the caller would see the input change.
    """
    for slot in _writing(candidate):
        if candidate.liveness.caller_reads(slot.written, Region.of(slot.written), candidate.at):
            return f"{slot.destination} lies in an input, and no copy_ stores over it later"
    return None


def outlives_epilogue(candidate: Candidate) -> str | None:
    """(1b) The result is not read after a `copy_` into the memory that it would lie in."""
    for slot in candidate.slots:
        if slot.result is None:
            continue
        region, memory = (
            Region.of(slot.destination.meta["val"]),
            candidate.liveness.memory(slot.written),
        )
        last = candidate.liveness.last_read(slot.result) if memory.writes else -1
        for write in memory.writes:
            if (
                candidate.at < write.at <= last
                and overlap(write.region, region)
                and not _copies_itself(write.by, slot, candidate.liveness)
            ):
                return f"{write.by} stores over {slot.destination} before the result is read for the last time"
    return None


def no_overlapping_operand(candidate: Candidate) -> str | None:
    """(1c) No operand, at any nesting, in args or kwargs, shares a byte with what is written.

    But a pointwise op reads each element before it writes it, so an operand may have the same
    elements at the same bytes.
    """
    elementwise = _is_elementwise(candidate)
    written = [(slot.destination, slot.written) for slot in _writing(candidate)]
    for operand in _operands(candidate):
        for destination, place in written:
            if operand is destination and candidate.how is not How.SCATTER:
                continue  # see not_repeated; what a scatter reads is its source alone
            for each in tensors_in(operand.meta["val"]):
                if _share(each, place) and not (elementwise and _same_elements(each, place)):
                    return f"{operand} shares memory with {destination}"
    for index, (_, one) in enumerate(written):
        if any(_share(one, other) for _, other in written[:index]):
            return "two results would share memory"
    return None


def not_repeated(candidate: Candidate) -> str | None:
    """(2b) The operand stands once among the arguments: kernels make no promise for `addmm_(a, a, a)`.

    Pointwise ones do, for `mul_(a, a)`: each element is read before it is written, under whatever
    name.
    """
    if candidate.how is How.SCATTER or _is_elementwise(candidate):
        return None  # the base of a scatter is not an operand of the copy_
    operands = list(_operands(candidate))
    for slot in _writing(candidate):
        if operands.count(slot.destination) > 1:
            return f"{slot.destination} is a repeated argument"
    return None


def no_later_use(candidate: Candidate) -> str | None:
    """(2) No alias of what is written is read later.

    (2a) To make a view of it is no read. (2c) Nor is a scatter into it a read of the bytes that the
    scatter stores over.
    """
    for slot in _writing(candidate):
        for value, read in candidate.liveness.later_reads(
            slot.written, Region.of(slot.written), candidate.at
        ):
            if (
                read.weak
                and slot.result is not None
                and candidate.liveness.last_read(slot.result) <= read.at
            ):
                continue  # by then the result is no longer needed
            return f"{value} shares memory with it and is read later, by {read.by}"
    return None


def no_new_alias(candidate: Candidate) -> str | None:
    """An invariant of FX passes: outputs share no storage with inputs or with each other that they did not before."""
    live = candidate.liveness
    for slot in candidate.slots:
        if live.escapes(slot.value) and storage_of(slot.value) != storage_of(slot.written):
            if live.memory(slot.written).is_input:
                return f"the result is returned, and {slot.destination} lies in an input"
            if live.escapes(slot.written):
                return f"the result is returned, and so is another value in the storage of {slot.destination}"
    if len(candidate.slots) > 1:
        places = [storage_of(slot.written) for slot in candidate.slots if live.escapes(slot.value)]
        if len(set(places)) < len(places):
            return "two results that are returned would share a storage"
    return None


def source_is_in_place(candidate: Candidate) -> str | None:
    """(2c), (5) A scatter, or copy, is dropped only if its source lies in the very bytes that it would store to."""
    if candidate.how is not How.REDUNDANT:
        return None
    (slot,) = candidate.slots
    source = bind(candidate.op, candidate.node.args, candidate.node.kwargs)["src"].meta["val"]
    if not same_numbers(source, slot.written):
        return "its source does not lie in the bytes of its base that it stores to"
    return None


CONDITIONS: tuple[Condition, ...] = (
    same_size_and_dtype,
    same_stride,
    same_place,
    no_self_overlap,
    not_repeated,
    no_overlapping_operand,
    source_is_in_place,
    not_an_input,
    no_later_use,
    outlives_epilogue,
    no_new_alias,
)


# --- what the conditions ask ----------------------------------------------------------------------


def _writing(candidate: Candidate) -> tuple[Slot, ...]:
    """The slots that would be written: none where the result is there already."""
    return () if candidate.how is How.REDUNDANT else candidate.slots


def _is_elementwise(candidate: Candidate) -> bool:
    """True if each element of what is written goes by the elements of the operands in the same place alone."""
    op = candidate.node.target
    return isinstance(op, OpOverload) and (is_pointwise(op) or op is aten.copy.default)


def _operands(candidate: Candidate) -> Iterator[fx.Node]:
    """The operands whose contents the op would read, and the destinations; a node that stands twice comes twice."""
    node = candidate.node
    if not isinstance(node.target, OpOverload):
        yield from nodes_in((node.args, node.kwargs))
        return
    given = bind(node.target, node.args, node.kwargs)
    destinations = {slot.destination for slot in candidate.slots}
    for name, value in given.items():
        if node.target in SCATTERS and name == facts(node.target).names[0]:
            continue
        for operand in nodes_in(value):
            if name not in unread(node.target) or operand in destinations:
                yield operand


def _starting_with(value: fx.Node, liveness: Liveness) -> Iterator[fx.Node]:
    """A value, all views of it, and all copies of its storage as a whole: they start where it does."""
    todo = [value]
    while todo:
        yield (each := todo.pop())
        todo.extend(
            user
            for user in each.users
            if user in liveness.views or (user.target in COPIES_STORAGE and user.args[0] is each)
        )


def _same_elements(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors of one storage have the same elements at the same places, as kernels see it: by all strides."""
    same = equal(tuple(one.shape), tuple(other.shape)) and equal(one.stride(), other.stride())
    return same and same_numbers(one, other)


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    return storage_of(one) == storage_of(other) and overlap(Region.of(one), Region.of(other))


def _copies_itself(copy: fx.Node, slot: Slot, liveness: Liveness) -> bool:
    """True if a copy_ would copy the result, or a view of it, once that is where it would be, to where it is."""
    destination, source = copy.args[0], copy.args[1]
    assert isinstance(destination, fx.Node)
    chain: list[fx.Node] = []
    while source is not slot.result:
        if not isinstance(source, fx.Node) or source not in liveness.views:
            return False
        chain.append(source)
        source = source.args[0]
    assert isinstance(source, fx.Node)
    instead = {source: slot.destination.meta["val"]}
    for view in reversed(chain):
        instead[view] = _run_with(view, instead)
        if not isinstance(instead[view], torch.Tensor):
            return False
    return same_numbers(destination.meta["val"], instead[chain[0] if chain else source])


def _tells_strides(result: fx.Node, place: torch.Tensor, liveness: Liveness) -> fx.Node | None:
    """A user to which it matters that the result has the strides of `place`, or None.

    Tried out: each user is run on fakes with such an operand. A view passes the question on to its
    users.
    """
    todo = [result]
    instead: dict[fx.Node, Any] = {result: place}
    while todo:
        value = todo.pop()
        for user in value.users:
            if user.op == "output" or user.target is aten.set_.source_Tensor:
                if _alike(instead[value], value.meta["val"]):
                    continue
                return user
            if user.target is aten.copy_.default and user.args[0] is not value:
                continue
            if (
                user.target in SCATTERS
                and user.args[0] is not value
                and value not in nodes_in((user.args[2:], user.kwargs))
            ):
                continue
            if user.target is aten.view.dtype and _strides(instead[value]) != _strides(
                value.meta["val"]
            ):
                return user  # it goes by all of them
            shown = _run_with(user, instead)
            if shown is None or (isinstance(user.target, OpOverload) and facts(user.target).random):
                return user
            if user in liveness.views:
                instead[user] = shown
                todo.append(user)
            elif not _alike(shown, user.meta["val"]) or _strides(shown) != _strides(
                user.meta["val"]
            ):
                return user  # also where a stride places nothing: what comes later may go by it
    return None


def _viewed_without_elements(result: fx.Node) -> fx.Node | None:
    """A view as another dtype of what comes, by tensors without elements alone, of a result that has none; or None."""
    todo, seen = [result], {result}
    while todo:
        for user in todo.pop().users:
            if user.target in (aten.view.dtype, aten.view_as_complex.default):
                return user
            empty = user.op == "call_function" and any(
                known(each.numel() == 0) for each in tensors_in(user.meta["val"])
            )
            if empty and user not in seen:
                seen.add(user)
                todo.append(user)
    return None


def _run_with(node: fx.Node, instead: dict[fx.Node, Any]) -> Any:
    try:
        return run_call(node, lambda operand: instead.get(operand, operand.meta["val"]))
    except (RuntimeError, ValueError):  # it does not take such an operand
        return None


def _strides(value: Any) -> list[str]:
    return [str(each.stride()) for each in tensors_in(value)]


def _alike(one: Any, other: Any) -> bool:
    ones, others = list(tensors_in(one)), list(tensors_in(other))
    return len(ones) == len(others) and all(
        equal(tuple(a.shape), tuple(b.shape))
        and a.dtype == b.dtype
        and same_strides(tuple(a.shape), a.stride(), b.stride())
        for a, b in zip(ones, others, strict=True)
    )
