"""Building a graph call by call, with true metadata from the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.fx.node import map_aggregate

from reference_pass.exceptions import Refused
from reference_pass.metadata import set_value
from reference_pass.operator_forms import COPIES_STORAGE, aten, copy_form, leaves_in
from reference_pass.regions import Size


@dataclass(slots=True)
class Emitter:
    """Adds calls to a graph and runs each on fake tensors, so that `node.meta["val"]` is true for every node.

    `copies` says that views are to be emitted as view-copy ops. The caller has entered
    `on_fakes(mode)`.
    """

    graph: fx.Graph
    mode: FakeTensorMode
    copies: bool = False
    symbols: dict[str, Any] = field(default_factory=dict)

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A call and its metadata.

        Raises what the operator raises if it does not take these arguments.
        """
        if target in COPIES_STORAGE and holds_a_part(args[0].meta["val"]):
            args = (self.call(aten.clone.default, args[0]), *args[1:])
        args, kwargs = self._without_symbols((args, kwargs))
        packet = getattr(target, "overloadpacket", target)
        node = self.graph.create_node("call_function", target, args, kwargs, name=packet.__name__)
        try:
            set_value(node, self.mode)
        except Exception:
            self.graph.erase_node(node)
            raise
        return node

    def view(
        self, op: OpOverload, value: fx.Node, *args: Any, strides: Sequence[Size] | None = None
    ) -> fx.Node:
        """A view of a value, or its copy.

        A value may lie in memory otherwise than in eager (a strided write leaves a dense value), so
        that eager's view is not to be had of it; then it is copied first, to eager's strides if
        they are given.
        """
        form = copy_form(op) if self.copies else op
        assert form is not None, f"{op} has no copying form"
        try:
            return self.call(form, value, *args)
        except GuardOnDataDependentSymNode:
            raise
        except (RuntimeError, ValueError):
            sizes = value.meta["val"].shape
            place = contiguous_strides(sizes) if strides is None else strides
            return self.call(form, self.laid_out(value, sizes, place), *args)

    def _without_symbols(
        self, arguments: tuple[tuple[Any, ...], dict[str, Any]]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with a node for each symbolic size: the graph computes it from the sizes of its inputs."""
        symbols = [leaf for leaf in leaves_in(arguments) if isinstance(leaf, torch.SymInt)]
        missing = [each for each in symbols if str(each) not in self.symbols]
        if missing:
            try:
                nodes = self.graph.materialize_symints(missing)
            except (AssertionError, KeyError, RuntimeError, ValueError) as error:
                raise Refused(
                    f"the size {missing[0]} depends on numbers, and what is at hand does not tell it"
                ) from error
            self.symbols |= {str(each): node for each, node in zip(missing, nodes, strict=True)}
            for node in self.graph.nodes:
                if "val" not in node.meta:
                    set_value(node, self.mode)
        if not symbols:
            return arguments
        return map_aggregate(
            arguments, lambda a: self.symbols[str(a)] if isinstance(a, torch.SymInt) else a
        )

    def laid_out(self, value: fx.Node, sizes: Sequence[Size], strides: Sequence[Size]) -> fx.Node:
        """The value copied to memory of these strides."""
        place = self.call(aten.new_empty_strided.default, value, list(sizes), list(strides))
        return self.call(aten.copy.default, place, value)


def contiguous_strides(sizes: Sequence[Size]) -> list[Size]:
    """The strides of a contiguous tensor."""
    strides: list[Size] = [1] if len(sizes) else []
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * (max(size, 1) if isinstance(size, int) else size))
    return strides


def holds_a_part(tensor: torch.Tensor) -> bool:
    """True if the storage of a tensor holds no whole number of its elements."""
    nbytes: Any = tensor.untyped_storage().nbytes()  # a symbol, where sizes are
    return isinstance(nbytes, int) and nbytes % tensor.element_size() != 0
