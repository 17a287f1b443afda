"""Building a graph call by call, with true metadata from the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_symbols
from torch.fx.node import map_aggregate
from torch.fx.proxy import GraphAppendingTracer
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from aliasproof.reference_pass.calls.metadata import set_value
from aliasproof.reference_pass.calls.nested import graphs_called, leaves_in
from aliasproof.reference_pass.calls.operator_forms import aten, copy_form, facts
from aliasproof.reference_pass.exceptions import DataDependent
from aliasproof.reference_pass.regions import Size, contiguous_strides
from aliasproof.reference_pass.semantics import Semantics

# In the `meta` of nodes: that autograd computes them once more, where the program checkpoints.
CHECKPOINT_TAGS = ("recompute", "ac_graph_id")


def checkpoint_tags(node: fx.Node) -> dict[str, Any]:
    """The notes of a node about checkpoints."""
    return {tag: node.meta[tag] for tag in CHECKPOINT_TAGS if tag in node.meta}


@dataclass(slots=True)
class Emitter:
    """Adds calls to a graph and runs each on fakes, so that every `node.meta["val"]` is true.

    With `copies`, views are emitted as view-copy ops. `tags` go into the `meta` of each new node.
    The caller has entered `on_fakes`.
    """

    graph: fx.Graph
    semantics: Semantics
    copies: bool = False
    symbols: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, Any] = field(default_factory=dict)

    def call(self, target: Any, /, *args: Any, **kwargs: Any) -> fx.Node:
        """A call and its metadata.

        Raises what the operator raises if it does not accept these arguments.
        """
        if self.semantics.copies_whole_storage(target) and has_partial_element(args[0].meta["val"]):
            # It would raise on such a storage. The storage of a clone has whole elements only.
            args = (self.call(aten.clone.default, args[0]), *args[1:])
        args, kwargs = self._without_symbols((args, kwargs))
        # Named after the op, as make_fx does, not after the overload (`default`).
        packet = getattr(target, "overloadpacket", target)
        node = self.graph.create_node("call_function", target, args, kwargs, name=packet.__name__)
        node.meta.update(self.tags)
        try:
            set_value(node, self.semantics)
        except Exception:
            self.graph.erase_node(node)  # the graph stays as it was before the call
            raise
        return node

    def view(
        self, op: OpOverload, value: fx.Node, *args: Any, strides: Sequence[Size] | None = None
    ) -> fx.Node:
        """A view of a value, or a copy of that view.

        A value may have another layout than in eager: a strided write leaves a dense value. If the
        view is not valid on that layout, the value is copied first: to `strides`, those of eager,
        or else to contiguous ones.
        """
        form = copy_form(op) if self.copies else op
        assert form is not None, f"{op} has no copying form"
        try:
            return self.call(form, value, *args)
        except GuardOnDataDependentSymNode:  # is a RuntimeError, but a copy would not help
            raise
        except (RuntimeError, ValueError):
            sizes = value.meta["val"].shape
            wanted = contiguous_strides(sizes) if strides is None else strides
            return self.call(form, self.laid_out(value, sizes, wanted), *args)

    def _without_symbols(
        self, arguments: tuple[tuple[Any, ...], dict[str, Any]]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with a node for each symbol: the graph computes it from input sizes.

        Raises `DataDependent` if no tensor in the graph has the size that is asked for.
        """
        # By text: two symbols are different objects even if they are one expression.
        symbols = [leaf for leaf in leaves_in(arguments) if isinstance(leaf, torch.SymInt)]
        missing = [symbol for symbol in symbols if str(symbol) not in self.symbols]
        if missing:
            try:
                nodes = self._computed(missing)
            except (AssertionError, KeyError, RuntimeError, ValueError) as error:
                raise DataDependent(
                    f"the size {missing[0]} is data-dependent, and the graph cannot compute it"
                ) from error
            self.symbols |= {str(symbol): node for symbol, node in zip(missing, nodes, strict=True)}
            # There are also new nodes for what the symbols are computed from.
            for node in self.graph.nodes:
                if "val" not in node.meta:
                    set_value(node, self.semantics)
        if not symbols:
            return arguments
        return map_aggregate(
            arguments,
            lambda leaf: self.symbols[str(leaf)] if isinstance(leaf, torch.SymInt) else leaf,
        )

    def _computed(self, values: Sequence[torch.SymInt]) -> list[Any]:
        """A node for each value.

        `materialize_symints` asks inputs for their sizes. What depends on their strides or offsets,
        too, is computed here.
        """
        asked = self._stride_questions(values)
        if not asked:
            return self.graph.materialize_symints(values)
        env = values[0].node.shape_env
        others = [env.create_symintnode(x, hint=None) for x in free_symbols(values) - asked.keys()]
        sizes = zip(others, self.graph.materialize_symints(others), strict=True)
        nodes: dict[Any, Any] = asked | {size.node.expr: node for size, node in sizes}
        tracer = GraphAppendingTracer(self.graph)
        proxies = {symbol: fx.Proxy(node, tracer) for symbol, node in nodes.items()}
        made = [sympy_interp(PythonReferenceAnalysis, proxies, x.node.expr) for x in values]
        # Guards may have made a number of a symbol.
        return [each.node if isinstance(each, fx.Proxy) else int(each) for each in made]

    def _stride_questions(self, values: Sequence[torch.SymInt]) -> dict[Any, fx.Node]:
        """A new node for each symbol in the values that only strides or offsets of inputs show."""
        inputs = [(node, node.meta["val"]) for node in self.graph.find_nodes(op="placeholder")]
        tensors = [(node, value) for node, value in inputs if isinstance(value, torch.Tensor)]
        wanted = free_symbols(values) - free_symbols([value.shape for _, value in tensors])
        asked = {}
        for node, value in tensors:
            strides = ((aten.sym_stride.int, (node, i), x) for i, x in enumerate(value.stride()))
            offset = (aten.sym_storage_offset.default, (node,), value.storage_offset())
            for op, args, shown in (*strides, offset):
                symbol = shown.node.expr if isinstance(shown, torch.SymInt) else None
                if symbol in wanted and symbol not in asked:
                    asked[symbol] = self.graph.call_function(op, args)
        return asked

    def laid_out(self, value: fx.Node, sizes: Sequence[Size], strides: Sequence[Size]) -> fx.Node:
        """A copy of the value with these strides."""
        # `copy` keeps the layout of its first operand, and reads nothing else of it.
        destination = self.call(aten.new_empty_strided.default, value, list(sizes), list(strides))
        return self.call(aten.copy.default, destination, value)


