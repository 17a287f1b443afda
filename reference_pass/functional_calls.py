"""Calls in functional form.

A call that writes nothing is emitted unchanged, on the current values of its operands. A call that
writes is emitted as the functional form of its op (`add` for `add_`), and each result is written to
the view of the tensor that the program writes:

    x.add_(y)                  new = add(x, y), which is written to the view of x

The first chapter takes `functional_form` of one tensor, or refuses. That is too little, because ops
write to lists, to several tensors and to `out=`. Custom ops have no such form: these are called on
copies. `InEager.call` comes first, and handles the calls that need more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.alias_analysis import Effect
from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.nested import nodes_in
from aliasproof.reference_pass.calls.operator_forms import (
    WRITTEN_IN_PLACE,
    bind,
    facts,
    functional_call,
    unbind,
    writes,
)
from aliasproof.reference_pass.calls.regions import overlap
from aliasproof.reference_pass.calls.storages import operand_storages, written_tensors
from aliasproof.reference_pass.environment import Environment
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.functional_storage import FunctionalStorage, FunctionalView


def functional_call_of(env: Environment, node: fx.Node, effect: Effect) -> None:
    """Emit a call of the program: define its results, and write what it writes."""
    if env.in_eager.call(env, node, effect):
        return
    if not writes(node.target):
        _call_without_writes(env, node, effect)
        return
    call = WritingCall.of(env, node)
    refuse_two_writes(call)
    write_results(env, call, effect, compute_call(env, call))


# --- calls that write nothing ---------------------------------------------------------------------
#
# In the new graph an operand can have other strides than in eager, or another offset, or a storage
# of another size. Most ops do not depend on these. Those that do get eager's strides
# (`env.arguments`). `reshape` copies or not, depending on strides: where it copies in eager, it
# copies here (`env.copy_if_on`).


def _call_without_writes(env: Environment, node: fx.Node, effect: Effect) -> None:
    """Emit the same call on current values."""
    args, kwargs = env.arguments(node.args, node), env.arguments(node.kwargs, node)
    new = env.note_operand_strides(env.emit.call(node.target, *args, **kwargs))
    if isinstance(effect.value, torch.Tensor):
        new = env.copy_if_on(new, operand_storages(new))
    env.define(node, effect, effect.value, new)


# --- calls that write -----------------------------------------------------------------------------
#
# An op without a functional form is called on copies of what it writes (`on_copies`), which is a
# functional form of any op. The new contents come after the other results.


@dataclass(frozen=True, slots=True)
class WritingCall:
    """A captured call that writes: its op, its arguments by name, and the views that it writes."""

    node: fx.Node
    op: OpOverload
    given: dict[str, Any]
    views: list[FunctionalView]

    @classmethod
    def of(cls, env: Environment, node: fx.Node) -> WritingCall:
        """The call of a node."""
        assert isinstance(node.target, OpOverload)
        views = [env.views[id(tensor)] for tensor in written_tensors(node, env.shown)]
        return cls(node, node.target, bind(node.target, node.args, node.kwargs), views)

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the first tensor that is written: the call computes in it (`cumsum_`)."""
        return self.views[0].shows.dtype if self.views else None


def compute_call(env: Environment, call: WritingCall) -> fx.Node:
    """The result of a call in functional form, on current values."""
    op, given = call.op, call.given
    form = env.rules.functional_form(op)
    if form is None:
        return called_on_copies(env, call)
    first, old = facts(op).names[0], None
    if env.rules.overwrites(form) and facts(op).writes == (first,):
        old = call.views[0].storage.value_before_queue(call.views[0])
    if old is None:
        values = env.arguments(given, call.node)
    else:
        rest = {name: value for name, value in given.items() if name != first}
        values = {first: old, **env.arguments(rest, call.node)}
    args, kwargs = functional_call(op, form, values, call.dtype)
    new = env.note_operand_strides(env.emit.call(form, *args, **kwargs))
    new.meta[WRITTEN_IN_PLACE] = not facts(op).outs
    return new


def called_on_copies(env: Environment, call: WritingCall) -> fx.Node:
    """The call on copies of what it writes. Raises `Refused` if it reads that memory, too."""
    if read_overlaps(env, call):
        raise Refused(
            f"{call.op} reads memory that it writes, in an order that its schema does not state"
        )
    args, kwargs = unbind(call.op, env.arguments(call.given, call.node))
    return env.note_operand_strides(env.emit.call(on_copies, call.op, *args, **kwargs))


def write_results(env: Environment, call: WritingCall, effect: Effect, new: fx.Node) -> None:
    """Define the fresh results of a call, and write the others to the views that they overwrite."""
    several, fresh = len(call.op._schema.returns) > 1, facts(call.op).fresh
    returned = effect.value if several else (effect.value,)
    results = env.emit.results(new)
    for result, index in zip(results, fresh, strict=False):
        env.define(call.node, effect, returned[index], result)
    stores = zip(call.views, env.emit.contents(results[len(fresh) :]), strict=True)
    for view, value in sorted(stores, key=lambda store: has_lazy_bits(store[0])):
        view.storage.write(view, value)


def has_lazy_bits(view: FunctionalView) -> bool:
    """True if eager gives the kernel a copy, since the kernel does not support lazy bits.

    After the call, eager copies the result back (aten/src/ATen/native/MathBitsFallback.h).
    """
    return view.shows.conj or view.shows.neg


# --- calls that are refused -----------------------------------------------------------------------
#
# Two kinds of calls depend on the order in which a kernel reads and writes, which is undefined or
# unknown.


def refuse_two_writes(call: WritingCall) -> None:
    """Raise `Refused` if a call writes the same bytes through two arguments."""
    together: dict[FunctionalStorage, list[FunctionalView]] = {}
    for view in call.views:
        if has_lazy_bits(view):
            continue
        others = together.setdefault(view.storage, [])
        for other in others:
            if not may_overlap(view, other):
                continue
            if all(each.shows.region.fixed for each in (view, other)):
                raise Refused(
                    f"{call.op} writes the same memory through two arguments: undefined in eager"
                )
            raise Refused(
                f"whether {call.op} writes the same memory through two arguments depends on"
                " symbolic sizes; trace it with fixed sizes"
            )
        others.append(view)


def read_overlaps(env: Environment, call: WritingCall) -> bool:
    """True if a call reads bytes that it writes, through another argument."""
    read = [
        view
        for name, value in call.given.items()
        if name not in facts(call.op).writes
        for operand in nodes_in(value)
        for view in env.views_of(operand)
    ]
    return any(may_overlap(view, other) for view in call.views for other in read)


def may_overlap(one: FunctionalView, other: FunctionalView) -> bool:
    """True if two views may share a byte."""
    return one.storage is other.storage and overlap(one.shows.region, other.shows.region)
