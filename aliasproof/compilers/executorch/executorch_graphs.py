"""The graphs of ExecuTorch as graphs of ATen calls, which the oracles on graphs can run.

- *edge graph*: after `to_edge`. The new contents of mutated tensors are outputs. Here they are
  cloned and copied back at the end, as the runtime does. A `view_copy`, which the lowered graph may
  share with its operand, is a view and a copy here, so that no value is computed.
- *lowered graph*: after `to_executorch`, with a new tensor for each allocation.
- *planned graph*: the same, with each tensor at its location in an arena of the memory plan.

The graph also does what the runtime and its caller do around it: it copies planned inputs into the
arena, and copies mutated tensors back.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

aten = torch.ops.aten
# Operators that only move bytes: the oracle on bytes knows the functional form.
_MOVES: dict[object, Any] = {
    aten.view_copy.out: aten.view.default,
    aten.copy.out: aten.copy.default,
    aten.clone.out: aten.clone.default,
    aten._to_copy.out: aten._to_copy.default,
    aten.slice_scatter.out: aten.slice_scatter.default,
    aten.select_scatter.out: aten.select_scatter.default,
}


@dataclass(frozen=True, slots=True)
class Mutated:
    """The mutations of a program, and the names of its calls of `index_put`.

    `inputs` are the names of the placeholders of user inputs, in the order in which the graph
    returns their new contents. `buffers` maps the names of buffers to their placeholders.
    `outputs` has for each output of the edge graph the placeholder that it is written to, or None.
    `puts` are the calls that ExecuTorch may put in place, and rename.
    """

    inputs: tuple[str, ...]
    buffers: dict[str, str]
    outputs: tuple[str | None, ...]
    puts: tuple[str, ...]

    @classmethod
    def of(cls, program: Any) -> Mutated:
        """The mutations of an edge program, from its signature."""
        signature = program.graph_signature
        placeholders = {name: place for place, name in signature.inputs_to_buffers.items()}
        targets = tuple(
            placeholders.get(spec.target, spec.target) if "MUTATION" in spec.kind.name else None
            for spec in signature.output_specs
        )
        inputs = tuple(name for name in targets if name and name in signature.user_inputs)
        mutated = {name: place for name, place in placeholders.items() if place in targets}
        return cls(inputs, mutated, targets, tuple(node.name for node in _puts(program.graph)))


def as_written_back(program: Any, mutated: Mutated) -> fx.GraphModule:
    """The edge graph, with writes to the mutated tensors at its end."""
    root, made, values = torch.nn.Module(), fx.Graph(), dict[fx.Node, Any]()
    taken = _take(program, made, root)
    for node in program.graph.nodes:
        args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
        if node.op == "placeholder":
            values[node] = taken[node.name]
        elif node.op == "output":
            outputs = list(zip(args[0], mutated.outputs, strict=True))
            clones = [
                (taken[target], made.call_function(aten.clone.default, (value,)))
                for value, target in outputs
                if target is not None
            ]
            for target, value in clones:
                made.call_function(aten.copy_.default, (target, value))
            made.output(tuple(value for value, target in outputs if target is None))
        elif _operator(node.target) is aten.view_copy.default:
            view = made.call_function(aten.view.default, args)
            values[node] = made.create_node(
                "call_function", aten.clone.default, (view,), name=node.name
            )
        else:
            values[node] = made.create_node(
                node.op, _operator(node.target), args, kwargs, name=node.name
            )
    return fx.GraphModule(root, made)


def _puts(graph: fx.Graph) -> list[fx.Node]:
    """The calls of `index_put`, in place or not, in their order."""
    forms = (aten.index_put.default, aten.index_put_.default, aten.index_put.out)
    return [node for node in graph.nodes if _operator(node.target) in forms]


def _take(program: Any, made: fx.Graph, root: torch.nn.Module) -> dict[str, fx.Node]:
    """The inputs of a program by name: user inputs are placeholders, the rest are attributes."""
    captured = {**program.constants, **program.state_dict}
    taken = {}
    for spec in program.graph_signature.input_specs:
        name = spec.arg.name
        if spec.kind.name == "USER_INPUT":
            taken[name] = made.create_node("placeholder", name, name=name)
        else:
            setattr(root, name, captured[spec.target].detach())
            taken[name] = made.create_node("get_attr", name, name=name)
    return taken


def _operator(target: Any) -> Any:
    """The ATen operator of an operator of the edge dialect."""
    return target if isinstance(target, OpOverload) else getattr(target, "_op", target)


def as_lowered(program: Any, mutated: Mutated, *, planned: bool) -> fx.GraphModule:
    """The graph after `to_executorch`; with its memory plan if `planned`."""
    from executorch.exir import memory  # noqa: PLC0415

    graph, root = program.graph_module, torch.nn.Module()
    sizes = graph.meta["non_const_buffer_sizes"] if planned else ()
    puts = _puts(graph.graph)
    names = dict(zip(puts, mutated.puts, strict=True)) if len(puts) == len(mutated.puts) else {}
    lowering = _Lowering(mutated, sizes, memory.alloc, memory.view, names)
    lowering.take(graph.graph, _take(program, lowering.made, root))
    for node in graph.graph.nodes:
        if node.op != "placeholder":
            lowering.add(node)
    return fx.GraphModule(root, lowering.made)


@dataclass(slots=True)
class _Lowering:
    """The graph under construction, and its value for each node of the lowered graph.

    `sizes` are the bytes of each arena; empty without a memory plan. `names` maps nodes that were
    renamed to their names in the edge graph.
    """

    mutated: Mutated
    sizes: Sequence[int]
    alloc: Callable[..., Any]
    view: Callable[..., Any]
    names: Mapping[fx.Node, str]
    made: fx.Graph = field(default_factory=fx.Graph)
    values: dict[fx.Node, Any] = field(default_factory=dict)
    arenas: dict[int, fx.Node] = field(default_factory=dict)
    placeholders: dict[str, tuple[fx.Node, fx.Node]] = field(default_factory=dict)

    def add(self, node: fx.Node) -> None:
        """Add a node that is no placeholder, after those before it."""
        if node.op == "output":
            self._add_output(node)
        elif node.target is self.alloc:
            specs = node.meta["spec"]
            several = isinstance(specs, list | tuple)
            self.values[node] = [*map(self._memory, specs)] if several else self._memory(specs)
        elif node.target is self.view:
            base, spec = self.values[_first(node)], node.meta["spec"]
            self.values[node] = self._call(
                aten.as_strided.default, base, list(spec.shape), list(spec.stride), name=node.name
            )
        elif node.target in _MOVES:
            self.values[node] = self._moved(node)
        elif node.target is operator.getitem:
            results = self.values[_first(node)]
            listed = isinstance(results, list)
            self.values[node] = results[node.args[1]] if listed else self._copied(node)
        else:
            made = self._copied(node)
            # An operator that writes into a list returns nothing.
            given: list[fx.Node] = []
            fx.map_arg(node.kwargs, given.append)
            lists = (self.values[it] for it in given if isinstance(self.values[it], list))
            self.values[node] = next(lists, made)

    def _moved(self, node: fx.Node) -> fx.Node:
        """A move in its functional form, whose result is copied into the written memory."""
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        given = {
            name: value for name, value in kwargs.items() if name not in ("out", "memory_format")
        }
        moved = self.made.call_function(_MOVES[node.target], args, given)
        return self._call(aten.copy_.default, kwargs["out"], moved, name=node.name)

    def _copied(self, node: fx.Node) -> fx.Node:
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        name = self.names.get(node, node.name)
        return self.made.create_node(node.op, _operator(node.target), args, kwargs, name=name)

    def take(self, graph: fx.Graph, taken: dict[str, fx.Node]) -> None:
        """Add the inputs of the graph; planned ones are copied to their location in the arena."""
        for node in graph.find_nodes(op="placeholder"):
            passed = memory = taken[node.name]
            spec = node.meta["spec"]
            if getattr(spec, "mem_offset", None) is not None and not spec.const:
                memory = self._memory(spec)
                self._call(aten.copy_.default, memory, passed)
            self.values[node], self.placeholders[node.name] = memory, (passed, memory)

    def _add_output(self, node: fx.Node) -> None:
        returned: Any = node.args[0]
        listed = returned if isinstance(returned, list | tuple) else [returned]
        outputs = [fx.map_arg(value, self.values.__getitem__) for value in listed]
        # New contents of inputs are returned before the outputs; those of buffers are in their
        # memory.
        places = self.mutated.buffers.values()
        buffers = ((name, self.placeholders[name][1]) for name in places)
        for name, contents in (*zip(self.mutated.inputs, outputs, strict=False), *buffers):
            passed, memory = self.placeholders[name]
            if memory is not passed:
                self._call(aten.copy_.default, passed, contents)
        self.made.output(tuple(outputs[len(self.mutated.inputs) :]))

    def _memory(self, spec: Any) -> fx.Node:
        """New memory, or the memory that the plan assigns to a tensor."""
        sizes, strides = list(spec.shape), list(spec.stride)
        if not self.sizes or spec.mem_offset is None:
            return self._call(
                aten.empty_strided.default, sizes, strides, dtype=spec.dtype, device="cpu"
            )
        end = spec.mem_offset + spec.nbytes()
        number = spec.mem_id
        if number not in self.arenas:
            self.arenas[number] = self._call(
                aten.empty.memory_format, [self.sizes[number]], dtype=torch.uint8, device="cpu"
            )
        place = self._call(aten.slice.Tensor, self.arenas[number], 0, spec.mem_offset, end)
        typed = self._call(aten.view.dtype, place, spec.dtype)
        return self._call(aten.as_strided.default, typed, sizes, strides)

    def _call(self, target: Any, *args: Any, name: str | None = None, **kwargs: Any) -> fx.Node:
        return self.made.create_node("call_function", target, args, kwargs, name=name)


def _first(node: fx.Node) -> fx.Node:
    first = node.args[0]
    assert isinstance(first, fx.Node)
    return first
