"""Reinplacing: mutation put back where it is safe, to save memory.

One walk over the graph, in order. For each functional op there are candidates: to write its result
into its first operand, or into another one if it commutes or has an `out=` form; for a scatter, to
store its source straight into its base. The first candidate that meets all `CONDITIONS` is done at
once, so that later decisions see the graph as it is by then. What that turns out to cost later is
looked at once more in `planning`.

Differences to `torch.fx.passes.reinplace.reinplace`, whose docstring is the specification:

- Memory is reasoned about in bytes. Two slices of one base that do not overlap do not hinder each
  other.
- A scatter reads its base only outside of what it stores over. That one fact is step (2c): a write
  through a view is safe if all that follows is a scatter over these bytes, whatever its source; and
  at the scatter itself, if the source lies where it would be stored, nothing is left to do (5).
- The caller reads the inputs after the graph has ended. That is step (1b), and the optimisation
  noted there comes for free: a `copy_` into the input stores over what was there, so nobody reads
  it.
- What is not in place is recorded with the condition that forbids it, what is with the way in which
  it is (`decisions`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from reference_pass.alias_analysis import fake_mode, on_fakes, same_numbers, storage_of
from reference_pass.conditions import (
    CONDITIONS,
    Candidate,
    Condition,
    How,
    Slot,
    no_later_use,
    no_new_alias,
)
from reference_pass.exceptions import Refused
from reference_pass.functionalize import has_effect
from reference_pass.liveness import Liveness, stored_over
from reference_pass.metadata import note_value, set_value, update_metadata
from reference_pass.operator_forms import (
    EPILOGUE,
    SCATTERS,
    aten,
    bind,
    facts,
    in_place_form,
    is_commutative,
    is_pointwise,
    on_copies,
    out_form,
    stores_through,
    unbind,
    writes,
)
from reference_pass.planning import Regrets, Walk, best_walk


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about a node: how it is in place, or None.

    For each candidate that was refused: how it would have been, the name of the condition, and the
    reason.
    """

    node: str
    op: str
    how: How | None
    refused: tuple[tuple[How, str, str], ...]


def reinplace(
    graph_module: fx.GraphModule, *sample_args: object, conditions: Sequence[Condition] = CONDITIONS
) -> fx.GraphModule:
    """Turn functional ops of a functional ATen graph into in-place ones. Changes the graph module and returns it.

    Sample arguments tell which inputs share storage; without them, the metadata of the placeholders
    does. The decisions are left in `graph_module.meta["reinplace"]`. Raises `Refused` if the graph
    mutates anything but its inputs at its end.
    """
    update_metadata(graph_module, *sample_args)
    _require_functional(graph_module.graph)
    graph_module.graph.eliminate_dead_code(has_effect)  # what nobody needs is no read
    mode = fake_mode(graph_module, sample_args)
    with on_fakes(mode):
        best = best_walk(
            graph_module.graph,
            lambda graph, kept: _Reinplacing(graph, mode, conditions, kept).run(),
        )
    graph_module.graph = best.graph  # which compiles it anew
    graph_module.meta["reinplace"] = best.decisions
    return graph_module


def decisions(graph_module: fx.GraphModule) -> tuple[Decision, ...]:
    """What `reinplace` decided about each node that could have been in place."""
    found: tuple[Decision, ...] = graph_module.meta.get("reinplace", ())
    return found


