"""Faults of memory planning: parts stored at the wrong bytes, and storages that are not free.

The plan only says what to try, and the conditions of reinplacing decide. So a wrong lifetime alone
makes no wrong graph. The faults of lifetimes are planted in a planner that trusts its plan: it does
not ask, of memory that it has chosen, who else reads it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.faults.fault import (
    Fault,
    Faults,
    Passes,
    instead_of,
    instead_of_entries,
    weaker_condition,
)
from aliasproof.reference_pass import conditions
from aliasproof.reference_pass.calls.emission import Emitter
from aliasproof.reference_pass.calls.operator_forms import Facts, aten, facts
from aliasproof.reference_pass.calls.storages import operand_storages, value_of
from aliasproof.reference_pass.candidates import Candidate, How
from aliasproof.reference_pass.conditions import Condition
from aliasproof.reference_pass.liveness import Liveness
from aliasproof.reference_pass.memory_plan import plan_memory
from aliasproof.reference_pass.pipeline import CONDITIONS
from aliasproof.reference_pass.planning import join_buffers, offers, reuse, unread
from aliasproof.reference_pass.planning.join_buffers import JOINS, BufferPart, Join, Store
from aliasproof.reference_pass.planning.timeline import Lifetime, lifetimes
from aliasproof.targets.reference import REFERENCE_PLANNED

_of_cat, _of_stack = JOINS[aten.cat.default], JOINS[aten.stack.default]
_of_pad, _is_unread = JOINS[aten.constant_pad_nd.default], unread._is_unread
_buffer, _store = join_buffers._buffer, join_buffers._store
_laid_over, _view_before = offers._laid_over, offers._view_before
_storages_to_reuse, _release = reuse.storages_to_reuse, reuse._Scan._release

BUFFERS, OFFERS, PLAN, REUSE, UNREAD = (
    f"planning.{module}" for module in ("join_buffers", "offers", "graph_plan", "reuse", "unread")
)

FAULTS = Faults()
plant = FAULTS.add


def _planned(fault: Fault) -> Fault:
    """The fault with memory planning in place of reinplacing."""
    assert isinstance(fault.make, Passes)
    return replace(fault, make=replace(fault.make, last=plan_memory), right=REFERENCE_PLANNED)


def _in_join(wrong: Callable[..., Any], op: OpOverload) -> Fault:
    return _planned(instead_of_entries(wrong, JOINS, "rule of planning: how a join is stored", op))


def _in_planner(wrong: Callable[..., Any], name: str, rule: str, home: str) -> Fault:
    return _planned(instead_of(wrong, name, f"rule of planning: {rule}", home))


# --- where parts are stored -----------------------------------------------------------------------


def _stored_by(join: Join | None, change: Callable[[int, list[Any]], list[Any]]) -> Join | None:
    """A join whose stores have other arguments: `change` gets the index of a part and them."""

    def stored(index: int, store: Store) -> Store:
        def changed(emit: Emitter, buffer: fx.Node, part: fx.Node) -> fx.Node:
            node = store(emit, buffer, part)
            node.args = (buffer, part, *change(index, list(node.args[2:])))
            return node

        return changed

    if join is None:
        return None
    parts = ((part, stored(index, store)) for index, (part, store) in enumerate(join.parts))
    return replace(join, parts=tuple(parts))


@plant(_in_join, aten.cat.default)
def part_starts_one_element_early(node: fx.Node) -> Join | None:
    """Each part of a cat after the first is stored one element before its place."""

    def one_less(index: int, args: list[Any]) -> list[Any]:
        dim, start, end = args
        return [dim, start - 1, end - 1] if index and start else args

    return _stored_by(_of_cat(node), one_less)


@plant(_in_join, aten.cat.default)
def every_part_is_stored_at_the_start(node: fx.Node) -> Join | None:
    """The parts of a cat are all stored at its start, since the offset is not counted on."""
    return _stored_by(_of_cat(node), lambda index, args: [args[0], 0, args[2] - args[1]])


@plant(_in_join, aten.cat.default)
def repeated_part_is_stored_once(node: fx.Node) -> Join | None:
    """A part that occurs twice in a cat is stored at its first place alone."""
    join = _of_cat(node)
    if join is None:
        return None
    # In a dictionary, the place of the first of equal keys stays, with the first store.
    parts = dict(reversed(join.parts))
    return replace(join, parts=tuple(reversed(parts.items())))


@plant(_in_join, aten.stack.default)
def stack_ignores_the_dimension(node: fx.Node) -> Join | None:
    """The parts of a stack become its rows, whatever dimension they are stacked along."""
    join = _of_stack(node)
    rows = {tuple(part.meta["val"].shape) for part, _ in join.parts} if join else set()
    if rows != {tuple(node.meta["val"].shape[1:])}:
        return join
    count = node.meta["val"].shape[0]
    return _stored_by(join, lambda index, args: [0, min(index, count - 1)])


@plant(_in_join, aten.constant_pad_nd.default)
def pads_begin_with_the_first_dimension(node: fx.Node) -> Join | None:
    """The pads of a tensor are taken to begin with its first dimension, and not with the last."""
    pads, strides = node.args[1], node.meta["val"].stride()
    offset = sum(map(int.__mul__, strides, pads[::2]))  # type: ignore[index, arg-type]
    return _stored_by(_of_pad(node), lambda index, args: [*args[:2], offset])


@plant(_in_join, aten.constant_pad_nd.default)
def part_is_stored_by_the_pad_behind_it(node: fx.Node) -> Join | None:
    """The pads behind a part are taken for those before it."""
    pads, strides = node.args[1], node.meta["val"].stride()[::-1]
    offset = sum(map(int.__mul__, strides, pads[1::2]))  # type: ignore[index, arg-type]
    return _stored_by(_of_pad(node), lambda index, args: [*args[:2], offset])


@plant(_in_join, aten.constant_pad_nd.default)
def around_a_part_is_zero(node: fx.Node) -> Join | None:
    """A pad is filled with zeros, whatever its value is."""
    join = _of_pad(node)
    return None if join is None else replace(join, fill=0)


@plant(_in_join, aten.constant_pad_nd.default)
def around_a_part_is_old_memory(node: fx.Node) -> Join | None:
    """The buffer of a pad is not filled around the part."""
    join = _of_pad(node)
    return None if join is None else replace(join, fill=None)


# --- buffers --------------------------------------------------------------------------------------


@plant(_in_planner, "_store", "all parts are stored", BUFFERS)
def copied_parts_are_forgotten(
    join: Join, parts: list[BufferPart], emit: Emitter
) -> tuple[fx.Node, fx.Node]:
    """Only the parts that are computed in the buffer are stored; the others would be copied."""
    moved = {part.node for part in parts}
    kept = tuple((part, store) for part, store in join.parts if part in moved)
    return _store(replace(join, parts=kept), parts, emit)


@plant(_in_planner, "_store", "all parts are stored", BUFFERS)
def each_part_is_stored_into_the_empty_buffer(
    join: Join, parts: list[BufferPart], emit: Emitter
) -> tuple[fx.Node, fx.Node]:
    """The stores of a join are no chain, so only the last one counts."""
    (*_, last) = join.parts
    return _store(replace(join, parts=(last,)), parts, emit)


@plant(_in_planner, "_buffer", "a buffer has the layout of its join", BUFFERS)
def buffer_is_contiguous(join: Join, emit: Emitter) -> fx.Node:
    """A buffer is contiguous, whatever strides the concatenation has."""
    value = join.node.meta["val"]
    contiguous = torch.empty(value.shape, device="meta").stride()
    if join.fill is not None or contiguous == value.stride():
        return _buffer(join, emit)
    like = {"dtype": value.dtype, "device": value.device}
    return emit.call(aten.empty_strided.default, list(value.shape), list(contiguous), **like)


@plant(_in_planner, "_made_before", "memory is there before", OFFERS)
def memory_may_be_made_after_the_result(
    value: fx.Node, node: fx.Node, liveness: Liveness
) -> fx.Node:
    """A result is computed where it is stored, though that memory is made after the result."""
    return value


@plant(_in_planner, "_laid_over", "memory is bytes", OFFERS)
def free_memory_is_counted_in_elements(
    held: fx.Node, offset: int, node: fx.Node, liveness: Liveness
) -> fx.Node:
    """A storage is taken over as another dtype, and as many elements of the old one are seen."""
    tensor, value = held.meta["val"], node.meta["val"]
    if tensor.dtype == value.dtype:
        return _laid_over(held, offset, node, liveness)
    line = [value.numel()], [1], offset // tensor.itemsize
    flat = _view_before(node, aten.as_strided.default, (held, *line), liveness)
    seen = _view_before(node, aten.view.dtype, (flat, value.dtype), liveness)
    layout = list(value.shape), list(value.stride()), offset // value.itemsize
    return _view_before(node, aten.as_strided.default, (seen, *layout), liveness)


@plant(_in_planner, "_is_unread", "views are uses", UNREAD)
def reads_of_views_are_forgotten(node: fx.Node, liveness: Liveness) -> bool:
    """A result is taken to be unread if no call reads it, though one reads a view of it."""
    if node.target is aten.empty_strided.default or node in liveness.views or not node.users:
        return False
    seen = not liveness.returned_in(node.meta["val"]) and liveness.views.issuperset(node.users)
    return seen or _is_unread(node, liveness)


@plant(_in_planner, "facts", "random calls are made", UNREAD)
def random_results_are_not_drawn(op: OpOverload) -> Facts:
    """A random call is not made if nobody reads its numbers, so later calls draw them."""
    return replace(facts(op), random=False)


# --- a plan that is trusted -----------------------------------------------------------------------


def _trusting(condition: Condition) -> Condition:
    """Do not ask of a result in memory that the plan has chosen: no operand, no input."""

    @functools.wraps(condition)
    def asked(candidate: Candidate) -> str | None:
        (destination, *_) = (slot.destination for slot in candidate.slots)
        copied = (user for user in candidate.node.users if user.target is aten.copy_.default)
        planned = (
            candidate.how in (How.OUT, How.TAKEN)
            and destination not in candidate.node.all_input_nodes
            and all(copy.args[0] is not destination for copy in copied)
        )
        return None if planned else condition(candidate)

    return asked


# Of these, the plan has an answer of its own.
_TRUSTED = (
    conditions.no_overlapping_operand,
    conditions.not_an_input,
    conditions.no_later_use,
    conditions.dead_before_epilogue,
    conditions.no_new_alias,
)


def _trusted(
    wrong: Callable[..., Any], name: str, rule: str, home: str | type, *more: Fault
) -> Fault:
    """A fault, with `more` planted beside it, in a planner that trusts its plan."""
    fault = instead_of(wrong, name, f"rule of planning: {rule}", home)

    @contextlib.contextmanager
    def within() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for each in (fault, *more):
                assert isinstance(each.make, Passes)
                stack.enter_context(each.make.within())
            yield

    asked = [_trusting(each) if each in _TRUSTED else each for each in CONDITIONS]
    return _planned(replace(fault, make=Passes(conditions=asked, within=within)))


def _without_asking(condition: Condition) -> Fault:
    asked = [_trusting(each) if each is condition else each for each in CONDITIONS]
    name = condition.__name__.replace("_", " ")
    return _planned(
        Fault(
            f"planned without {name}",
            f"The condition {condition.__name__} is not asked of memory that the plan has chosen.",
            f"condition {condition.__name__} of reinplace",
            Passes(conditions=asked),
        )
    )


# `larger_output_storage` covers `no_new_alias` there: a part has less bytes than its buffer.
FAULTS.extend(map(_without_asking, _TRUSTED[:-1]))


def _with_weaker_condition(wrong: Condition, right: Condition, source: str) -> Fault:
    return _planned(weaker_condition(wrong, right, source))


@plant(_with_weaker_condition, conditions.same_size_and_dtype, "condition (1a) of reinplace")
def planned_dtype_is_not_compared(candidate: Candidate) -> str | None:
    """The plan puts a result into memory of another dtype, without a view of it."""
    failure = conditions.same_size_and_dtype(candidate)
    return None if failure is not None and ", the result torch." in failure else failure


@plant(_trusted, "_release", "operands are live", reuse._Scan)
def storage_is_taken_over_while_it_is_read(self: reuse._Scan, now: int) -> None:
    """Off by one: a result takes over the storage of an operand of its own call."""
    _release(self, now + 1)


@plant(_trusted, "_rooms", "operands are live", REUSE)
def result_is_over_what_is_read(
    life: Lifetime, lives: dict[int, Lifetime]
) -> Iterator[tuple[int, int]]:
    """A result is at the start of the storage of an operand that dies, whatever is read of it."""
    for storage in operand_storages(life.node, value_of):
        if storage in lives and lives[storage].dies == life.born:
            yield storage, 0


@plant(_trusted, "lifetimes", "views are uses", REUSE)
def uses_of_views_are_missed(
    graph: fx.Graph, value: Callable[[fx.Node], Any] = value_of
) -> dict[int, Lifetime]:
    """A storage is free after the last use of its first value, though a view is used later."""
    position = {node: at for at, node in enumerate(graph.nodes)}
    output = graph.output_node()
    lives: dict[int, Lifetime] = {}
    for storage, life in lifetimes(graph, value).items():
        dies = max((position[user] for user in life.node.users), default=life.born)
        lives[storage] = replace(life, dies=dies, returned=output in life.node.users)
    return lives


@plant(_trusted, "lifetimes", "outputs are live", REUSE)
def storage_of_an_output_is_taken_over(
    graph: fx.Graph, value: Callable[[fx.Node], Any] = value_of
) -> dict[int, Lifetime]:
    """A storage is free after its last call, though a value on it is returned."""
    dies: dict[int, int] = {}
    for at, node in enumerate(graph.nodes):
        if node.op != "output":
            dies |= dict.fromkeys(operand_storages(node, value), at)
    return {
        storage: replace(life, dies=dies.get(storage, life.born), returned=False)
        for storage, life in lifetimes(graph, value).items()
    }


@plant(_trusted, "storages_to_reuse", "inputs are live", PLAN)
def storage_of_an_input_is_taken_over(graph: fx.Graph) -> dict[str, reuse.Place]:
    """A result takes over the storage of an input that no later call uses."""
    taken = _storages_to_reuse(graph)
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    position = {node: at for at, node in enumerate(graph.nodes)}
    for life in lifetimes(graph).values():
        for held in inputs:
            last_use = max((position[user] for user in held.users), default=-1)
            if last_use < life.born and life.nbytes <= held.meta["val"].untyped_storage().nbytes():
                taken.setdefault(life.node.name, (held.name, 0))
    return taken


@plant(_trusted, "_buffer", "each join has a buffer", BUFFERS)
def two_joins_share_a_buffer(join: Join, emit: Emitter) -> fx.Node:
    """Two concatenations of one layout are stored into the same buffer."""
    node: fx.Node
    buffer = _buffer(join, emit)
    for node in emit.graph.nodes:
        if node is buffer:
            break
        if (node.target, node.args, node.kwargs) == (buffer.target, buffer.args, buffer.kwargs):
            emit.graph.erase_node(buffer)
            return node
    return buffer


def any_storage_has_room(held: torch.Tensor, value: torch.Tensor, offset: int) -> bool:
    """Any storage has room for any value."""
    return True


@plant(
    _trusted,
    "_free_for",
    "a storage has room",
    reuse._Scan,
    instead_of(any_storage_has_room, "_has_room", "rule of planning: a storage has room", OFFERS),
)
def size_of_free_storages_is_ignored(self: reuse._Scan, life: Lifetime) -> reuse.Free | None:
    """A result takes over any storage that is free, also one that is too small."""
    return self.free.pop(0) if self.free else None
