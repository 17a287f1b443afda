"""Alias analysis: which tensors of a graph see which bytes of which storage.

The first chapter looks up in a table (`VIEWS`) which calls return views. That is wrong for inputs
that share a storage, and for operators that copy in some calls only, because only a run shows it.
So the graph is run once on fake tensors (`fake_tensors`), and shared storages are observed. Each
node runs once and leaves a record of constant size, so the cost is linear in the number of nodes.

A tensor *object* may change its metadata while the program runs (`t_`, `set_`, `resize_`). So each
node keeps the *geometry* that the objects had when it ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from aliasproof.reference_pass.calls.fake_inputs import (
    attribute,
    fake_inputs,
    fake_value,
    refuse_without_regions,
)
from aliasproof.reference_pass.calls.fake_tensors import fake_mode, on_fakes
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.calls.regions import Size, is_data_dependent, known
from aliasproof.reference_pass.calls.storages import Geometry, Storages, storage_of, written_tensors
from aliasproof.reference_pass.exceptions import DataDependent
from aliasproof.reference_pass.semantics import NAIVE, Semantics


@dataclass(slots=True)
class Effect:
    """The effect of one node.

    `value` is its value on fakes. `shows` has the geometry of each tensor in that value, by the
    identity of the object, and `mutated_metadata` that of each argument whose metadata the node
    changed. `resized` has the new size in bytes of each storage that it resized. `copied` is the
    geometry that it copies, if that covers more than its operand (`as_strided_copy`).
    """

    value: Any
    shows: dict[int, Geometry] = field(default_factory=dict)
    mutated_metadata: dict[int, Geometry] = field(default_factory=dict)
    resized: dict[int, int] = field(default_factory=dict)
    copied: Geometry | None = None


@dataclass(slots=True)
class Analysis:
    """What a graph does with storage, node by node, in the order of execution.

    `seen` has for each storage all geometries in which the program sees it, in order, and `nbytes`
    its size in bytes at the first of them. `written` and `resized` are the storages that are
    written or resized. `detached` are the detached tensors, by the identity of the objects; None if
    it does not matter which are.
    """

    mode: FakeTensorMode
    semantics: Semantics = NAIVE
    detached: set[int] | None = None
    effects: dict[fx.Node, Effect] = field(default_factory=dict)
    storages: Storages = field(default_factory=Storages)
    seen: list[list[Geometry]] = field(default_factory=list)
    nbytes: dict[int, Size] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    resized: set[int] = field(default_factory=set)

    def see(self, tensor: torch.Tensor) -> Geometry:
        """Note the geometry that a tensor has now."""
        refuse_without_regions(tensor)
        is_detached = self.detached is not None and id(tensor) in self.detached
        geometry = self.storages.geometry(tensor, is_detached)
        # The geometry may be on a storage that got its number only now.
        while len(self.seen) < len(self.storages):
            self.seen.append([])
        self.seen[geometry.storage].append(geometry)
        self.nbytes.setdefault(geometry.storage, tensor.untyped_storage().nbytes())
        return geometry

    def value(self, node: fx.Node) -> Any:
        """The value of a node that has run."""
        return self.effects[node].value

    def note_detached(self, node: fx.Node, value: Any) -> None:
        """Note which results of a node are detached: those of `detach`, and views of these."""
        if self.detached is None or not isinstance(node.target, OpOverload):
            return
        operands = tensors_in([self.value(operand) for operand in node.all_input_nodes])
        given = {id(tensor) for tensor in operands}
        storages = {storage_of(tensor) for tensor in operands if id(tensor) in self.detached}
        for tensor in tensors_in(value):
            is_view = id(tensor) not in given and storage_of(tensor) in storages
            if is_view or node.target is aten.detach.default:
                self.detached.add(id(tensor))


def analyse(
    graph_module: fx.GraphModule,
    sample_args: Sequence[object],
    semantics: Semantics = NAIVE,
    *,
    detaches: bool = False,
) -> Analysis:
    """Run a graph of ATen calls on fake tensors and note what it does with storage.

    With `detaches`, a detached tensor has another geometry. Raises `Refused` for data-dependent
    shapes.
    """
    mode = fake_mode(graph_module, sample_args)
    analysis = Analysis(mode, semantics, set() if detaches else None)
    # Fakes of the sample arguments: the run must not change the metadata of the caller's tensors.
    inputs = iter(fake_inputs(mode, sample_args))
    of_inputs: set[int] = set()
    with on_fakes(mode):
        for node in graph_module.graph.nodes:
            if node.op == "placeholder":
                effect = Effect(next(inputs))
            elif node.op == "output":
                continue
            else:
                effect = _run(node, analysis)
            analysis.note_detached(node, effect.value)
            # Recorded now: a later node may change the metadata of these objects.
            effect.shows = {id(tensor): analysis.see(tensor) for tensor in tensors_in(effect.value)}
            analysis.effects[node] = effect
            if node.op == "placeholder":
                of_inputs |= {geometry.storage for geometry in effect.shows.values()}
        # Fake inputs share their storages with the caller's fakes, so these get their size back.
        for number in analysis.resized & of_inputs:
            analysis.storages.by_number[number].resize_(analysis.nbytes[number])
    return analysis


def _run(node: fx.Node, analysis: Analysis) -> Effect:
    """Run one node, and compare what it writes before and after."""
    # The schema says which arguments may change; the comparison finds those that did.
    before = [
        (tensor, analysis.storages.geometry(tensor), tensor.untyped_storage().nbytes())
        for tensor in written_tensors(node, analysis.value)
    ]
    around = analysis.semantics.copied_around(node, analysis.value)
    copied = None if around is None else analysis.see(around)
    effect = Effect(_value(node, analysis), copied=copied)
    for tensor, geometry, nbytes in before:
        analysis.written.add(geometry.storage)
        # `t_`, `set_` and `resize_` change the geometry of the object; other writes do not.
        if not analysis.storages.geometry(tensor).same(geometry):
            effect.mutated_metadata[id(tensor)] = analysis.see(tensor)
        number, now = analysis.storages.number(tensor), tensor.untyped_storage().nbytes()
        # After `set_` the tensor has another storage; that is not a resize.
        if number == geometry.storage and not known(now == nbytes):
            analysis.resized.add(number)
            effect.resized[number] = now
    return effect


def _value(node: fx.Node, analysis: Analysis) -> Any:
    """The value of a node; raises `DataDependent` where it is data-dependent."""
    try:
        if node.op == "get_attr":
            return fake_value(analysis.mode, attribute(node))
        return analysis.semantics.run(node, analysis.value)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise DataDependent(
            f"{node.target} is data-dependent ({error}), and one graph must be right for all data"
        ) from error
    except RuntimeError as error:
        # An error of eager is raised unchanged. But if a size is unknown until the run, the fake
        # kernel may fail where eager would not.
        operands = tensors_in([analysis.value(operand) for operand in node.all_input_nodes])
        if any(is_data_dependent(size) for tensor in operands for size in tensor.shape):
            raise DataDependent(
                f"{node.target} may not support an operand of data-dependent size: {error}"
            ) from error
        raise