def _require_functional(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if writes(node.target) and node.target not in EPILOGUE:
            raise Refused(
                f"{node.format_node()} writes to its operand: functionalize the graph first"
            )


class _Reinplacing:
    def __init__(
        self, graph: fx.Graph, mode: Any, conditions: Sequence[Condition], kept: frozenset[str]
    ) -> None:
        self.graph = graph
        self.mode = mode
        self.conditions = conditions
        self.kept = kept
        self.liveness = Liveness(graph, mode)
        self.regrets = Regrets(self.liveness)

    def run(self) -> Walk:
        decided = []
        for node in list(self.graph.nodes):
            if node.op != "call_function" or (not node.users and node.target is not on_copies):
                continue
            refused, barred, done, op = (
                [],
                [],
                None,
                str(node.args[0] if node.target is on_copies else node.target),
            )
            for candidate in self._candidates(node):
                broken = self._broken(candidate)
                if broken is None:
                    self._apply(candidate)
                    done = candidate.how
                    break
                refused.append((candidate.how, *broken))
                if broken[0] in (no_later_use.__name__, no_new_alias.__name__):
                    barred += [slot.destination for slot in candidate.slots]
            for destination in barred if done is None else []:
                self.regrets.look_for(destination)
            if done is not None or refused:
                decided.append(Decision(node.name, op, done, tuple(refused)))
        self._drop_self_copies()
        self.graph.eliminate_dead_code(has_effect)
        return Walk(self.graph, tuple(self.regrets.found), tuple(decided))

    def _broken(self, candidate: Candidate) -> tuple[str, str] | None:
        """The name of the first condition that a candidate does not meet, with the reason."""
        if candidate.node.name in self.kept and candidate.how not in (How.REDUNDANT, How.SCATTER):
            return "plan", "more is in place later if this is not"
        for condition in self.conditions:
            try:
                reason = condition(candidate)
            except GuardOnDataDependentSymNode as error:
                reason = f"it goes by a size that depends on numbers: {error.cond}"
            if reason is not None:
                return condition.__name__, reason
        return None

    # What could be done. --------------------------------------------------------------------------

    def _candidates(self, node: fx.Node) -> Iterator[Candidate]:
        op = node.target
        if op is on_copies:
            yield from self._called_on_copies(node)
        elif not isinstance(op, OpOverload) or writes(op) or node in self.liveness.views:
            return
        elif op in SCATTERS:
            yield from self._scatter(node, op)
        else:
            if op is aten.copy.default:
                yield from self._copy(node, op)
            form = in_place_form(op)
            if form is not None:
                yield from self._in_place(node, op, form)
            if isinstance(node.meta["val"], torch.Tensor) and is_pointwise(op):
                yield from self._out(node, op, is_first_tried=form is not None)

    def _scatter(self, node: fx.Node, op: OpOverload) -> Iterator[Candidate]:
        """(3a) `view(base, args).copy_(source)`, or nothing if the source lies there already."""
        given, shown = bind(op, node.args, node.kwargs), stored_over(node)
        base, source = given["self"], given["src"]
        slots = (Slot(node, node.meta["val"], base, shown),)
        if storage_of(source.meta["val"]) == storage_of(shown):
            yield Candidate(node, How.REDUNDANT, op, node.args, node.kwargs, slots, self.liveness)
        yield Candidate(node, How.SCATTER, op, node.args, node.kwargs, slots, self.liveness)

    def _copy(self, node: fx.Node, op: OpOverload) -> Iterator[Candidate]:
        """(5) Nothing, if the source lies where it would be copied to."""
        place = bind(op, node.args, node.kwargs)["self"]
        slots = (Slot(node, node.meta["val"], place, place.meta["val"]),)
        yield Candidate(node, How.REDUNDANT, op, node.args, node.kwargs, slots, self.liveness)

    def _in_place(self, node: fx.Node, op: OpOverload, form: OpOverload) -> Iterator[Candidate]:
        """(3b) The in-place form, on the first operand or, if it commutes, on the second; or together with a cast."""
        given = bind(op, node.args, node.kwargs)
        slots = self._slots(
            node,
            [given[each] for each in facts(form).names if each in facts(form).writes],
            given,
            form,
        )
        if slots:
            yield Candidate(node, How.IN_PLACE, form, node.args, node.kwargs, slots, self.liveness)
        if is_commutative(op, given):
            args, kwargs = unbind(form, given | {"self": given["other"], "other": given["self"]})
            other = given["other"]
            slots = (Slot(node, node.meta["val"], other, other.meta["val"]),)
            yield Candidate(node, How.SWAPPED, form, args, kwargs, slots, self.liveness)
        cast = _cast_back(node, given)
        if cast is not None:
            own = given[facts(op).names[0]]
            slots = (Slot(cast, cast.meta["val"], own, own.meta["val"]),)
            yield Candidate(node, How.CAST_BACK, form, node.args, node.kwargs, slots, self.liveness)

    def _out(self, node: fx.Node, op: OpOverload, *, is_first_tried: bool) -> Iterator[Candidate]:
        """The `out=` form, into any operand: each element is read before it is written."""
        form = out_form(op)
        if (
            form is None or torch.Tag.generated in form.tags
        ):  # generated ones compute elsewhere and copy
            return
        given = bind(op, node.args, node.kwargs)
        operands = [each for each in given.values() if isinstance(each, fx.Node)]
        for operand in dict.fromkeys(operands[1:] if is_first_tried else operands):
            if not _is_tensor(operand):
                continue
            args, kwargs = unbind(form, given | {facts(form).outs[0]: operand})
            slots = (Slot(node, node.meta["val"], operand, operand.meta["val"]),)
            yield Candidate(node, How.OUT, form, args, kwargs, slots, self.liveness)

    def _called_on_copies(self, node: fx.Node) -> Iterator[Candidate]:
        op = node.args[0]
        assert isinstance(op, OpOverload)
        given = bind(op, node.args[1:], node.kwargs)
        slots = self._slots(node, [given.get(each) for each in facts(op).writes], given, op)
        if slots:
            yield Candidate(
                node, How.IN_PLACE, op, node.args[1:], node.kwargs, slots, self.liveness
            )

    def _slots(
        self, node: fx.Node, written: list[Any], given: dict[str, Any], form: OpOverload
    ) -> tuple[Slot, ...]:
        """One slot for each tensor that the mutating form writes; none if it cannot be told which result is which."""
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            (own,) = written
            return (Slot(node, value, own, own.meta["val"]),) if isinstance(own, fx.Node) else ()
        picked = _picked(node)
        if picked is None:
            return ()
        fresh = len(facts(form).fresh)
        if isinstance(value, list):  # a single list of tensors
            return _list_slots(picked, value, written[0])
        slots: list[Slot] = []
        for index, own in enumerate(written, fresh):
            result = picked.get(index)
            if own is None:
                continue
            if isinstance(own, (list, tuple)):
                inner = {} if result is None else _picked(result)
                found = () if inner is None else _list_slots(inner, value[index], own)
                if len(found) != len(own):
                    return ()
                slots.extend(found)
            elif isinstance(own, fx.Node) and isinstance(own.meta["val"], torch.Tensor):
                slots.append(Slot(result, value[index], own, own.meta["val"]))
            else:
                return ()
        return tuple(slots)

    # Doing it. ------------------------------------------------------------------------------------

    def _apply(self, candidate: Candidate) -> None:
        node = candidate.node
        if candidate.how in (How.REDUNDANT, How.SCATTER):
            (slot,) = candidate.slots
            if candidate.how is How.SCATTER:
                self._store(node)
            self.liveness.replace(node, slot.destination, slot.value)
            self._erase(node)
            return
        was_tuple = isinstance(node.meta["val"], tuple)
        was_copies = node.target is on_copies
        node.target, node.args, node.kwargs = candidate.op, candidate.args, candidate.kwargs
        for slot in candidate.slots:
            self.regrets.note(slot.destination, node)
            if slot.result is not None:
                self.liveness.replace(slot.result, slot.destination, slot.value)  # (4)
        self._set_value(candidate)
        if was_tuple or was_copies:
            self._renumber(node, candidate.op)
        for user in list(node.users):  # what picked a result out of a list
            if user.target is operator.getitem and not user.users:
                self._erase(user)
        for slot in candidate.slots:
            if (
                slot.result is not None
                and slot.result is not node
                and slot.result.target is not operator.getitem
            ):
                self._erase(slot.result)  # the cast

    def _set_value(self, candidate: Candidate) -> None:
        node, returns = candidate.node, candidate.op._schema.returns
        if len(returns) == len(candidate.slots) == 1 and not facts(candidate.op).fresh:
            (slot,) = candidate.slots
            note_value(
                node, slot.destination.meta["val"]
            )  # it hands back what it writes: there is no need to run it
        else:
            set_value(node, self.mode)

    def _store(self, node: fx.Node) -> None:
        """(3a) A scatter as a view and a copy_."""
        assert isinstance(node.target, OpOverload)
        with self.graph.inserting_before(node):
            view = self._new(*stores_through(node))
            self._new(aten.copy_.default, (view, bind(node.target, node.args, node.kwargs)["src"]))

    def _new(self, op: OpOverload, args: tuple[Any, ...]) -> fx.Node:
        new = self.graph.create_node("call_function", op, args, name=op.overloadpacket.__name__)
        if op is aten.copy_.default:
            note_value(new, args[0].meta["val"])  # what it hands back
        else:
            set_value(new, self.mode)
            self.liveness.views.add(new)
        self.liveness.position[new] = self.liveness.position[new.next]
        return new

    def _renumber(self, node: fx.Node, op: OpOverload) -> None:
        """A mutating form does not return what it wrote, so what is left of its results may stand elsewhere."""
        fresh = facts(op).fresh
        single = len(op._schema.returns) == 1
        for user in list(node.users):
            if user.target is not operator.getitem or user.args[1] >= len(fresh):  # type: ignore[operator]
                continue
            if single:
                self.liveness.replace(user, node, user.meta["val"])
                self._erase(user)
            else:
                user.args = (node, fresh[user.args[1]])  # type: ignore[index]
                self.liveness.follow([user])

    def _erase(self, node: fx.Node) -> None:
        if not node.users:
            self.graph.erase_node(node)

    def _drop_self_copies(self) -> None:
        """(5) A copy_ of what lies there already does nothing."""
        for node in list(self.graph.nodes):
            if node.target is not aten.copy_.default:
                continue
            destination, source = node.args[:2]
            if not (isinstance(destination, fx.Node) and isinstance(source, fx.Node)):
                continue
            if same_numbers(destination.meta["val"], source.meta["val"]):
                node.replace_all_uses_with(destination)
                self.graph.erase_node(node)


def _picked(node: fx.Node) -> dict[int, fx.Node] | None:
    """The getitem users of a node, by index; None if it is used otherwise, or one result is picked twice."""
    picked: dict[int, fx.Node] = {}
    for user in node.users:
        if user.target is not operator.getitem or user.args[1] in picked:
            return None
        picked[user.args[1]] = user  # type: ignore[index]
    return picked


def _list_slots(
    picked: dict[int, fx.Node], values: Sequence[torch.Tensor], written: Any
) -> tuple[Slot, ...]:
    if not isinstance(written, (list, tuple)) or not all(
        isinstance(each, fx.Node) for each in written
    ):
        return ()
    return tuple(
        Slot(picked.get(index), value, own, own.meta["val"])
        for index, (value, own) in enumerate(zip(values, written, strict=True))
    )


def _cast_back(node: fx.Node, given: dict[str, Any]) -> fx.Node | None:
    """(1a) The one user of a node, if that casts it to the dtype of the first operand, as functionalization emits it."""
    own = next(iter(given.values()), None)
    if (
        len(node.users) != 1
        or not isinstance(own, fx.Node)
        or not isinstance(node.meta["val"], torch.Tensor)
    ):
        return None
    (user,) = node.users
    if (
        user.target is not aten._to_copy.default
        or user.args[0] is not node
        or set(user.kwargs) != {"dtype"}
    ):
        return None
    value, dtype = node.meta["val"], own.meta["val"].dtype
    casts = (
        user.kwargs["dtype"] == dtype
        and torch.can_cast(value.dtype, dtype)
        and value.dtype != dtype
    )
    casts = (
        casts and value.dtype.is_complex == dtype.is_complex
    )  # there is no abs_ of complex numbers
    assert isinstance(node.target, OpOverload)
    return user if casts and is_pointwise(node.target) else None


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, fx.Node) and isinstance(argument.meta["val"], torch.Tensor)