def has_partial_element(tensor: torch.Tensor) -> bool:
    """True if the storage size of a tensor is not a multiple of its element size."""
    # A guard, if the size is a symbol and this is not known.
    return bool(tensor.untyped_storage().nbytes() % tensor.element_size() != 0)


# --- graph modules ------------------------------------------------------------------------------


def with_graph(graph_module: fx.GraphModule, graph: fx.Graph) -> fx.GraphModule:
    """A graph module with the attributes of another one, and a new graph.

    Its code is written when it is first called or read. So a module between two passes has none.
    """
    return _LazyGraphModule(graph_module, graph)


def copied(graph_module: fx.GraphModule) -> fx.GraphModule:
    """A graph module with a copy of the graph, and the same attributes."""
    graph = fx.Graph()
    output = graph.output(graph.graph_copy(graph_module.graph, {}))
    output.meta = dict(graph_module.graph.output_node().meta)
    return with_graph(graph_module, graph)


def has_effect(node: fx.Node) -> bool:
    """True if a node must stay although nothing uses it."""
    op = node.target
    if isinstance(op, OpOverload) and (facts(op).random or not op._schema.returns):
        return True
    if node.is_impure():  # FX knows what has effects, such as `print`
        return True
    bodies = [body.graph for body in graphs_called(node).values()]
    return any(has_effect(call) for body in bodies for call in body.nodes if call.op in _CALLS)


_CALLS = frozenset({"call_function", "call_method", "call_module"})


def erase_dead(graph: fx.Graph) -> None:
    """Erase the nodes that nothing uses and that have no effect.

    `Graph.eliminate_dead_code` goes into the bodies of control flow calls, too, which the caller of
    the pass still has, and erases `x.add_(1)` there: it takes methods for pure.
    """
    for node in reversed(graph.nodes):
        if not node.users and not has_effect(node):
            graph.erase_node(node)
