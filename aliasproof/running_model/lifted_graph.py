"""Copies of captured graphs, in which the tensors that a graph has as attributes are inputs.

Dynamo makes attributes of the parameters and the state of an optimizer, and of constants. A graph
writes them like inputs, so each run needs copies of them, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

from aliasproof.targets.graph_snapshots import copied
from aliasproof.trials.rounding_control import wide_dtype

_CONVERSIONS = ("float", "half", "bfloat16")


@dataclass(frozen=True, slots=True)
class LiftedGraph:
    """A graph whose first inputs are `captured`; `examples` are those of all inputs.

    AOTAutograd, too, puts what a graph has as attributes before its inputs: parameters, then
    buffers. It writes inputs back in their order, so another order would hide some miscompiles.
    """

    module: fx.GraphModule
    captured: Sequence[torch.Tensor]
    examples: Sequence[object]

    @classmethod
    def of(cls, module: fx.GraphModule, examples: Sequence[object]) -> LiftedGraph:
        """Of a graph and the example inputs that Dynamo gives to a backend."""
        made = snapshot(module)
        uses: dict[str, list[fx.Node]] = {}
        for node in made.graph.find_nodes(op="get_attr"):
            if isinstance(_attribute(module, str(node.target)), torch.Tensor):
                uses.setdefault(str(node.target), []).append(node)
        captured = {name: _attribute(module, name) for name in _in_order(module, uses)}
        fakes: list[object] = []
        with made.graph.inserting_before(next(iter(made.graph.nodes))):
            inputs = {name: made.graph.placeholder(uses[name][0].name) for name in captured}
        for name, lifted in inputs.items():
            lifted.meta = dict(uses[name][0].meta)
            fakes.append(lifted.meta.get("example_value", captured[name]))
            for node in uses[name]:
                node.replace_all_uses_with(lifted)
                made.graph.erase_node(node)
        made.recompile()
        return cls(made, list(captured.values()), [*fakes, *examples])


def _in_order(module: fx.GraphModule, names: Iterable[str]) -> list[str]:
    """The names of tensors of a module as AOTAutograd orders them; others come last."""
    known = [
        *dict(module.named_parameters(remove_duplicate=False)),
        *dict(module.named_buffers(remove_duplicate=False)),
    ]
    places = {name: place for place, name in enumerate(known)}
    return sorted(names, key=lambda name: places.get(name, len(places)))


def snapshot(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph, and of the graphs in it. A backend may change the one that it gets."""
    root = torch.nn.Module()
    for name, value in (
        *module.named_buffers(recurse=False),
        *module.named_parameters(recurse=False),
    ):
        setattr(root, name, value)
    for node in module.graph.find_nodes(op="get_attr"):
        _set(root, str(node.target), _attribute(module, str(node.target)))
    for node in module.graph.find_nodes(op="call_module"):
        _set(root, str(node.target), _attribute(module, str(node.target)))
    made = copied(module.graph, root)
    made.meta = dict(module.meta)
    return made


def without_narrow_conversions(module: fx.GraphModule) -> fx.GraphModule:
    """The same graph, with float64 in place of narrower floating-point dtypes that calls name."""
    for part in (it for it in module.modules() if isinstance(it, fx.GraphModule)):
        for node in part.graph.nodes:
            if node.target in _CONVERSIONS and node.op == "call_method":
                node.target = "double"
            elif node.target not in ("view", torch.ops.aten.view.dtype):  # which reads bits
                node.args = map_aggregate(node.args, _wide_argument)
                node.kwargs = map_aggregate(node.kwargs, _wide_argument)
        part.recompile()
    return module


def _wide_argument(value: Any) -> Any:
    return wide_dtype(value) if isinstance(value, torch.dtype) else value


def _attribute(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part)
    return snapshot(owner) if isinstance(owner, fx.GraphModule) else owner


def _set(root: torch.nn.Module, path: str, value: Any) -> None:
    *parts, last = path.split(".")
    for part in parts:
        if not hasattr(root, part):
            setattr(root, part, torch.nn.Module())
        root = getattr(root, part)
    setattr(root, last, value)
