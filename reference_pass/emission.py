"""Building a graph call by call, with true metadata from the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from reference_pass.metadata import set_value
from reference_pass.operators import COPIES_STORAGE, aten, copy_form
from reference_pass.regions import Size


@dataclass(slots=True)
class Emitter:
    """Adds calls to a graph and runs each on fake tensors, so that `node.meta["val"]` is true for every node.

    `copies` says that views are to be emitted as view-copy ops. The caller has entered `mode` and no_grad.
    """

    graph: fx.Graph
    mode: FakeTensorMode
    copies: bool = False

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A call and its metadata. Raises what the operator raises if it does not take these arguments."""
        if target in COPIES_STORAGE and holds_a_part(args[0].meta["val"]):
            args = (self.call(aten.clone.default, args[0]), *args[1:])
        packet = getattr(target, "overloadpacket", target)
        node = self.graph.create_node("call_function", target, args, kwargs, name=packet.__name__)
        try:
            set_value(node, self.mode)
        except Exception:
            self.graph.erase_node(node)
            raise
        return node

    def view(self, op: OpOverload, value: fx.Node, *args: Any) -> fx.Node:
        """A view of a value, or its copy.

        A value may lie in memory otherwise than in eager (a strided write leaves a dense value), so that eager's view is
        not to be had of it; then it is copied first.
        """
        form = copy_form(op) if self.copies else op
        assert form is not None, f"{op} has no copying form"
        try:
            return self.call(form, value, *args)
        except (RuntimeError, ValueError):
            dense = self.call(aten.clone.default, value, memory_format=torch.contiguous_format)
            return self.call(form, dense, *args)

    def sizes(self, value: fx.Node) -> list[Any]:
        """The sizes of a value as arguments: numbers, and nodes for symbols."""
        tensor = value.meta["val"]
        return [self.number(size, value, dim) for dim, size in enumerate(tensor.shape)]

    def number(self, size: Size, value: fx.Node, dim: int) -> Any:
        """A size as an argument."""
        return size if isinstance(size, int) else self.call(aten.sym_size.int, value, dim)

    def laid_out(self, value: fx.Node, sizes: Sequence[Size], strides: Sequence[Size]) -> fx.Node:
        """The value copied to memory of these strides."""
        place = self.call(aten.new_empty_strided.default, value, list(sizes), list(strides))
        return self.call(aten.copy.default, place, value)


def holds_a_part(tensor: torch.Tensor) -> bool:
    """True if the storage of a tensor holds no whole number of its elements."""
    nbytes = tensor.untyped_storage().nbytes()
    return isinstance(nbytes, int) and nbytes % tensor.element_size() != 0
