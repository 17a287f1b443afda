"""Further candidates of reinplacing: into any operand, or the input that a result is copied to.

A call on copies (`on_copies`) is not a functional form of an op, but it can be in place, too.

The epilogue copies a result into an input. The result is live until then, so it is best computed in
that input: by an in-place op, by an `out=`, or by a `copy_` that comes earlier.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.operator_forms import (
    SCATTERS,
    aten,
    bind,
    facts,
    is_pointwise,
    out_form,
    unbind,
    writes,
)
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.candidates import Candidate, How, Slot, candidates, slots_of
from aliasproof.reference_pass.liveness import Liveness


def all_candidates(node: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
    """The possible rewrites of a node, the best first: into its operands, or into an input."""
    op, own = node.target, list(candidates(node, liveness))
    if op is operator.getitem:
        yield from _into_input(node, liveness)
    elif op is on_copies:
        yield from _called_on_copies(node, liveness)
    if not isinstance(op, OpOverload) or writes(op) or node in liveness.views or op in SCATTERS:
        yield from own
        return
    into_input = list(_into_input(node, liveness))
    inputs = {storage_of(candidate.slots[0].written) for candidate in into_input}
    same: list[Candidate] = []
    others: list[Candidate] = []
    # In order of preference. A rewrite into the first operand gives the plainest graph.
    for candidate in (*own, *_out(node, op, liveness)):
        is_same = any(storage_of(slot.written) in inputs for slot in candidate.slots)
        (same if is_same or candidate.how is How.REDUNDANT else others).append(candidate)
    yield from same
    if liveness.position[node] + 1 < liveness.epilogue:
        yield from into_input
        yield from others
    else:  # the epilogue comes next, so a result in another operand is not live for longer
        yield from others
        yield from into_input


def _called_on_copies(node: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
    """The mutating operator itself, in place of a call of it on copies."""
    op, *args = node.args
    assert isinstance(op, OpOverload)
    if "layouts" in node.kwargs:
        return  # its operands do not have the layouts that it needs, or overlap
    given = bind(op, tuple(args), node.kwargs)
    # Here the mutating op has the same arguments as the node, not those of a functional form.
    slots = slots_of(node, [given.get(name) for name in facts(op).writes], op)
    if slots:
        yield Candidate(node, How.IN_PLACE, op, tuple(args), node.kwargs, slots, liveness)


def _into_input(node: fx.Node, liveness: Liveness) -> Iterator[Candidate]:
    """The result, computed in the input that the epilogue copies it to."""
    op, value = node.target, node.meta["val"]
    for copy in node.users:
        if copy.target is not aten.copy_.default or copy.args[1] is not node:
            continue
        destination = copy.args[0]
        assert isinstance(destination, fx.Node)
        # The destination is a view of the input that is made only in the epilogue.
        if liveness.position[destination] > liveness.position[node]:
            continue
        slots = (Slot(node, value, destination, destination.meta["val"]),)
        if (
            isinstance(op, OpOverload)
            and is_pointwise(op)
            and (form := kernel_into(op)) is not None
        ):
            given = bind(op, node.args, node.kwargs) | {facts(form).outs[0]: destination}
            yield Candidate(node, How.OUT, form, *unbind(form, given), slots, liveness)
        copied = (destination, node)
        yield Candidate(node, How.COPIED, aten.copy_.default, copied, {}, slots, liveness)


def _out(node: fx.Node, op: OpOverload, liveness: Liveness) -> Iterator[Candidate]:
    """The `out=` form, into any operand: a pointwise op reads each element before it writes it."""
    form = kernel_into(op) if is_pointwise(op) else None
    if form is None or not isinstance(node.meta["val"], torch.Tensor):
        return
    given = bind(op, node.args, node.kwargs)
    operands = [argument for argument in given.values() if isinstance(argument, fx.Node)]
    # The in-place form has tried the first operand; a repeated operand is tried once.
    is_first_tried = liveness.semantics.in_place_form(node) is not None
    for operand in dict.fromkeys(operands[1:] if is_first_tried else operands):
        if not isinstance(operand.meta["val"], torch.Tensor):
            continue
        args, kwargs = unbind(form, given | {facts(form).outs[0]: operand})
        slots = (Slot(node, node.meta["val"], operand, operand.meta["val"]),)
        yield Candidate(node, How.OUT, form, args, kwargs, slots, liveness)


@functools.cache
def kernel_into(op: OpOverload) -> OpOverload | None:
    """The operator that writes what `op` computes to an `out=`, and to nothing else.

    A generated `out=` form computes a new tensor and copies it, which saves nothing. Random numbers
    are drawn in memory order. A loss first resizes its `out=` to the losses that it reduces
    (aten/src/ATen/native/Loss.cpp), so it would write past a part of a storage.
    """
    if facts(op).random or "reduction" in facts(op).names:
        return None
    form = out_form(op)
    return None if form is None or torch.Tag.generated in form.tags else form
