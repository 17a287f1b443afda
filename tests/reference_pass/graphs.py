"""Graphs that are built by hand from calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from aliasproof.reference_pass.alias_analysis import Analysis, analyse
from aliasproof.reference_pass.eager.torch_semantics import EAGER


@dataclass(frozen=True)
class NthValue:
    """The n-th value of a graph, inputs first."""

    number: int


def graph_of(*calls: tuple[Any, ...], inputs: int = 1) -> fx.GraphModule:
    """A graph of `(op, *args)`. A `NthValue` among the arguments is a value of the graph."""
    graph = fx.Graph()
    values = [graph.placeholder(f"x{i}") for i in range(inputs)]

    def resolved(argument: Any) -> Any:
        if isinstance(argument, NthValue):
            return values[argument.number]
        return [resolved(each) for each in argument] if isinstance(argument, list) else argument

    for op, *args in calls:
        kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
        args = [resolved(each) for each in args]
        values.append(
            graph.call_function(
                op, tuple(args), {name: resolved(each) for name, each in kwargs.items()}
            )
        )
    graph.output(tuple(values))
    return fx.GraphModule({}, graph)


def calling(function: Callable[..., Any], inputs: int = 1) -> fx.GraphModule:
    """A graph that calls a function, as Dynamo puts functions that it allows into graphs."""
    graph = fx.Graph()
    arguments = tuple(graph.placeholder(f"x{index}") for index in range(inputs))
    graph.output(graph.call_function(function, arguments))
    return fx.GraphModule({}, graph)


def calls_of(graph_module: fx.GraphModule) -> list[str]:
    """The calls of a graph, as `add_.Tensor`."""
    called = [node for node in graph_module.graph.nodes if node.op == "call_function"]
    return [str(node.target).removeprefix("aten.") for node in called]


X, Y, Z, W = (NthValue(number) for number in range(4))

GRID = torch.arange(24.0).view(4, 6)
ROW = torch.arange(6.0)


def layout_of(tensor: torch.Tensor) -> tuple[object, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def analysis_of(graph_module: fx.GraphModule, inputs: Sequence[object]) -> Analysis:
    """The analysis as the passes compute it, with the semantics of torch."""
    return analyse(graph_module, inputs, EAGER)
