"""`run_stage`: one run of a stage on real tensors, with a record of each node.

The record says where the node's tensors are, what it wrote and what it read. It is taken when the
node has run (of operands: before it runs), since a later node may give a tensor another shape or
storage. Storages are numbered in the order in which the run meets them, so the runs of two stages
on equal inputs can be compared.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import map_arg

from aliasproof.eager.indexed_stores import same_values, value_stored
from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.errors import InternalError, Rejected, require_sound_process
from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.location import Location, location_of
from aliasproof.oracles.node_call import (
    NodeCall,
    function_call,
    note_writes,
    operator_call,
    version_counters,
)
from aliasproof.oracles.stage import Stage


@dataclass(slots=True)
class NodeRun:
    """One node that ran: its value, the locations of the tensors in it, and its call, if any."""

    node: fx.Node
    value: object
    locations: tuple[Location, ...]
    call: NodeCall | None = None

    @property
    def new_locations(self) -> list[Location]:
        """The locations of results that are in a storage of no operand."""
        operands = () if self.call is None else self.call.operands
        known = {operand.location.storage for operand in operands}
        return [location for location in self.locations if location.storage not in known]


@dataclass(slots=True)
class StageRun:
    """The run of a stage.

    `inputs` are the storages of placeholders and attributes. `nbytes` is the largest size that each
    storage had in the run: it may grow, and it may be freed before the end. `error` is the node
    that raised and what it raised; if that was in a call, the node is the last of `nodes`, without
    a value. `storages` keeps the storages alive, so that no identity is used twice.
    """

    stage: Stage
    nodes: list[NodeRun] = field(default_factory=list)
    storages: list[torch.UntypedStorage] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    inputs: set[int] = field(default_factory=set)
    error: tuple[fx.Node, Exception] | None = None

    @property
    def raised(self) -> str:
        """The node that raised and the error, in one line; empty if none did."""
        if self.error is None:
            return ""
        node, error = self.error
        return f"{self.name(node)} raises {type(error).__name__}: {error}"

    def name(self, node: fx.Node) -> str:
        """A node for people: 'stage reinplaced, add_1 = aten.add_.Tensor(view, 1)'."""
        return f"stage {self.stage.name}, {describe(node)}"


def describe(node: fx.Node) -> str:
    """A node in one line: 'add_1 = aten.add_.Tensor(view, 1)'."""
    if node.op in ("placeholder", "get_attr"):
        return f"{node.name} = {'input' if node.op == 'placeholder' else node.target}"
    arguments = [*map(str, node.args), *(f"{key}={value}" for key, value in node.kwargs.items())]
    if node.op == "output":
        return f"return {', '.join(arguments)}"
    target = node.target
    if not isinstance(target, (str, OpOverload)):
        target = getattr(target, "__name__", target)
    return f"{node.name} = {target}({', '.join(arguments)})"


def run_stage(stage: Stage, inputs: Sequence[object]) -> StageRun:
    """Run the graph once on these inputs, which it may mutate; it gets clones of its attributes.

    Raises:
        Rejected: A tensor is not dense.
        InternalError: The graph takes another number of inputs.

    """
    return _Runner(stage, inputs).run()


class _Runner:
    def __init__(self, stage: Stage, inputs: Sequence[object]) -> None:
        placeholders = sum(node.op == "placeholder" for node in stage.graph.graph.nodes)
        if placeholders != len(inputs):
            raise InternalError(
                f"stage {stage.name} takes {placeholders} inputs, {len(inputs)} were given"
            )
        self.record = StageRun(stage)
        self.graph = stage.graph
        self.inputs = iter(inputs)
        self.values: dict[fx.Node, Any] = {}
        self.attributes = self._attributes()
        self.numbers: dict[int, int] = {}  # of storages, by their identity

    def run(self) -> StageRun:
        # Eager and target run without gradients, so stages do as well.
        with torch.no_grad():
            for node in self.graph.graph.nodes:
                self._step(node)
                if self.record.error is not None:
                    break
        return self.record

    def _step(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self._note(node, next(self.inputs))
        elif node.op != "get_attr":
            self._run(node)
        elif node in self.attributes:
            self._note(node, self.attributes[node])
        else:
            missing = AttributeError(f"the module has no attribute {node.target}")
            self.record.error = (node, missing)

    def _run(self, node: fx.Node) -> None:
        call = None
        try:
            args, kwargs = map_arg(node.args, self._value), map_arg(node.kwargs, self._value)
            # Operands are located before the node runs: it may change their metadata.
            call = self._call(node, args, kwargs)
            counters = version_counters(call)
            value = self._execute(node, call, args, kwargs)
            if call is not None and call.op is None:
                note_writes(call, counters)
        except (Rejected, InternalError):
            raise
        # A call that raised is recorded, too: its operands may explain the error.
        except Exception as error:  # noqa: BLE001 - whatever a node raises is part of the run
            require_sound_process(error)
            self.record.error = (node, error)
            if call is not None:
                self.record.nodes.append(NodeRun(node, None, (), call))
            return
        self._note(node, value, call)

    def _value(self, node: fx.Node) -> Any:
        if node not in self.values:
            raise LookupError(f"{node} is used before it is defined")
        return self.values[node]

    def _attributes(self) -> dict[fx.Node, object]:
        attributes: dict[fx.Node, object] = {}
        for node in self.graph.graph.find_nodes(op="get_attr"):
            # An attribute that does not exist is an error of the node, when the run reaches it.
            with contextlib.suppress(AttributeError):
                attributes[node] = functools.reduce(
                    getattr, str(node.target).split("."), self.graph
                )
        return dict(zip(attributes, clone_inputs(list(attributes.values())), strict=True))

    def _call(self, node: fx.Node, args: Any, kwargs: Mapping[str, Any]) -> NodeCall | None:
        if node.op == "output":
            return None
        target: Any = node.target
        if isinstance(target, OpOverload):
            return operator_call(target, target, args, kwargs, self._location)
        # `auto_functionalized` and others take the operator that they run first.
        if args and isinstance(args[0], OpOverload):
            return operator_call(None, args[0], args[1:], kwargs, self._location)
        # Methods, modules and Python functions.
        return function_call(args, kwargs, self._location)

    def _execute(self, node: fx.Node, call: NodeCall | None, args: Any, kwargs: Any) -> Any:
        if node.op == "output":
            return args[0]
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        if node.op == "call_module":
            return self.graph.get_submodule(str(node.target))(*args, **kwargs)
        assert callable(node.target)
        # A `copy_` into memory that overlaps itself may store two values to one address. That shows
        # only in what it leaves there, so the value meant is computed before.
        expected = None
        if call is not None and call.op is not None:
            expected = value_stored(call.op, call.arguments)
        value = node.target(*args, **kwargs)
        if call is not None and expected is not None:
            call.conflicts = not same_values(call.arguments["self"], expected)
        return value

    def _note(self, node: fx.Node, value: object, call: NodeCall | None = None) -> None:
        locations = tuple(map(self._location, tensors_in(value)))
        self.values[node] = value
        self.record.nodes.append(NodeRun(node, value, locations, call))
        if node.op in ("placeholder", "get_attr"):
            self.record.inputs.update(location.storage for location in locations)

    def _location(self, tensor: torch.Tensor) -> Location:
        if tensor.layout is not torch.strided:
            raise Rejected(f"a tensor is {tensor.layout}; only dense (strided) ones can be judged")
        storage, record = tensor.untyped_storage(), self.record
        # The first tensor on a storage numbers it, in the order of the nodes.
        number = self.numbers.get(storage._cdata)
        if number is None:
            number = self.numbers[storage._cdata] = len(self.numbers)
            record.storages.append(storage)
            record.nbytes.append(0)
        location = location_of(tensor, number)
        # A view may reach beyond the end of a storage that was freed.
        end = location.region.interval[1]
        record.nbytes[number] = max(record.nbytes[number], storage.nbytes(), end)
        return location
