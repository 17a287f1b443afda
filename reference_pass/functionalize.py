"""Functionalization: the same program without mutation.

A tensor is a *view* of a storage. What a storage holds is the value of its *base*; each other view
is reached from the base by a chain of view ops. The rules are three:

- **Reading** a view regenerates it from the base, by its chain of view ops, unless its value is
  known.
- **Writing** through a view is functional: the new numbers are computed as a new value and *queued*
  with the view.
- When another view of that storage is read, the queue is *applied*: each update goes up its chain
  by the inverses of the view ops (`views.INVERSES`) and makes a new value of the base.

So the program below on the left becomes the one on the right.

    b = a.view(4, 2)                b  = view(a, [4, 2])
    b.add_(1)                       b1 = add(b, 1)
    return a                        a1 = view(b1, [8])
                                    return a1

What the caller can see of mutation is put back at the very end, in the *epilogue*: `copy_` into
each input that was written; then views of inputs and of results that are returned are taken, so
that what shares memory in eager does so here; and where the program changed the metadata of an
input itself (`t_`, `set_`, `resize_`), that is done to it last.

Two choices need to know the whole program, so the alias analysis (`alias_analysis.analyse`) runs
first: whether a storage is written at all, and what its base is. Mostly the base is the input, or
the tensor that was made with the storage. Where that one does not show all bytes that are seen (two
inputs that share a storage, an `as_strided` beyond the tensor), or shows some twice, the base is
*flat*: the storage from its first to its last byte as a tensor of one dimension. A base holds what
memory holds: the lazy conjugate and negative bits of an input are taken off it, and are part of the
chain to the views.

Modelled on `torch.func.functionalize` (`aten/src/ATen/FunctionalStorageImpl.h`). Differences:
inputs may share storage in any way; identity, strides and offsets of outputs are as in eager; a
number stored several times in one place by one write is stored once; operators without a functional
form are called on copies; metadata mutation of inputs is part of the epilogue.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._pytree import tree_leaves

from reference_pass.alias_analysis import (
    Analysis,
    Effect,
    Geometry,
    analyse,
    operand_storages,
    storage_of,
    written_tensors,
)
from reference_pass.capture import SizeMode, capture
from reference_pass.emission import Emitter, contiguous_strides
from reference_pass.exceptions import Refused
from reference_pass.fake_execution import attribute, fake_inputs, fake_value, on_fakes
from reference_pass.nested import nodes_in, on_values, tensors_in
from reference_pass.operand_access import COPIES_STORAGE, overwrites
from reference_pass.operator_forms import (
    aten,
    bind,
    copy_form,
    facts,
    functional_call,
    functional_form,
    on_copies,
    view_form,
)
from reference_pass.regions import contains, is_dense, known, overlap, overlaps_itself, same_strides
from reference_pass.views import INVERSES, ViewStep, view_steps

Views = Literal["alias", "copy"]


def functionalize(
    function: Callable[..., Any],
    *sample_args: object,
    views: Views = "alias",
    sizes: SizeMode = "fixed",
) -> fx.GraphModule:
    """The function, or graph module, as a graph module that mutates nothing but its inputs, at its end.

    `views="copy"` emits view-copy ops only, so that nothing in the graph aliases but what must: at
    its end, where eager's outputs share memory, and at its start, where the memory around an input
    is not to be had as the input sees it (it has a lazy conjugate or negative bit, or its storage
    holds no whole number of its elements). `sizes="symbolic"` traces a function for all sizes, not
    those of the sample arguments alone. The sample arguments are not mutated. Raises `Refused` with
    a reason where it cannot be right.
    """
    if views not in ("alias", "copy"):
        raise Refused(f"views={views!r} is neither 'alias' nor 'copy'")
    captured = capture(function, sample_args, sizes)
    metas = [node.meta.get("val") for node in captured.graph.nodes if node.op == "placeholder"]
    inputs = metas if sizes == "symbolic" and captured is not function else sample_args
    if len(metas) != len(inputs):
        raise Refused(
            f"the graph takes {len(metas)} inputs, but {len(inputs)} sample arguments were given"
        )
    try:
        analysis = analyse(captured, inputs)
        _refuse_moved_twice(captured, analysis, sample_args)
        with on_fakes(analysis.mode):
            return _Functionalization(captured, analysis, views == "copy").run(inputs)
    except GuardOnDataDependentSymNode as error:
        raise Refused(
            f"a size depends on numbers, and what is done goes by it: {error.cond}"
        ) from error


# --- storages and views as the rewriting sees them ------------------------------------------------


@dataclass(slots=True, eq=False)
class FunctionalStorage:
    """One storage of the program: its base, what is queued, and how often it changed.

    `origin` is the input (a node of the new graph) that it came with, None if the program made it.
    It is `flat` if its base is all of it in one dimension, `constant` if it is never written and
    needs no base.
    """

    root: FunctionalView = field(init=False)
    origin: fx.Node | None
    queue: list[tuple[FunctionalView, fx.Node]] = field(default_factory=list)
    version: int = 0
    flat: bool = False
    constant: bool = False
    views: dict[object, FunctionalView] = field(
        default_factory=dict
    )  # by the key of their geometry


@dataclass(slots=True, eq=False)
class FunctionalView:
    """One way to see a storage: the base (no parent), or a step from a parent.

    `value` is what it held at `version`.
    """

    storage: FunctionalStorage
    geometry: Geometry | None = None
    parent: FunctionalView | None = None
    step: ViewStep | None = None
    value: fx.Node | None = None
    version: int = 0

    @property
    def current(self) -> fx.Node | None:
        """The value, if nothing was stored since."""
        return self.value if self.version == self.storage.version else None

    def hold(self, value: fx.Node) -> fx.Node:
        """Note the value at the storage's version."""
        self.value, self.version = value, self.storage.version
        return value


