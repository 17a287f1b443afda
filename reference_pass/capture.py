"""From a function, or any graph module, to a graph of ATen calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx

from reference_pass.operators import aten, on_copies

Sizes = Literal["fixed", "symbolic"]


def capture(function: Callable[..., Any], sample_args: Sequence[object], sizes: Sizes = "fixed") -> fx.GraphModule:
    """The ATen calls of a function as a graph, mutation included. A graph of ATen calls is taken as it is.

    The function is traced on fake tensors: the sample arguments are not run on and not mutated.
    """
    if isinstance(function, fx.GraphModule) and is_aten(function):
        return function
    mode = "symbolic" if sizes == "symbolic" else "fake"
    with torch.no_grad():
        traced: fx.GraphModule = make_fx(
            function, decomposition_table=HONEST, tracing_mode=mode, _allow_non_fake_inputs=True
        )(*sample_args)
    return traced


def is_aten(graph_module: fx.GraphModule) -> bool:
    """True if all calls are ATen calls (or pick their results, or are arithmetic on sizes)."""
    return all(
        node.op in ("placeholder", "get_attr", "output")
        or (node.op == "call_function" and (_is_call(node.target)))
        for node in graph_module.graph.nodes
    )


def _is_call(target: object) -> bool:
    return isinstance(target, OpOverload) or target is on_copies or getattr(target, "__module__", "") == "_operator"


# --- operators whose schemas hide a mutation ---------------------------------------------------------------------------


def _batch_norm(input: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *numbers: float) -> Any:
    """`native_batch_norm` updates the running statistics and does not say so; `_native_batch_norm_legit` does."""
    if training and mean is not None and var is not None:
        return aten._native_batch_norm_legit.default(input, weight, bias, mean, var, training, *numbers)
    return NotImplemented


HONEST: dict[Any, Callable[..., Any]] = {aten.native_batch_norm.default: _batch_norm}
