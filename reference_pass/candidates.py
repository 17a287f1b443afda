"""Candidates of reinplacing: which node could be in place, in which way, and by which call.

A *candidate* describes a rewrite. Node `b = foo(a, args)` becomes `foo_(a, args)`, and all users of
`b` use `a`. The `conditions` decide whether that is safe. The first chapter has one `Candidate` per
node, for its first operand. That misses ops with several results, and casts back, because these
need another call (`How`). The step numbers are those of `torch.fx.passes.reinplace.reinplace`.
`planning/offers.py` has more candidates: into other operands (`mul(a, b)` if only `b` is
free), and into the input that a result is copied to.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.operand_reads import stored_over
from aliasproof.reference_pass.calls.operator_forms import (
    SCATTERS,
    aten,
    bind,
    facts,
    is_pointwise,
    writes,
)
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.liveness import Liveness


class How(Enum):
    """The way in which a candidate would be in place; the values are shown to users."""

    IN_PLACE = "in place"  # (3b) foo_(a, args)
    OUT = "into an operand"  # foo.out(a, args, out=a or one of args)
    CAST_BACK = "in place with its cast"  # a.ge_(b) for a.ge(b) and a cast to the dtype of a
    SCATTER = "into its base"  # (3a) view(a, args).copy_(b) for foo_scatter(a, b, args)
    COPIED = "copied to its input at once"  # copy_(x, b), which the epilogue would do later
    VIEW = "a view of its operand"  # select(a, args) for select_copy(a, args)
    TAKEN = "memory that is free"  # an uninitialised tensor, which another memory can be
    REDUNDANT = "redundant"  # (5) a scatter or copy whose source is at its destination already


@dataclass(frozen=True, slots=True)
class Slot:
    """One result, and its possible destination.

    `value` is the tensor that the result is now, `destination` the operand. `written` is the tensor
    that would be written: the operand, or the part of it that a scatter stores over. `result` is
    None if nothing uses the result.
    """

    result: fx.Node | None
    value: torch.Tensor
    destination: fx.Node
    written: torch.Tensor

    @classmethod
    def all_of(cls, result: fx.Node, destination: fx.Node) -> Slot:
        """A result that would be written over all of an operand."""
        return cls(result, result.meta["val"], destination, destination.meta["val"])


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that would be in place: how, by which call, and one slot per tensor written."""

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


def candidates(node: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
    """The possible rewrites of a node, the best first."""
    op = node.target
    if not isinstance(op, OpOverload) or writes(op) or node in liveness.views:
        return
    if op in SCATTERS:
        yield from _scatter(node, op, liveness)
    else:
        if op is aten.copy.default:  # (5) nothing, if the source is at its destination
            slots = (Slot.all_of(node, bind(op, node.args, node.kwargs)["self"]),)
            yield Candidate(node, How.REDUNDANT, op, node.args, node.kwargs, slots, liveness)
        form = liveness.semantics.in_place_form(node)
        if form is not None:
            yield from _in_place(node, op, form, liveness)


def _scatter(node: fx.Node, op: OpOverload, liveness: Liveness) -> Iterator[Candidate]:
    """(3a) `view(base, args).copy_(source)`; nothing, if the source is at its destination."""
    given, shown = bind(op, node.args, node.kwargs), stored_over(node)
    base, source = given["self"], given["src"]
    slots = (Slot(node, node.meta["val"], base, shown),)
    # On another storage the source cannot be at its destination, so that candidate is not offered.
    if storage_of(source.meta["val"]) == storage_of(shown):
        yield Candidate(node, How.REDUNDANT, op, node.args, node.kwargs, slots, liveness)
    yield Candidate(node, How.SCATTER, op, node.args, node.kwargs, slots, liveness)


def _in_place(
    node: fx.Node, op: OpOverload, form: OpOverload, liveness: Liveness
) -> Iterator[Candidate]:
    """(3b) The in-place form: on the first operand, or together with a cast."""
    given = bind(op, node.args, node.kwargs)
    # By position, since the forms may have other names for their arguments.
    pairs = zip(facts(op).names, facts(form).names, strict=True)
    slots = slots_of(node, [given[own] for own, name in pairs if name in facts(form).writes], form)
    if slots:
        yield Candidate(node, How.IN_PLACE, form, node.args, node.kwargs, slots, liveness)
    cast = _cast_back(node, given)
    if cast is not None:
        # The result is that of the cast, which is erased: the in-place kernel does the cast.
        slots = (Slot.all_of(cast, given[facts(op).names[0]]),)
        yield Candidate(node, How.CAST_BACK, form, node.args, node.kwargs, slots, liveness)


# --- which result goes where ----------------------------------------------------------------------


def slots_of(node: fx.Node, written: list[Any], form: OpOverload) -> tuple[Slot, ...]:
    """One slot per tensor that the mutating form writes; none if they cannot be matched."""
    value = node.meta["val"]
    # The functional form returns the fresh results first, then what the mutating form writes.
    into = [*(None for _ in facts(form).fresh), *written]
    return tuple(_nested_slots(node, value, into if isinstance(value, tuple) else written[0]) or ())


def _nested_slots(result: fx.Node | None, value: Any, into: Any) -> list[Slot] | None:
    """The slots of a result, which may be nested, in operands nested alike; None if not matched."""
    if into is None:  # a fresh result, or an optional argument that is not given
        return []
    if isinstance(value, torch.Tensor):
        is_node = isinstance(into, fx.Node)
        return [Slot(result, value, into, into.meta["val"])] if is_node else None
    # Users must pick the results one by one, or a single result could not be replaced.
    picked = {} if result is None else _picked(result)
    if picked is None or not isinstance(into, (list, tuple)):
        return None
    pairs = enumerate(zip(value, into, strict=True))
    found = [_nested_slots(picked.get(index), *pair) for index, pair in pairs]
    return None if None in found else [slot for slots in found for slot in slots or ()]


def _picked(node: fx.Node) -> dict[int, fx.Node] | None:
    """The getitem users of a node, by index.

    None if it has another user, or two users pick the same result.
    """
    picked: dict[int, fx.Node] = {}
    for user in node.users:
        if user.target is not operator.getitem or user.args[1] in picked:
            return None
        picked[user.args[1]] = user  # type: ignore[index]
    return picked


def _cast_back(node: fx.Node, given: dict[str, Any]) -> fx.Node | None:
    """(1a) The only user of a node, if it casts it to the dtype of the first operand; else None.

    Functionalization emits such a cast for an in-place op whose result has another dtype.
    """
    own, value = next(iter(given.values()), None), node.meta["val"]
    user = next(iter(node.users), None)
    # With a second user, the result before the cast would still be needed.
    if user is None or len(node.users) > 1 or user.target is not aten._to_copy.default:
        return None
    if not isinstance(own, fx.Node) or not isinstance(value, torch.Tensor):
        return None
    dtype = own.meta["val"].dtype
    # Functionalization in torch also states what does not change: `layout=torch.strided`.
    stays = {"layout": value.layout, "device": value.device, "memory_format": torch.preserve_format}
    allowed = {"dtype": dtype, **stays}
    is_cast = (
        user.kwargs.get("dtype") == dtype
        and all(not given or given == allowed.get(name) for name, given in user.kwargs.items())
        and torch.can_cast(value.dtype, dtype)
        and value.dtype != dtype
        # In place, ops such as abs refuse complex numbers.
        and value.dtype.is_complex == dtype.is_complex
    )
    assert isinstance(node.target, OpOverload)
    return user if is_cast and is_pointwise(node.target) else None
