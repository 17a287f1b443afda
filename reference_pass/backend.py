"""`torch.compile(model, backend="aliasproof")`: Dynamo, the passes, and the graph run in eager.

Dynamo guards the sizes and strides of inputs, but not how they share storage. What the passes
decide depends on both. So the graph is compiled once per layout of its inputs (`_layout`), at the
first call with that layout.

If an input requires a gradient, AOTAutograd makes the forward and the backward graph, and the
passes compile each of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func

from reference_pass.functionalize import Views
from reference_pass.pipeline import pipeline


def aliasproof(
    graph_module: fx.GraphModule, example_inputs: Sequence[Any], *, views: Views = "alias"
) -> Callable[..., Any]:
    """The backend: from Dynamo's graph and example inputs to a callable that takes such inputs.

    `views` is that of `functionalize`.
    """
    if torch.is_grad_enabled() and any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in example_inputs
    ):
        boxed = functools.partial(_boxed, views)
        # Writes that autograd does not see stay in the graph: AOTAutograd's own epilogue would copy
        # under autograd, and the input would lose its gradient.
        backend = aot_autograd(
            fw_compiler=boxed, bw_compiler=boxed, keep_inference_input_mutations=True
        )
        return backend(graph_module, example_inputs)
    return Compiled(graph_module, views)


def _boxed(
    views: Views, graph_module: fx.GraphModule, example_inputs: Sequence[Any]
) -> Callable[..., Any]:
    return make_boxed_func(Compiled(graph_module, views))


class Compiled:
    """A graph module that is compiled once per layout of its inputs.

    `graphs` has the results, by layout.
    """

    def __init__(self, graph_module: fx.GraphModule, views: Views = "alias") -> None:
        self.graph_module, self.views = graph_module, views
        self.graphs: dict[Any, fx.GraphModule] = {}

    def __call__(self, *inputs: Any) -> Any:
        """Run on these inputs."""
        layout = _layout(inputs)
        # Dynamo calls this again for inputs of the same sizes that share storage in another way.
        if layout not in self.graphs:
            self.graphs[layout] = pipeline(self.graph_module, *inputs, views=self.views)
        with torch.no_grad():  # the graph has out= calls, which autograd refuses
            return self.graphs[layout](*inputs)


def _layout(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """All that the decisions of the passes depend on, as a key.

    That is which inputs share a storage, its size in bytes, and the layout of each input in it.
    """
    numbers: dict[int, int] = {}
    layout: list[Any] = []
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            layout.append(value)
            continue
        storage = value.untyped_storage()
        # Numbers in order of first use: addresses differ from call to call.
        number = numbers.setdefault(storage._cdata, len(numbers))
        layout.append(
            (
                number,
                storage.nbytes(),
                value.dtype,
                tuple(value.shape),
                value.stride(),
                value.storage_offset(),
            )
        )
    return tuple(layout)
