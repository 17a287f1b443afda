"""A captured graph as eager runs the model's code: what Dynamo only marks for compilers is done."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import checkpoint

from aliasproof.running_model.lifted_graph import snapshot

_MARK: Any = torch.ops.higher_order.tag_activation_checkpoint


def eager_graph(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of the graph to run in eager."""
    made = snapshot(module)
    for graph in (it for it in made.modules() if isinstance(it, fx.GraphModule)):
        marked = graph.graph.find_nodes(op="call_function", target=_MARK)
        for node in marked:
            node.target = _checkpointed
        if marked:
            graph.recompile()
    return made


def _checkpointed(part: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    """A part of a model that is computed again in the backward pass.

    The operator of torch leaves random numbers to compilers: in eager, dropout would drop other
    elements the second time.
    """
    options, others = _MARK.divide_kwargs(kwargs)
    context = getattr(part, "meta", {}).get("_checkpoint_context_fn")
    if context is not None:
        options["context_fn"] = context
    return checkpoint(part, *args, **{**options, "use_reentrant": False}, **others)
