"""Copies of captured graphs, in which the tensors that a graph has as attributes are inputs.

Dynamo makes attributes of the parameters and the state of an optimizer, and of constants. A graph
writes them like inputs, so each run needs copies of them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from aliasproof.targets.graph_snapshots import copied


@dataclass(frozen=True, slots=True)
class LiftedGraph:
    """A graph whose last inputs are `captured`; `examples` are those of all inputs."""

    module: fx.GraphModule
    captured: Sequence[torch.Tensor]
    examples: Sequence[object]

    @classmethod
    def of(cls, module: fx.GraphModule, examples: Sequence[object]) -> LiftedGraph:
        """Of a graph and the example inputs that Dynamo gives to a backend."""
        made = snapshot(module)
        captured: dict[str, torch.Tensor] = {}
        inputs: dict[str, fx.Node] = {}
        fakes: list[object] = []
        last = next(reversed(made.graph.find_nodes(op="placeholder")), None)
        for node in made.graph.find_nodes(op="get_attr"):
            name, value = str(node.target), _attribute(module, str(node.target))
            if not isinstance(value, torch.Tensor):
                continue
            if name not in captured:
                captured[name] = value
                fakes.append(node.meta.get("example_value", value))
                begin = next(iter(made.graph.nodes))
                after = (
                    made.graph.inserting_before(begin)
                    if last is None
                    else (made.graph.inserting_after(last))
                )
                with after:
                    last = inputs[name] = made.graph.placeholder(node.name)
                last.meta = dict(node.meta)
            node.replace_all_uses_with(inputs[name])
            made.graph.erase_node(node)
        made.recompile()
        return cls(made, list(captured.values()), [*examples, *fakes])


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
