"""The environment of the walk: what each value of the program is in the new graph.

The first chapter keeps a `View` for each node. That is wrong for a call that returns several
tensors, and for one that changes what a tensor object shows (`t_`), because then all nodes that are
this object show it. So the walk keeps a `FunctionalView` for each tensor object, which is one of
the fakes of the alias analysis. All other values (sizes, scalars) never change: for these it keeps
the node of the new graph.

This file says how an argument is looked up, how a result is defined, and how a storage starts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from aliasproof.reference_pass.alias_analysis import Analysis, Effect
from aliasproof.reference_pass.bases import (
    BaseKind,
    StorageUses,
    base_of_inputs,
    base_of_result,
)
from aliasproof.reference_pass.calls.copied_operands import note_strides
from aliasproof.reference_pass.calls.emission import Emitter, clear_lazy_bits
from aliasproof.reference_pass.calls.nested import on_tensors, on_values, tensors_in
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.calls.regions import Size, known
from aliasproof.reference_pass.calls.storages import Geometry, storage_of
from aliasproof.reference_pass.flattening import flatten, view_of_geometry
from aliasproof.reference_pass.functional_storage import FunctionalStorage, FunctionalView
from aliasproof.reference_pass.rules import Rules
from aliasproof.reference_pass.semantics import never


@dataclass(frozen=True, slots=True)
class InEager:
    """How calls are emitted that depend on more than the values of their operands.

    By default, no call does. The folder `eager` says which do in torch.
    """

    # Emits the equivalent of a call, and returns True; returns False for a call that needs only its
    # operands (`operand`).
    call: Callable[[Environment, fx.Node, Effect], bool] = never

    # (the environment, a view, a captured call) -> the value of the view, as the call needs it; by
    # default, whatever its strides.
    operand: Callable[[Environment, FunctionalView, fx.Node], fx.Node] = lambda env, view, call: (
        view.storage.read(view)
    )


@dataclass(slots=True)
class Environment:
    """The state of the walk: what each value of the program is in the new graph.

    `storages` and `nbytes` (the current size in eager) are keyed by the index of a storage in the
    analysis. `views`, `inputs` and `at_start` are keyed by the identity of a tensor object: the
    view that it is now, the node of the new graph if it is an input, and the view that this input
    was before the program changed its metadata. `plain` has the values that contain no tensor, by
    node of the captured graph. `read` has the strides in eager of the operands that were read for
    the next call, by node of the new graph.
    """

    analysis: Analysis
    uses: StorageUses
    rules: Rules
    emit: Emitter
    nbytes: dict[int, Size]
    storages: dict[int, FunctionalStorage] = field(default_factory=dict)
    views: dict[int, FunctionalView] = field(default_factory=dict)
    inputs: dict[int, fx.Node] = field(default_factory=dict)
    at_start: dict[int, FunctionalView] = field(default_factory=dict)
    plain: dict[fx.Node, Any] = field(default_factory=dict)
    in_eager: InEager = InEager()
    read: dict[fx.Node, Sequence[Size]] = field(default_factory=dict)

    # --- arguments --------------------------------------------------------------------------------
    #
    # An argument of a call is a node of the captured graph, or a nesting of nodes. Each node has a
    # value on fakes, and each tensor in that value is read through its view.

    def arguments(self, given: Any, call: fx.Node | None = None) -> Any:
        """Arguments in the new graph; a captured `call` gets them as it needs them (`InEager`)."""

        def argument(node: fx.Node) -> Any:
            if node in self.plain:
                return self.plain[node]
            return on_tensors(self.shown(node), lambda tensor: value(self.views[id(tensor)]))

        def value(view: FunctionalView) -> fx.Node:
            needed = self.in_eager.operand
            return view.storage.read(view) if call is None else needed(self, view, call)

        return on_values(given, argument)

    def note_operand_strides(self, new: fx.Node) -> fx.Node:
        """Note the eager strides of the operands of a new call, for the invariants; returns it."""
        read, self.read = self.read, {}
        note_strides(new, read.get)
        return new

    def shown(self, node: Any) -> Any:
        """The value of a node of the captured graph, on fakes."""
        return self.analysis.effects[node].value

    def views_of(self, node: Any) -> list[FunctionalView]:
        """The view of each tensor in a node's value."""
        return [self.views[id(tensor)] for tensor in tensors_in(self.shown(node))]

    def operand_in(self, node: fx.Node, storage: FunctionalStorage) -> FunctionalView | None:
        """The first operand of a call that is a view of this storage."""
        tensors = tensors_in([self.shown(operand) for operand in node.all_input_nodes])
        views = (self.views.get(id(tensor)) for tensor in tensors)
        return next((view for view in views if view and view.storage is storage), None)

    # --- results ----------------------------------------------------------------------------------
    #
    # A tensor that a call returns has a new storage, or is one more view of a known storage: a
    # custom op can return a new tensor together with a view of its operand.

    def define(self, node: fx.Node, effect: Effect, shown: Any, new: fx.Node) -> None:
        """Record a value of the new graph as the result of a call, also inside lists and tuples."""
        if isinstance(shown, torch.Tensor):
            if id(shown) in self.views:
                return
            geometry = effect.shows[id(shown)]
            storage = self.storages.get(geometry.storage)
            if storage is None:
                view = self.new_storage(self.in_result_layout(new, geometry), geometry)
            else:
                view = storage.find(geometry) or view_of_geometry(storage, geometry, storage.base)
                storage.register(view).note(new)
            self.views[id(shown)] = view
        elif isinstance(shown, (list, tuple)) and tensors_in(shown):
            for index, part in enumerate(shown):
                if tensors_in(part):
                    self.define(node, effect, part, self.emit.call(operator.getitem, new, index))
                elif part is not None:
                    self.plain.setdefault(node, new)  # a `getitem` of the program picks this part
        else:
            self.plain[node] = new

    def in_result_layout(self, value: fx.Node, geometry: Geometry) -> fx.Node:
        """The value, copied if its strides are not those required (an operand may have others)."""
        wanted = self.rules.result_strides(geometry)
        strides = zip(geometry.sizes, value.meta["val"].stride(), wanted, strict=True)
        # An empty tensor has strides too, and a view of it as another dtype depends on them.
        if all(known(size == 1) or known(one == other) for size, one, other in strides):
            return value
        return self.emit.lay_out(value, geometry.sizes, wanted)

    def copy_if_on(self, value: fx.Node, storages: Collection[int]) -> fx.Node:
        """The value, or a copy of it if it is a view of one of these storages of the new graph."""
        if storage_of(value.meta["val"]) in storages:
            return self.emit.call(aten.clone.default, value)
        return value

    # --- new storages -----------------------------------------------------------------------------
    #
    # `bases.py` chooses the base. The inputs that share a storage are a group. In a constant
    # storage each input keeps its value. In any other storage each input is a view of the base, and
    # the input itself is the first value of that view.

    def input_storage(self, group: Sequence[tuple[fx.Node, Geometry, int]]) -> None:
        """A storage of inputs, given the node, the geometry and the identity of each of them."""
        geometries = [geometry for _, geometry, _ in group]
        kind, index = base_of_inputs(self.uses, geometries, self.rules.is_base)
        origin, geometry, _ = group[index]
        storage = FunctionalStorage(self.emit, self.rules, kind, origin)
        self.storages[geometry.storage] = storage
        if kind is BaseKind.FLATTENED:
            flatten(storage, origin)
        else:
            plain = geometry.plain if kind is BaseKind.TENSOR else geometry
            storage.base = FunctionalView(storage, plain, value=origin)
            if plain is not geometry:
                value = clear_lazy_bits(origin, self.emit.view)
                storage.base.note(self.in_result_layout(value, plain))
        for node, geometry, identity in group:
            view = storage.find(geometry)
            if view is None:
                if kind is BaseKind.CONSTANT:
                    view = FunctionalView(storage, geometry)
                else:
                    view = view_of_geometry(storage, geometry, storage.base)
                storage.register(view).note(node)
            self.views[identity] = self.at_start[identity] = view

    # The program makes a storage together with a tensor. If the storage is flattened, its base is
    # made in one of two ways. If the new value has eager's offset, its storage has all bytes of
    # eager's, and the program sees no bytes around the value, the base is the storage of the value.
    # Otherwise the base is made first, and the value is written to it.

    def new_storage(self, value: fx.Node, geometry: Geometry) -> FunctionalView:
        """Add a storage that the program makes. Returns the view of the tensor that made it."""
        index, tensor = geometry.storage, value.meta["val"]
        keeps_offset = known(tensor.storage_offset() == geometry.offset)
        kind = base_of_result(self.uses, geometry, self.rules.is_base, keeps_offset=keeps_offset)
        storage = FunctionalStorage(self.emit, self.rules, kind, origin=None)
        self.storages[index] = storage
        if kind is not BaseKind.FLATTENED:
            storage.base = FunctionalView(storage, geometry, value=value)
            return storage.base
        has_all = known(tensor.untyped_storage().nbytes() >= self.nbytes[index])
        if keeps_offset and has_all and index not in self.uses.copied_whole:
            flatten(storage, value)
            view = storage.register(view_of_geometry(storage, geometry, storage.base))
            view.note(value)
        else:
            storage.base = FunctionalView(storage)
            storage.base.note(self._contents_before(index, value))
            view = storage.register(view_of_geometry(storage, geometry, storage.base))
            storage.write(view, value)
        return view

    def _contents_before(self, index: int, value: fx.Node) -> fx.Node:
        """The contents of a new storage before its tensor is written: those of a copy, or zeros."""
        tensor = value.meta["val"]
        if index in self.uses.copied_whole:
            original = self.storages[self.uses.copied_whole[index]]
            contents = original.read(original.base)
            # The write is a scatter into these contents, which copies them. For an empty tensor
            # there is no write.
            if known(tensor.numel() == 0):
                return self.emit.call(aten.clone.default, contents)
            return contents
        count = self.nbytes[index] // tensor.element_size()
        return self.emit.call(aten.new_zeros.default, value, [count])
