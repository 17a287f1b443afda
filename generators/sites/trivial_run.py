"""One run of Inductor's passes on a graph without calls.

It shows what cannot be read without a run: which passes an option switches on, the patterns that
torch makes lazily, and the passes that a function makes anew for each graph.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.fx_passes import freezing_patterns, joint_graph, post_grad, pre_grad
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode

CPU = torch.device("cpu")


def run_passes() -> None:
    """Run the passes before the gradient, on the joint graph, after it, and those of freezing.

    The joint graph's get the device that compilation gives, so that its patterns are made once.
    """
    for passes in PASSES.values():
        run_on_empty_graph(passes)


def run_on_empty_graph(passes: Callable[[fx.GraphModule], object]) -> None:
    """Run passes on a graph that returns its input."""
    mode = FakeTensorMode()
    graph = fx.Graph()
    given = graph.placeholder("given")
    given.meta["val"] = mode.from_tensor(torch.ones(2))
    graph.output((given,))
    with V.set_fake_mode(mode), torch.no_grad():
        passes(fx.GraphModule(torch.nn.Module(), graph))


def differentiate() -> None:
    """Compile the smallest function with a gradient that saves something for its backward pass."""
    aot_function(
        torch.sin,
        fw_compiler=lambda graph, inputs: graph,
        partition_fn=min_cut_rematerialization_partition,
    )(torch.ones(2, requires_grad=True))


def _examples(graph: fx.GraphModule) -> list[object]:
    return [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]


# By the name of the layer.
PASSES: dict[str, Callable[[fx.GraphModule], object]] = {
    "pre-grad": lambda graph: pre_grad.pre_grad_passes(graph, _examples(graph)),
    "joint graph": lambda graph: joint_graph.joint_graph_passes(graph, CPU),
    "post-grad": lambda graph: post_grad.post_grad_passes(graph, is_inference=True),
    "freezing": lambda graph: freezing_patterns.freezing_passes(graph, _examples(graph)),
}