class _Functionalization:
    """One run: walks the captured graph and builds the new one."""

    def __init__(self, captured: fx.GraphModule, analysis: Analysis, copies: bool) -> None:
        self.captured = captured
        self.analysis = analysis
        self.graph = fx.Graph()
        self.emit = Emitter(self.graph, analysis.mode, copies)
        self.storages: dict[int, FunctionalStorage] = {}
        self.view_of: dict[
            int, FunctionalView
        ] = {}  # by identity of the tensor object in the analysis
        self.input_of: dict[int, fx.Node] = {}  # the same for inputs
        self.plain: dict[
            fx.Node, Any
        ] = {}  # values that are no tensors (symbols), by node of the captured graph
        self.view_at_start: dict[int, FunctionalView] = {}
        self.at_end: dict[FunctionalView, fx.Node] = {}
        self.anchored = self._find_anchored()
        self.copied_whole = self._find_copied_whole()
        self.returned_twice = self._find_returned_twice()

    def run(self, sample_args: Sequence[object]) -> fx.GraphModule:
        nodes = list(self.captured.graph.nodes)
        self._inputs(nodes, sample_args)
        for node in nodes:
            if node.op == "call_function":
                self._call(node, self.analysis.effects[node])
        self._finish(nodes[-1])
        module = fx.GraphModule(self.captured, self.graph)
        module.graph.eliminate_dead_code(has_effect)
        module.recompile()
        return module

    # Inputs. --------------------------------------------------------------------------------------

    def _inputs(self, nodes: list[fx.Node], sample_args: Sequence[object]) -> None:
        fakes = iter(fake_inputs(self.analysis.mode, sample_args))
        shown: dict[int, list[tuple[fx.Node, Geometry, int]]] = {}
        for node in nodes:
            if node.op not in ("placeholder", "get_attr"):
                continue
            effect = self.analysis.effects[node]
            new = self.graph.node_copy(node)
            if node.op == "placeholder":
                new.meta = {"val": next(fakes), "val_of": ()}
            else:
                new.meta = {
                    "val": fake_value(self.analysis.mode, attribute(node)),
                    "val_of": (node.target,),
                }
            if isinstance(effect.value, torch.Tensor):
                geometry = effect.shows[id(effect.value)]
                shown.setdefault(geometry.storage, []).append((new, geometry, id(effect.value)))
                self.input_of[id(effect.value)] = new
            else:
                self.plain[node] = new
        for number, group in shown.items():
            self._input_storage(number, group)

    def _input_storage(self, number: int, group: list[tuple[fx.Node, Geometry, int]]) -> None:
        """One storage that came with inputs. Its base is the input, if there is one that shows all, else flat.

        A storage that is never written needs no base: each input keeps its value.
        """
        node, geometry, _ = min(group, key=lambda each: each[1].conj + each[1].neg)
        storage = self.storages[number] = FunctionalStorage(origin=node)
        constant = storage.constant = self._is_constant(number)
        plain = _without_bits(geometry)
        if constant:
            storage.root = FunctionalView(storage, geometry, value=node)
        elif all(plain.same(_without_bits(each)) for _, each, _ in group) and self._is_base(plain):
            storage.root = FunctionalView(storage, plain, value=node)
            if plain is not geometry:
                storage.root.hold(self._like_eager(self._plain(node, self.emit.view), plain))
        else:
            node = min(group, key=lambda each: _preference(each[1]))[0]
            storage.origin = node
            self._make_flat(storage, node)
        for node, each, identity in group:
            view = self._find(storage, each)
            if view is None:
                view = (
                    FunctionalView(storage, each)
                    if constant
                    else self._by_geometry(storage, each, storage.root)
                )
                storage.views[each.key] = view
                view.value = node
            self.view_of[identity] = self.view_at_start[identity] = view

    def _new_storage(self, value: fx.Node, geometry: Geometry) -> FunctionalView:
        """A storage that the program makes.

        Its base is the tensor made with it, if that one shows all, else flat.
        """
        storage = self.storages[geometry.storage] = FunctionalStorage(origin=None)
        number, shown = geometry.storage, value.meta["val"]
        placed = known(shown.storage_offset() == geometry.offset)
        # As_strided, and outputs that share a storage, show where they lie in it.
        stays = placed or not (number in self.anchored or number in self.returned_twice)
        if stays and self._is_constant(number):
            storage.constant, storage.root = True, FunctionalView(storage, geometry, value=value)
            return storage.root
        if (
            stays
            and self._is_base(geometry)
            and (number not in self.returned_twice or known(geometry.offset == 0))
        ):
            storage.root = FunctionalView(storage, geometry, value=value)
            return storage.root
        if placed and number not in self.copied_whole:
            self._make_flat(storage, value)
        else:
            storage.flat, storage.root = True, FunctionalView(storage)
            storage.root.hold(self._around(number, shown, value))
        view = storage.views[geometry.key] = self._by_geometry(storage, geometry, storage.root)
        if placed and number not in self.copied_whole:
            view.value = value
        else:
            self._write(view, value)
        return view

    def _around(self, number: int, shown: torch.Tensor, value: fx.Node) -> fx.Node:
        """What a storage holds besides what was made with it: what it was copied with, or nothing that is seen."""
        if number in self.copied_whole:
            around = self._read(self.storages[self.copied_whole[number]].root)
            # A scatter into it makes it a copy; without elements there is none.
            return (
                self.emit.call(aten.clone.default, around) if known(shown.numel() == 0) else around
            )
        count = self.analysis.storages.by_number[number].nbytes() // shown.element_size()
        return self.emit.call(aten.new_zeros.default, value, [count])

    def _find_anchored(self) -> dict[int, list[Geometry]]:
        """The geometries, by storage, that can only be had by `as_strided` of its base."""
        anchored: dict[int, list[Geometry]] = {}
        met: set[int] = set()
        for node, effect in self.analysis.effects.items():
            values = list(tensors_in(effect.value))
            for index, tensor in enumerate(values):
                geometry = effect.shows[id(tensor)]
                if geometry.storage in met and not self._has_steps(node, values, index):
                    anchored.setdefault(geometry.storage, []).append(geometry)
                met.add(geometry.storage)
            if effect.copied is not None:
                anchored.setdefault(effect.copied.storage, []).append(effect.copied)
            for geometry in effect.mutated_metadata.values():
                if (
                    view_form(node.target) not in INVERSES
                    or view_form(node.target) is aten.as_strided.default
                ):
                    anchored.setdefault(geometry.storage, []).append(geometry)
                met.add(geometry.storage)
        return anchored

    def _find_copied_whole(self) -> dict[int, int]:
        """The storages of which more is seen than what was made with them, and those that they are copies of.

        What the latter hold must be known from the first byte to the last.
        """
        copied: dict[int, tuple[int, Geometry]] = {}
        for node, effect in self.analysis.effects.items():
            if node.target in COPIES_STORAGE:
                (operand,) = tensors_in(self.analysis.effects[node.args[0]].value)  # type: ignore[index]
                geometry = effect.shows[id(effect.value)]
                copied[geometry.storage] = self.analysis.storages.number(operand), geometry
        whole: dict[int, int] = {}
        for number, (source, geometry) in reversed(copied.items()):
            more = any(
                not contains(geometry.region, each.region) for each in self.analysis.seen[number]
            )
            if more or number in whole.values():
                whole[number] = source
        return whole

    def _find_returned_twice(self) -> set[int]:
        """The storages of which several tensors are returned, or one at several places."""
        output = next(iter(reversed(self.captured.graph.nodes)))
        returned = [
            t
            for node in nodes_in(output.args)
            for t in tensors_in(self.analysis.effects[node].value)
        ]
        numbers = [self.analysis.storages.number(each) for each in returned]
        return {each for each in numbers if numbers.count(each) > 1}

    def _has_steps(self, node: fx.Node, values: list[torch.Tensor], index: int) -> bool:
        if node.op != "call_function" or node.target is operator.getitem:
            return True
        if isinstance(node.target, OpOverload) and facts(node.target).writes:
            return True  # an argument handed back
        given = (
            bind(node.target, node.args, node.kwargs) if isinstance(node.target, OpOverload) else {}
        )
        storage = self.analysis.effects[node].shows[id(values[index])].storage
        if storage in self.analysis.written or self.emit.copies:
            parents = [
                each
                for node in node.all_input_nodes
                for each in self.analysis.effects[node].shows.values()
            ]
            if any(each.storage == storage and overlaps_itself(each.region) for each in parents):
                return False  # what is stored in one place of such a parent shows in others
        return view_steps(node.target, given, values[index], index, values[:index]) is not None

    def _is_constant(self, number: int) -> bool:
        """True if a storage is never written, so that its views need no base to be regenerated from."""
        if (
            number in self.copied_whole
            or number in self.copied_whole.values()
            or number in self.analysis.written
        ):
            return False
        return not (self.emit.copies and number in self.anchored)

    def _is_base(self, geometry: Geometry) -> bool:
        """True if this view of a storage shows every byte that the program sees, each once.

        Views made by steps from it show no other bytes, so only the others are looked at.
        """
        number = geometry.storage
        if number in self.copied_whole or number in self.copied_whole.values():
            return False
        if (
            number in self.analysis.resized
            or geometry.conj
            or geometry.neg
            or overlaps_itself(geometry.region)
        ):
            return False
        if number in self.anchored and not (
            is_dense(geometry.region) and known(geometry.offset == 0)
        ):
            return False
        if any(each.dtype != geometry.dtype for each in self.anchored.get(number, ())):
            return False
        dtypes = {each.dtype for each in self.analysis.seen[number]}
        if torch.bool in dtypes and len(dtypes) > 1:
            return False
        return all(contains(geometry.region, each.region) for each in self.anchored.get(number, ()))

    def _make_flat(self, storage: FunctionalStorage, shown: fx.Node) -> None:
        storage.flat = True
        storage.root = FunctionalView(storage)
        value = self._whole(shown, shown.meta["val"].untyped_storage().nbytes(), self.emit.view)
        if (
            value.meta["val"].dtype == torch.bool
        ):  # a move of bools may make its bytes 0 or 1, and others may see them
            value = self.emit.view(aten.view.dtype, value, torch.uint8)
        storage.root.hold(value)

    def _whole(self, shown: fx.Node, nbytes: Any, view: Callable[..., fx.Node]) -> fx.Node:
        """The first bytes of a tensor's storage in one dimension: as its elements, or as bytes if they are no whole number.

        Emitted by `view`, and what leads there by aliases: a copy would hold no more than what the
        tensor shows.
        """
        dtype = shown.meta["val"].dtype
        shown = self._plain(shown, self.emit.call)
        if isinstance(nbytes, int) and nbytes % dtype.itemsize != 0:
            dtype = torch.uint8
            shown = self.emit.call(aten.as_strided.default, shown, [0], [1], 0)
            shown = self.emit.call(aten.view.dtype, shown, dtype)
        return view(aten.as_strided.default, shown, [nbytes // dtype.itemsize], [1], 0)

    def _plain(self, shown: fx.Node, view: Callable[..., fx.Node]) -> fx.Node:
        """What memory holds where a tensor lies: its numbers without its lazy conjugate and negative bits."""
        tensor = shown.meta["val"]
        for bit, op in (
            (tensor.is_conj(), aten._conj.default),
            (tensor.is_neg(), aten._neg_view.default),
        ):
            if bit:
                shown = view(op, shown)
        return shown

    # Views of storages. ---------------------------------------------------------------------------

    def _find(self, storage: FunctionalStorage, geometry: Geometry) -> FunctionalView | None:
        root = storage.root
        return (
            root
            if root.geometry is not None and root.geometry.same(geometry)
            else storage.views.get(geometry.key)
        )

    def _by_geometry(
        self, storage: FunctionalStorage, geometry: Geometry, parent: FunctionalView
    ) -> FunctionalView:
        """A view by where it lies, whatever op it came from: `as_strided` of the base, or of an alias of it.

        What it starts from may have the lazy conjugate and negative bits already; `as_strided`
        keeps them.
        """
        view = parent if storage.constant else storage.root
        start = view.geometry
        if storage.constant and start is not None and start.dtype != geometry.dtype:
            for bit, op in ((start.conj, aten._conj.default), (start.neg, aten._neg_view.default)):
                if bit:
                    view = FunctionalView(storage, None, view, (op, ()))
            # None of its elements: these may be seen as any dtype, and lie in the same storage.
            view = FunctionalView(storage, None, view, (aten.as_strided.default, ([0], [1], 0)))
            view = FunctionalView(storage, None, view, (aten.view.dtype, (geometry.dtype,)))
            start = None
        if storage.flat:
            base = self._read(storage.root).meta["val"]
            wanted = torch.uint8 if geometry.dtype == torch.bool else geometry.dtype
            nbytes = base.numel() * base.element_size()
            if base.dtype != wanted:
                if not known(nbytes % wanted.itemsize == 0):
                    whole = nbytes // wanted.itemsize * wanted.itemsize // base.element_size()
                    view = FunctionalView(
                        storage, None, view, (aten.slice.Tensor, (0, 0, whole, 1))
                    )
                view = FunctionalView(storage, None, view, (aten.view.dtype, (wanted,)))
        if start is None or not _without_bits(start).same(_without_bits(geometry)):
            lies = (list(geometry.sizes), list(geometry.strides), geometry.offset)
            view = FunctionalView(storage, None, view, (aten.as_strided.default, lies))
        if storage.flat and geometry.dtype == torch.bool:
            view = FunctionalView(storage, None, view, (aten.view.dtype, (torch.bool,)))
        conj, neg = (False, False) if start is None else (start.conj, start.neg)
        for differs, op in (
            (geometry.conj != conj, aten._conj.default),
            (geometry.neg != neg, aten._neg_view.default),
        ):
            if differs:
                view = FunctionalView(storage, None, view, (op, ()))
        view.geometry = geometry
        return view

    def _reached(
        self,
        node: fx.Node,
        given: dict[str, Any],
        index: int,
        values: list[torch.Tensor],
        geometry: Geometry,
    ) -> FunctionalView:
        """The view that is result `index` of a call, on a storage that is known already."""
        storage = self.storages[geometry.storage]
        view = self._find(storage, geometry)
        if view is not None:
            return view
        parent = self._operand_in(node, geometry.storage)
        seen = None if parent is None else parent.geometry
        steps_down = None
        if parent is not None:
            conj = seen is not None and seen.conj
            steps_down = view_steps(node.target, given, values[index], index, values[:index], conj)
        if (
            parent is None
            or steps_down is None
            or (storage.flat and torch.bool in (geometry.dtype, seen and seen.dtype))
            or (not storage.constant and _overlaps_itself(seen))
        ):
            view = self._by_geometry(storage, geometry, parent or storage.root)
        else:
            view = parent
            for step in steps_down:
                view = FunctionalView(storage, None, view, step)
            view.geometry = geometry
        storage.views[geometry.key] = view
        return view

    def _operand_in(self, node: fx.Node, storage: int) -> FunctionalView | None:
        """The operand of a call that lies in a storage."""
        for each in node.all_input_nodes:
            for tensor in tensors_in(self.analysis.effects[each].value):
                view = self.view_of.get(id(tensor))
                if view is not None and view.storage is self.storages[storage]:
                    return view
        return None

    # Reading and writing. -------------------------------------------------------------------------

    def _read(self, view: FunctionalView) -> fx.Node:
        """The value of a view now."""
        storage = view.storage
        if storage.queue:
            last, value = storage.queue[-1]
            if last is view:
                return value
            self._apply(storage)
        return self._regenerate(view)

    def _regenerate(self, view: FunctionalView) -> fx.Node:
        """The value of a view by its chain, from the nearest ancestor whose value is known."""
        chain = []
        while view.current is None:
            chain.append(view)
            assert view.parent is not None, "the value of a base is always known"
            view = view.parent
        value = view.current
        for each in reversed(chain):
            assert each.step is not None
            above = (
                None
                if each.parent is None or each.parent.geometry is None
                else each.parent.geometry.strides
            )
            value = each.hold(self.emit.view(each.step[0], value, *each.step[1], strides=above))
        return value

    def _write(self, view: FunctionalView, value: fx.Node) -> None:
        """Store the new contents of a view."""
        tensor = value.meta["val"]
        geometry = view.geometry
        assert geometry is not None
        if geometry.region.empty:
            return
        if len(tensor.shape) != len(geometry.sizes) or any(
            map(_differ, tensor.shape, geometry.sizes)
        ):
            raise Refused(
                f"a value of size {list(tensor.shape)} is stored in a tensor of size {list(geometry.sizes)}"
            )
        if tensor.dtype != geometry.dtype:
            value = self.emit.call(aten._to_copy.default, value, dtype=geometry.dtype)
        if is_dense(geometry.region) and not same_strides(
            geometry.sizes, value.meta["val"].stride(), geometry.strides
        ):
            value = self.emit.call(aten.copy.default, self._read(view), value)
        queue = view.storage.queue
        if queue and queue[-1][0] is view:
            queue.pop()
        if view is view.storage.root:
            queue.clear()
        queue.append((view, value))

    def _apply(self, storage: FunctionalStorage) -> None:
        """Apply what is queued, oldest first."""
        queue, storage.queue = storage.queue, []
        for view, value in queue:
            chain = [(view, value)]
            while view.parent is not None:
                assert view.step is not None
                parent = view.parent
                inverse, arguments = INVERSES[view.step[0]], view.step[1]
                value = inverse(self.emit, partial(self._regenerate, parent), value, arguments)
                view = parent
                chain.append((view, value))
            value = self._as_base(view, value)
            storage.version += 1
            for each, new in chain[:-1]:
                each.hold(new)
            view.hold(value)

    def _as_base(self, root: FunctionalView, value: fx.Node) -> fx.Node:
        """A base lies in memory as the storage does in eager, since `as_strided` and outputs show it."""
        wanted = root.geometry.strides if root.geometry is not None else (1,)
        if same_strides(value.meta["val"].shape, value.meta["val"].stride(), wanted):
            return value
        return self.emit.call(aten.copy.default, self._regenerate(root), value)

    # Calls. ---------------------------------------------------------------------------------------

    def _call(self, node: fx.Node, effect: Effect) -> None:
        op = node.target
        if op is operator.getitem and not _is_plain(effect.value):
            return  # it picks a tensor that is known already
        if not isinstance(op, OpOverload) or not (
            facts(op).writes or self._needs_no_call(node, effect)
        ):
            self._functional(node, effect)
            return
        given = self._given(node)
        for tensor_id, geometry in effect.mutated_metadata.items():
            self._move(node, effect, tensor_id, geometry)
        if facts(op).writes and not _moves_only(op):
            self._mutation(node, effect, op)
        values = list(tensors_in(effect.value))
        for index, tensor in enumerate(values):
            if id(tensor) not in self.view_of:
                self.view_of[id(tensor)] = self._reached(
                    node, given, index, values, effect.shows[id(tensor)]
                )

    def _needs_no_call(self, node: fx.Node, effect: Effect) -> bool:
        """True if all that a call returns is tensors on storages that are known: views, to be regenerated when read."""
        values = list(tensors_in(effect.value))
        return bool(values) and all(
            effect.shows[id(each)].storage in self.storages for each in values
        )

    def _functional(self, node: fx.Node, effect: Effect) -> None:
        """A call that writes nothing: the same call on current values."""
        if effect.copied is not None:
            self._define(node, effect, effect.value, self._copy_of_view(node, effect.copied))
            return
        exact = isinstance(node.target, OpOverload) and facts(node.target).random
        args, kwargs = self._arguments(node.args, exact), self._arguments(node.kwargs, exact)
        if node.target is not aten.as_strided_scatter.default:
            new = self.emit.call(node.target, *args, **kwargs)
            if isinstance(
                effect.value, torch.Tensor
            ):  # `reshape` copies or not, by strides, which may be others here
                new = self._apart(new, operand_storages(new))
            self._define(node, effect, effect.value, new)
            return
        given = bind(node.target, args, kwargs)
        base = self._geometry(node.args[0])
        offset = base.offset if given.get("storage_offset") is None else given["storage_offset"]
        lies = (given["size"], given["stride"], offset)
        self._define(
            node,
            effect,
            effect.value,
            self._as_strided_scatter(node, given["self"], given["src"], lies),
        )
        view = self.view_of[id(effect.value)]
        if view.storage.flat:  # more is seen of what it stored than what it shows
            shown = self.analysis.storages.geometry(
                effect.value.as_strided(*node.args[2:4], offset)
            )
            self._write(self._by_geometry(view.storage, shown, view.storage.root), given["src"])

    def _copy_of_view(self, node: fx.Node, geometry: Geometry) -> fx.Node:
        """The numbers of a view by where it lies, contiguous: by the base, since its operand may lie elsewhere here."""
        storage = self.storages[geometry.storage]
        view = self._by_geometry(
            storage, geometry, self._operand_in(node, geometry.storage) or storage.root
        )
        if view.step is None:
            return self.emit.call(
                aten.clone.default, self._read(view), memory_format=torch.contiguous_format
            )
        assert view.parent is not None
        return self.emit.call(copy_form(view.step[0]), self._read(view.parent), *view.step[1])

    def _geometry(self, node: Any) -> Geometry:
        """The geometry of the tensor that a node gives, as it is now."""
        (tensor,) = tensors_in(self.analysis.effects[node].value)
        geometry = self.view_of[id(tensor)].geometry
        assert geometry is not None
        return geometry

    def _define(self, node: fx.Node, effect: Effect, shown: Any, new: fx.Node) -> None:
        """Take the results of a call in the new graph for those of a node, at any nesting."""
        if isinstance(shown, torch.Tensor):
            if id(shown) in self.view_of:
                return
            geometry = effect.shows[id(shown)]
            if geometry.storage in self.storages:
                storage = self.storages[geometry.storage]
                view = self._find(storage, geometry) or self._by_geometry(
                    storage, geometry, storage.root
                )
                storage.views[geometry.key] = view
                view.hold(new)
            else:
                view = self._new_storage(self._like_eager(new, geometry), geometry)
            self.view_of[id(shown)] = view
        elif isinstance(shown, (list, tuple)) and not _is_plain(shown):
            for index, each in enumerate(shown):
                if not _is_plain(each):
                    self._define(node, effect, each, self.emit.call(operator.getitem, new, index))
                elif each is not None:
                    self.plain.setdefault(node, new)  # of which it is picked
        else:
            self.plain[node] = new

    def _like_eager(self, value: fx.Node, geometry: Geometry) -> fx.Node:
        """A new tensor lies in memory as in eager; it may not, if an operand did not."""
        strides = zip(geometry.sizes, value.meta["val"].stride(), geometry.strides, strict=True)
        if all(known(size == 1) or known(one == other) for size, one, other in strides):
            return value  # without elements, too: a view as another dtype goes by strides
        return self.emit.laid_out(value, geometry.sizes, geometry.strides)

    def _arguments(self, given: Any, exact: bool = False) -> Any:
        """Arguments of a node as arguments in the new graph; `exact` asks for eager's strides, too."""
        return on_values(given, lambda node: self._argument(node, exact))

    def _argument(self, node: fx.Node, exact: bool) -> Any:
        if node in self.plain:
            return self.plain[node]
        return _map_tensors(
            self.analysis.effects[node].value, lambda tensor: self._value_of(tensor, exact)
        )

    def _value_of(self, tensor: torch.Tensor, exact: bool) -> fx.Node:
        view = self.view_of[id(tensor)]
        value = self._read(view)
        if exact and view.geometry is not None:
            value = self._like_eager(value, view.geometry)
        return value

    def _given(self, node: fx.Node) -> dict[str, Any]:
        """The arguments of a call that are no tensors, by name."""
        assert isinstance(node.target, OpOverload)
        given: dict[str, Any] = on_values(bind(node.target, node.args, node.kwargs), self.plain.get)
        return given

    def _as_strided_scatter(
        self, node: fx.Node, base: fx.Node, source: fx.Node, lies: tuple[Any, Any, Any]
    ) -> fx.Node:
        """This op goes by the offset of its operand and by the memory around it, so both are made as in eager."""
        geometry, shown = self._geometry(node.args[0]), base.meta["val"]
        (tensor,) = tensors_in(self.analysis.effects[node.args[0]].value)  # type: ignore[index]
        nbytes = tensor.untyped_storage().nbytes()
        if (
            same_strides(geometry.sizes, geometry.strides, shown.stride())
            and known(geometry.offset == shown.storage_offset())
            and known(shown.untyped_storage().nbytes() == nbytes)
        ):
            return self.emit.call(aten.as_strided_scatter.default, base, source, *lies)
        own = (list(geometry.sizes), list(geometry.strides), geometry.offset)
        around = self.emit.call(aten.new_zeros.default, base, [nbytes // shown.element_size()])
        around = self.emit.call(aten.as_strided_scatter.default, around, base, *own)
        around = self.emit.call(aten.as_strided_scatter.default, around, source, *lies)
        return self.emit.view(aten.as_strided.default, around, *own)

    # Calls that write. ----------------------------------------------------------------------------

    def _mutation(self, node: fx.Node, effect: Effect, op: OpOverload) -> None:
        """Compute what is written as new values, and queue them."""
        written = written_tensors(node, lambda n: self.analysis.effects[n].value)
        views = [self.view_of[id(each)] for each in written]
        self._refuse_two_writes(op, views)
        form = functional_form(op)
        exact = facts(op).random
        if exact and not all(
            _is_contiguous(each.geometry) for each in views if each.geometry is not None
        ):
            form = None  # random numbers come in the order of memory, and a functional form has other memory
        in_place = facts(op).writes == facts(op).names[:1]
        old = (
            self._overwritten(views[0])
            if in_place and form is not None and overwrites(form)
            else None
        )
        first = () if old is None else (old,)
        args = (*first, *self._arguments(node.args[len(first) :], exact))
        kwargs = self._arguments(node.kwargs, exact)
        if form is None:
            self._refuse_overlapping_operands(node, op, views)
            new = self.emit.call(on_copies, op, *args, **kwargs)
        else:
            dtype = None if views[0].geometry is None else views[0].geometry.dtype
            args, kwargs = functional_call(op, form, bind(op, args, kwargs), dtype)
            new = self.emit.call(form, *args, **kwargs)
        results = self._parts(new)
        known_facts = facts(op)
        returned = effect.value if len(op._schema.returns) > 1 else (effect.value,)
        for place, index in enumerate(known_facts.fresh):
            self._define(node, effect, returned[index], results[place])
        contents = [
            leaf for each in results[len(known_facts.fresh) :] for leaf in self._leaves(each)
        ]
        for view, value in zip(views, contents, strict=True):
            self._write(view, value)

    def _overwritten(self, view: FunctionalView) -> fx.Node | None:
        """A value of a view from before what is queued, if all of that is about to be stored over."""
        queue = view.storage.queue
        return (
            view.current if queue and (view is view.storage.root or queue[-1][0] is view) else None
        )

    def _parts(self, value: fx.Node) -> list[fx.Node]:
        """The results of a call, one node each.

        A single tensor, or a single list of tensors, is one result.
        """
        shown = value.meta["val"]
        if isinstance(shown, tuple):
            return [self.emit.call(operator.getitem, value, index) for index in range(len(shown))]
        return [value]

    def _leaves(self, value: fx.Node) -> list[fx.Node]:
        """The tensors of one result, one node each."""
        shown = value.meta["val"]
        if isinstance(shown, (list, tuple)):
            return [self.emit.call(operator.getitem, value, index) for index in range(len(shown))]
        return [] if shown is None else [value]

    def _refuse_two_writes(self, op: OpOverload, views: list[FunctionalView]) -> None:
        together: dict[FunctionalStorage, list[FunctionalView]] = {}
        for one in views:
            others = together.setdefault(one.storage, [])
            if any(_may_overlap(one, other) for other in others):
                raise Refused(
                    f"{op} writes the same memory through two arguments: eager leaves open which write stays"
                )
            others.append(one)

    def _refuse_overlapping_operands(
        self, node: fx.Node, op: OpOverload, written: list[FunctionalView]
    ) -> None:
        """An operator that is known by its schema alone may read and write in any order."""
        reads = [
            self.view_of[id(tensor)]
            for name, value in bind(op, node.args, node.kwargs).items()
            if name not in facts(op).writes
            for each in (
                [value]
                if isinstance(value, fx.Node)
                else value
                if isinstance(value, (list, tuple))
                else []
            )
            if isinstance(each, fx.Node)
            for tensor in tensors_in(self.analysis.effects[each].value)
        ]
        if any(_may_overlap(one, other) for one in written for other in reads):
            raise Refused(
                f"{op} reads memory that it writes; without a functional form, what it reads first is unknown"
            )

    # Calls that change metadata. ------------------------------------------------------------------

    def _move(self, node: fx.Node, effect: Effect, identity: int, geometry: Geometry) -> None:
        """A tensor object sees memory otherwise from now on."""
        op = node.target
        assert isinstance(op, OpOverload)
        if geometry.storage not in self.storages:
            old = self._read(self.view_of[identity])
            empty = self.emit.call(
                aten.new_empty_strided.default, old, list(geometry.sizes), list(geometry.strides)
            )
            self.view_of[identity] = self._new_storage(empty, geometry)
            return
        storage = self.storages[geometry.storage]
        if geometry.storage in effect.resized:
            self._grow(storage, effect.resized[geometry.storage])
        view = self._find(storage, geometry)
        if view is None:
            old_view, form = self.view_of[identity], view_form(op)
            if (
                form in INVERSES
                and form is not aten.as_strided.default
                and old_view.storage is storage
            ):
                given = [
                    value for name, value in self._given(node).items() if name != facts(op).names[0]
                ]
                view = FunctionalView(storage, geometry, old_view, (form, tuple(given)))
            else:
                view = self._by_geometry(
                    storage, geometry, old_view if old_view.storage is storage else storage.root
                )
            storage.views[geometry.key] = view
        self.view_of[identity] = view

    def _grow(self, storage: FunctionalStorage, nbytes: int) -> None:
        """`resize_` made a storage larger. What the new bytes hold is open; here they are zero."""
        value = self._read(storage.root)
        count = -(-nbytes // value.meta["val"].element_size()) - value.meta["val"].numel()
        more = self.emit.call(aten.new_zeros.default, value, [count])
        grown = self.emit.call(aten.cat.default, [value, more])
        storage.version += 1
        storage.root.hold(grown)

    # The end. -------------------------------------------------------------------------------------

    def _finish(self, output: fx.Node) -> None:
        """The epilogue, and the outputs."""
        returned = [
            id(tensor)
            for node in output.all_input_nodes
            for tensor in tensors_in(self.analysis.effects[node].value)
        ]
        for identity in returned:
            self._apply(self.view_of[identity].storage)
        inputs = {storage_of(node.meta["val"]) for node in self.input_of.values()}
        changed = {
            storage: self._apart(self._read(storage.root), inputs) for storage in self._changed()
        }
        for storage, value in changed.items():
            destination = self.at_end[storage.root] = self._destination(storage, value)
            self.emit.call(aten.copy_.default, destination, value)
        moved = [
            identity for identity, node in self.input_of.items() if self._has_moved(identity, node)
        ]
        taken = {
            identity: node for identity, node in self.input_of.items() if identity not in moved
        }
        objects = set(self.input_of.values())  # each stands for one tensor object already
        for identity in (*returned, *moved):
            if identity not in taken:
                node = self._at_end(self.view_of[identity])
                taken[identity] = (
                    self.emit.call(aten.alias.default, node) if node in objects else node
                )
                objects.add(taken[identity])
        for identity in moved:  # last: from here on the input is another tensor
            self.emit.call(aten.set_.source_Tensor, self.input_of[identity], taken[identity])
            taken[identity] = self.input_of[identity]
        self.graph.output(on_values(output.args[0], lambda node: self._returned(node, taken)))

    def _has_moved(self, identity: int, node: fx.Node) -> bool:
        """True if the program, or the epilogue so far, changed the metadata of an input."""
        return self.view_of[identity] is not self.view_at_start[identity] or any(
            user.target is aten.resize_.default and user.args[0] is node for user in node.users
        )

    def _changed(self) -> list[FunctionalStorage]:
        """The storages of inputs that were written."""
        for each in self.storages.values():
            if each.origin is not None:
                self._apply(each)
        return [
            each for each in self.storages.values() if each.version > 0 and each.origin is not None
        ]

    def _apart(self, value: fx.Node, storages: Collection[int]) -> fx.Node:
        """The value, or a copy if it lies in one of these storages."""
        return (
            self.emit.call(aten.clone.default, value)
            if storage_of(value.meta["val"]) in storages
            else value
        )

    def _destination(self, storage: FunctionalStorage, value: fx.Node) -> fx.Node:
        """Where the new contents of an input's storage are copied to: the input, or all of its storage."""
        assert storage.origin is not None
        if not storage.flat:
            return self._plain(storage.origin, self.emit.call)
        nbytes = value.meta["val"].numel() * value.meta["val"].element_size()
        given = storage.origin.meta["val"]
        if nbytes > given.untyped_storage().nbytes():
            count = -(
                -nbytes // given.element_size()
            )  # from where the storage starts; the input starts at its offset
            placed = 0 if known(given.storage_offset() >= count) else given.storage_offset()
            self.emit.call(aten.resize_.default, storage.origin, [count - placed])
        whole = self._whole(storage.origin, nbytes, self.emit.call)
        if whole.meta["val"].dtype != value.meta["val"].dtype:
            whole = self.emit.call(aten.view.dtype, whole, value.meta["val"].dtype)
        return whole

    def _at_end(self, view: FunctionalView) -> fx.Node:
        """A view of the memory that remains: of an input, or of the final value of a base."""
        chain = []
        while (node := self._remains(view)) is None:
            chain.append(view)
            assert view.parent is not None
            view = view.parent
        for each in reversed(chain):
            assert each.step is not None
            node = self.at_end[each] = self.emit.call(each.step[0], node, *each.step[1])
        return node

    def _remains(self, view: FunctionalView) -> fx.Node | None:
        """What is at hand of a view at the end; None if it is to be had from its parent."""
        storage = view.storage
        if view in self.at_end:
            return self.at_end[view]
        if storage.version == 0 and view.value is not None and not self.emit.copies:
            return view.value
        if view.parent is None:
            if storage.origin is None:
                self.at_end[view] = self._read(view)
            elif not storage.constant:
                self.at_end[view] = self._destination(storage, self._read(view))
            else:  # an input of a storage that is never written
                assert view.value is not None
                self.at_end[view] = view.value
        return self.at_end.get(view)

    def _returned(self, node: fx.Node, taken: dict[int, fx.Node]) -> Any:
        if node in self.plain:
            return self.plain[node]
        return _map_tensors(self.analysis.effects[node].value, lambda tensor: taken[id(tensor)])


def _refuse_moved_twice(
    captured: fx.GraphModule, analysis: Analysis, sample_args: Sequence[object]
) -> None:
    """One object as two arguments is two inputs of the graph, and one does not see that the other is moved."""
    given = tree_leaves(list(sample_args))
    identities = [id(each) for each in given if isinstance(each, torch.Tensor)]
    moved = {
        identity for effect in analysis.effects.values() for identity in effect.mutated_metadata
    }
    placeholders = (node for node in captured.graph.nodes if node.op == "placeholder")
    for node, each in zip(placeholders, given, strict=False):
        if id(analysis.effects[node].value) in moved and identities.count(id(each)) > 1:
            raise Refused(
                f"one tensor is passed twice, and its metadata is mutated through {node.name}"
            )


def _without_bits(geometry: Geometry) -> Geometry:
    """The same place seen without the lazy conjugate and negative bits."""
    if not (geometry.conj or geometry.neg):
        return geometry
    return replace(
        geometry,
        conj=False,
        neg=False,
        key=(geometry.storage, (geometry.dtype, False, False), *geometry.key[2:]),
    )


def _preference(geometry: Geometry) -> tuple[int, bool, int]:
    """Which input of a storage is made flat, the lowest first: small elements divide the storage of large ones."""
    return geometry.dtype.itemsize, geometry.dtype == torch.bool, geometry.conj + geometry.neg


def _moves_only(op: OpOverload) -> bool:
    """True if an op writes the metadata of its argument, not its contents."""
    return view_form(op) is not None or op.overloadpacket in (
        aten.set_,
        aten.resize_,
        aten.resize_as_,
    )


def _is_contiguous(geometry: Geometry) -> bool:
    return same_strides(geometry.sizes, geometry.strides, tuple(contiguous_strides(geometry.sizes)))


def _overlaps_itself(geometry: Geometry | None) -> bool:
    return geometry is not None and overlaps_itself(geometry.region)


def _may_overlap(one: FunctionalView, other: FunctionalView) -> bool:
    if one.storage is not other.storage or one.geometry is None or other.geometry is None:
        return False
    return overlap(one.geometry.region, other.geometry.region)


def _differ(one: Any, other: Any) -> bool:
    return known(one != other)


def _is_plain(value: Any) -> bool:
    """True if there is no tensor in a value."""
    return not any(True for _ in tensors_in(value))


def _map_tensors(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_map_tensors(each, function) for each in value)
    return value


def has_effect(node: fx.Node) -> bool:
    """True if a node must stay although nothing uses it."""
    if node.op in ("placeholder", "output") or node.target is on_copies:
        return True
    if not isinstance(node.target, OpOverload):
        return False
    return (
        bool(facts(node.target).writes)
        or facts(node.target).random
        or not node.target._schema.returns
    )
