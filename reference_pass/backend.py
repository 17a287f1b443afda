"""`torch.compile(model, backend="aliasproof")`: Dynamo, the reference passes, and the graph run in eager.

Dynamo guards sizes and strides of inputs, not how they share storage; what the passes decide
depends on both. So the graph is compiled once for each way in which the inputs lie in memory
(`_layout`), when it is first called with such inputs.

Where gradients are wanted, AOTAutograd makes the forward and the backward graph, and each goes
through the passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func

from reference_pass.pipeline import pipeline


def aliasproof(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The backend: takes Dynamo's graph and example inputs, returns a callable of the same inputs."""
    if torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in example_inputs
    ):
        return aot_autograd(fw_compiler=_boxed, bw_compiler=_boxed)(graph_module, example_inputs)
    return Compiled(graph_module)


def _boxed(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    return make_boxed_func(Compiled(graph_module))


class Compiled:
    """A graph module that is compiled for each new layout of its inputs.

    `graphs` are the results, by layout.
    """

    def __init__(self, graph_module: fx.GraphModule) -> None:
        self.graph_module = graph_module
        self.graphs: dict[Any, fx.GraphModule] = {}

    def __call__(self, *inputs: Any) -> Any:
        """Run on these inputs."""
        layout = _layout(inputs)
        if layout not in self.graphs:
            self.graphs[layout] = pipeline(self.graph_module, *inputs)
        with torch.no_grad():
            return self.graphs[layout](*inputs)


def _layout(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """All that the passes go by: which inputs share a storage, its size, and how each lies in it."""
    numbers: dict[int, int] = {}
    layout: list[Any] = []
    for each in inputs:
        if not isinstance(each, torch.Tensor):
            layout.append(each)
            continue
        storage = each.untyped_storage()
        number = numbers.setdefault(storage._cdata, len(numbers))
        layout.append(
            (
                number,
                storage.nbytes(),
                each.dtype,
                tuple(each.shape),
                each.stride(),
                each.storage_offset(),
            )
        )
    return tuple(layout)
