"""Functionalization: the same program without mutation.

The first chapter has this walk (`without_mutation`) for calls that do one thing. That is wrong
here, because a call can change metadata, write, and return views at once. The rules are the same:

- **Reading** a view regenerates it from the base, by its chain of view ops, unless its value is
  known.
- **Writing** through a view computes the new contents as a new value, *queued* with the view.
- When another view of that storage is read, the queue is *applied* (`functional_storage`). Mutation
  that the caller can see is restored at the very end, in the *epilogue*.

Two choices need to know the whole program, so the alias analysis (`alias_analysis.analyse`) runs
first: whether a storage is written at all, and what its base is (`bases`). A base contains the
bytes of the memory: the lazy conjugate and negative bits of an input are cleared, and a step of the
chain from the base to the view sets them again. The decisions of all parts are one table (`rules`).

Modelled on `torch.func.functionalize` (`aten/src/ATen/FunctionalStorageImpl.h`). Differences:
inputs may share storage in any way; identity, strides and offsets of outputs are as in eager; an
element that one write stores several times is stored once; operators without a functional form are
called on copies; metadata mutation of inputs is part of the epilogue.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.alias_analysis import Analysis, Effect
from aliasproof.reference_pass.bases import BaseKind, storage_uses
from aliasproof.reference_pass.calls.emission import Emitter
from aliasproof.reference_pass.calls.fake_inputs import attribute, fake_inputs, fake_value
from aliasproof.reference_pass.calls.fake_tensors import on_fakes
from aliasproof.reference_pass.calls.graphs import erase_dead, with_graph
from aliasproof.reference_pass.calls.nested import on_values, tensors_in
from aliasproof.reference_pass.calls.operator_forms import aten, bind, facts
from aliasproof.reference_pass.calls.regions import Size, overlaps_itself
from aliasproof.reference_pass.calls.storages import Geometry
from aliasproof.reference_pass.calls.view_forms import ViewCall, mutates_only_metadata, view_form
from aliasproof.reference_pass.environment import Environment, InEager
from aliasproof.reference_pass.epilogue import finish
from aliasproof.reference_pass.flattening import resize, view_of_geometry
from aliasproof.reference_pass.functional_calls import functional_call_of
from aliasproof.reference_pass.functional_storage import FunctionalView
from aliasproof.reference_pass.rules import RULES, Rules
from aliasproof.reference_pass.semantics import NAIVE, Semantics
from aliasproof.reference_pass.views import view_steps

Views = Literal["alias", "copy"]


def functional_module(
    captured: fx.GraphModule,
    analysis: Analysis,
    inputs: Sequence[object],
    semantics: Semantics = NAIVE,
    rules: Rules = RULES,
    views: Views = "alias",
    in_eager: InEager = InEager(),  # noqa: B008 - it is frozen
) -> fx.GraphModule:
    """A graph of ATen calls as a graph module that mutates only its inputs, at its end.

    `analysis` is that of the graph for these inputs. `in_eager` emits the calls that depend on more
    than values. `views="copy"` emits view-copy ops, so that in the graph nothing aliases, with two
    exceptions: at its end, where eager's outputs share memory, and at its start, where a view copy
    cannot reach the memory around an input (the input has a lazy conjugate or negative bit, or its
    storage is not a whole number of its elements). Raises `Refused`, with a reason, for a program
    that it cannot compile correctly.
    """
    emit = Emitter(fx.Graph(), semantics, views == "copy")
    nodes = list(captured.graph.nodes)
    with on_fakes(analysis.mode):
        uses = storage_uses(nodes[-1], analysis, emit.copies, rules.view_steps, semantics)
        env = Environment(analysis, uses, rules, emit, dict(analysis.nbytes), in_eager=in_eager)
        # The captured graph is walked once, in its order: the inputs, the calls, the epilogue.
        _inputs(env, nodes, inputs)
        for node in nodes:
            if node.op == "call_function":
                with emit.on_behalf_of(node):
                    _call(env, node, analysis.effects[node])
        finish(env, nodes[-1])
    functional = with_graph(captured, emit.graph)
    erase_dead(functional.graph)  # such as an update that is overwritten before it is read
    return functional


# --- the walk -------------------------------------------------------------------------------------
#
# Inputs come first: placeholders, and the attributes of the module. Those that share a storage are
# taken together, since they have one base.


def _inputs(env: Environment, nodes: list[fx.Node], sample_args: Sequence[object]) -> None:
    """Copy the inputs to the new graph, and make their storages."""
    mode = env.analysis.mode
    fakes = iter(fake_inputs(mode, sample_args))
    sharing: dict[int, list[tuple[fx.Node, Geometry, int]]] = {}
    for node in nodes:
        if node.op not in ("placeholder", "get_attr"):
            continue
        new = env.emit.graph.node_copy(node)
        if node.op == "placeholder":
            new.meta = {"val": next(fakes), "val_of": ()}
        else:
            new.meta = {"val": fake_value(mode, attribute(node)), "val_of": (node.target,)}
        effect = env.analysis.effects[node]
        if isinstance(effect.value, torch.Tensor):
            identity = id(effect.value)
            geometry = effect.shows[identity]
            sharing.setdefault(geometry.storage, []).append((new, geometry, identity))
            env.inputs[identity] = new
        else:
            env.plain[node] = new
    for group in sharing.values():
        env.input_storage(group)


# A call can do three things, in this order: change the metadata of an argument, write an argument,
# and return views. A call that does none of them is emitted unchanged. For a call that only returns
# views, nothing is emitted: the views are regenerated when they are read.


def _call(env: Environment, node: fx.Node, effect: Effect) -> None:
    """Walk one call of the program."""
    op = node.target
    if op is operator.getitem and tensors_in(effect.value):
        return  # the call that returned the tensor has defined it
    results = tensors_in(effect.value)
    is_known = all(effect.shows[id(tensor)].storage in env.storages for tensor in results)
    returns_views = bool(results) and is_known
    if not isinstance(op, OpOverload) or not (facts(op).writes or returns_views):
        functional_call_of(env, node, effect)
        return
    for identity, geometry in effect.mutated_metadata.items():
        _mutate_metadata(env, node, effect, identity, geometry)
    env.nbytes |= effect.resized
    if facts(op).writes and not mutates_only_metadata(op):
        functional_call_of(env, node, effect)
    before: list[tuple[Size, ...]] = []
    for tensor in results:
        geometry = effect.shows[id(tensor)]
        if id(tensor) not in env.views:
            operand = _operand(env, node, geometry)
            env.views[id(tensor)] = _view(env, node, op, operand, geometry, before)
        before.append(geometry.sizes)


# A view op is one or more steps from its operand (`views.VIEW_STEPS`). If there are no such steps,
# or none that can be written through, the view is reached by its geometry.


def _view(
    env: Environment,
    node: fx.Node,
    op: Any,
    operand: FunctionalView | None,
    geometry: Geometry,
    before: Sequence[tuple[Size, ...]] = (),
) -> FunctionalView:
    """The view of a geometry that a view op makes of its operand, if it has one.

    `before` are the sizes of the results that come before it.
    """
    storage = env.storages[geometry.storage]
    view, chain = storage.find(geometry), None
    if view is not None:
        return view
    if operand is not None:
        assert isinstance(node.target, OpOverload)
        given = on_values(bind(node.target, node.args, node.kwargs), env.plain.get)
        call = ViewCall(op, given, geometry.sizes, before, operand.shows.conj)
        chain = view_steps(call, env.rules.view_steps)
    if operand is None or chain is None:
        return storage.register(view_of_geometry(storage, geometry, operand or storage.base))
    view = operand
    for step, arguments in chain:
        view = view.through(step, *arguments)
    view.geometry = geometry
    return storage.register(view)


def _operand(env: Environment, node: fx.Node, geometry: Geometry) -> FunctionalView | None:
    """The operand through which a view of this geometry can be read and written, or None."""
    operand = env.operand_in(node, env.storages[geometry.storage])
    if operand is None:
        return None
    kind, seen = operand.storage.kind, operand.shows
    # The base of a flattened storage has bytes instead of bools (`flattening.flatten`).
    if kind is BaseKind.FLATTENED and torch.bool in (geometry.dtype, seen.dtype):
        return None
    # One write to such an operand changes several elements; in a functional value, only one.
    overlapping = overlaps_itself(seen.region)
    return None if overlapping and kind is not BaseKind.CONSTANT else operand


# --- metadata mutation ----------------------------------------------------------------------------
#
# `t_`, `set_` and `resize_` change which bytes a tensor object shows. In the environment the object
# becomes another view. For inputs, the epilogue repeats that at the end.


def _mutate_metadata(
    env: Environment, node: fx.Node, effect: Effect, identity: int, geometry: Geometry
) -> None:
    """Bind a tensor object to the view that it becomes by a call."""
    old = env.views[identity]
    if geometry.storage not in env.storages:
        # A new storage: its contents are undefined in eager.
        sizes, strides = list(geometry.sizes), list(geometry.strides)
        value = old.storage.read(old)
        empty = env.emit.call(aten.new_empty_strided.default, value, sizes, strides)
        env.views[identity] = env.new_storage(empty, geometry)
        return
    storage = env.storages[geometry.storage]
    if geometry.storage in effect.resized:
        resize(storage, effect.resized[geometry.storage])
    operand = old if old.storage is storage else None
    env.views[identity] = _view(env, node, view_form(node.target), operand, geometry)
