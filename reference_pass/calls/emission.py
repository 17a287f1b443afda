"""Building a graph call by call, with true metadata from the start."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_symbols
from torch.fx.node import map_aggregate
from torch.fx.proxy import GraphAppendingTracer
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from aliasproof.reference_pass.calls.metadata import set_value
from aliasproof.reference_pass.calls.nested import leaves_in
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.calls.regions import Size, contiguous_strides
from aliasproof.reference_pass.calls.view_forms import copy_form
from aliasproof.reference_pass.exceptions import DataDependent
from aliasproof.reference_pass.semantics import Semantics

# In the `meta` of nodes: the program checkpoints them, so autograd computes them once more.
CHECKPOINT_TAGS = ("recompute", "ac_graph_id")


def checkpoint_tags(node: fx.Node) -> dict[str, Any]:
    """The notes of a node about checkpoints."""
    return {tag: node.meta[tag] for tag in CHECKPOINT_TAGS if tag in node.meta}


@dataclass(slots=True)
class Emitter:
    """Adds calls to a graph and runs each on fakes, so that every `node.meta["val"]` is true.

    With `copies`, views are emitted as view-copy ops. The caller has entered `on_fakes`.
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
            # The op would raise on such a storage. The storage of a clone has whole elements only.
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

    @contextlib.contextmanager
    def on_behalf_of(self, node: fx.Node) -> Iterator[None]:
        """A context in which new calls belong to the checkpoint of a node, if it is in one."""
        before, self.tags = self.tags, checkpoint_tags(node)
        yield
        self.tags = before

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
        except GuardOnDataDependentSymNode:  # a RuntimeError too, but a copy would not help
            raise
        except (RuntimeError, ValueError):
            sizes = value.meta["val"].shape
            wanted = contiguous_strides(sizes) if strides is None else strides
            return self.call(form, self.lay_out(value, sizes, wanted), *args)

    def _without_symbols(
        self, arguments: tuple[tuple[Any, ...], dict[str, Any]]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with a node for each symbol: the graph computes it from input sizes.

        Raises `DataDependent` if no tensor in the graph has that size.
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
            # The symbols are computed from others, for which there are new nodes, too.
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

        `materialize_symints` reads the sizes of inputs. Values that also depend on their strides or
        offsets are computed here.
        """
        asked, env = self._stride_questions(values), values[0].node.shape_env
        rest = sorted(free_symbols(values) - asked.keys(), key=str)  # a set has no order
        others = [env.create_symintnode(symbol, hint=None) for symbol in rest]
        if not asked:
            return self.graph.materialize_symints([*others, *values])[len(others) :]
        sizes = zip(others, self.graph.materialize_symints(others), strict=True)
        nodes: dict[Any, Any] = asked | {size.node.expr: node for size, node in sizes}
        tracer = GraphAppendingTracer(self.graph)
        proxies = {symbol: fx.Proxy(node, tracer) for symbol, node in nodes.items()}
        made = [sympy_interp(PythonReferenceAnalysis, proxies, x.node.expr) for x in values]
        # A guard may have replaced a symbol by a number.
        return [each.node if isinstance(each, fx.Proxy) else int(each) for each in made]

    def _stride_questions(self, values: Sequence[torch.SymInt]) -> dict[Any, fx.Node]:
        """A new node for each symbol in the values that only strides or offsets of inputs have."""
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

    def lay_out(self, value: fx.Node, sizes: Sequence[Size], strides: Sequence[Size]) -> fx.Node:
        """A copy of the value with these strides."""
        # `copy` keeps the layout of its first operand, and reads none of its data.
        destination = self.call(aten.new_empty_strided.default, value, list(sizes), list(strides))
        return self.call(aten.copy.default, destination, value)

    def flattened(self, shown: fx.Node, nbytes: Any, view: Callable[..., fx.Node]) -> fx.Node:
        """The first bytes of the storage of a tensor in one dimension, by a view op.

        Its elements are those of the tensor, or bytes if `nbytes` is not a whole number of these.
        `view` emits the last view op, as a view or as a view copy. Those before it are always
        views: a copy of the tensor would contain no more than the tensor shows.
        """
        dtype = shown.meta["val"].dtype
        shown = clear_lazy_bits(shown, self.call)
        # This adds a guard if the size is a symbol and the answer is not known.
        if nbytes % dtype.itemsize != 0:
            dtype = torch.uint8
            shown = self.call(aten.as_strided.default, shown, [0], [1], 0)
            shown = self.call(aten.view.dtype, shown, dtype)
        return view(aten.as_strided.default, shown, [nbytes // dtype.itemsize], [1], 0)

    def results(self, new: fx.Node, several: Any = tuple) -> list[fx.Node]:
        """The results of a call, one node each; by default, only a tuple has several."""
        value = new.meta["val"]
        if not isinstance(value, several):
            return [new]
        return [self.call(operator.getitem, new, index) for index in range(len(value))]

    def contents(self, results: list[fx.Node]) -> list[fx.Node]:
        """The tensors in results, one node each."""
        given = [result for result in results if result.meta["val"] is not None]
        return [leaf for result in given for leaf in self.results(result, (list, tuple))]


def clear_lazy_bits(shown: fx.Node, view: Callable[..., fx.Node]) -> fx.Node:
    """The memory that a tensor shows, without its lazy conjugate and negative bits."""
    tensor = shown.meta["val"]
    if tensor.is_conj():
        shown = view(aten._conj.default, shown)
    if tensor.is_neg():
        shown = view(aten._neg_view.default, shown)
    return shown


def has_partial_element(tensor: torch.Tensor) -> bool:
    """True if the storage size of a tensor is not a multiple of its element size."""
    # This adds a guard if the size is a symbol and the answer is not known.
    return bool(tensor.untyped_storage().nbytes() % tensor.element_size() != 0)
