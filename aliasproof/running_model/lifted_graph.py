"""Copies of captured graphs, with the tensors that are attributes of a graph as inputs.

Dynamo makes attributes of the parameters and the state of an optimizer, and of constants. A graph
writes attributes like inputs, so each run needs copies of them, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from aliasproof.judge.rounding_control import wide_argument
from aliasproof.targets.tracing import copied

_CONVERSIONS = ("float", "half", "bfloat16")


@dataclass(frozen=True, slots=True)
class LiftedGraph:
    """A graph whose first inputs are `captured`; `examples` are examples of all inputs.

    AOTAutograd, too, puts the attributes of a graph before its inputs: parameters, then buffers. It
    writes inputs back in this order, so another order would hide some miscompiles.
    """

    module: fx.GraphModule
    captured: Sequence[torch.Tensor]
    examples: Sequence[object]

    @classmethod
    def of(cls, module: fx.GraphModule, examples: Sequence[object]) -> LiftedGraph:
        """Lift a graph, with the example inputs that Dynamo gives to a backend."""
        made = snapshot(module)
        uses: dict[str, list[fx.Node]] = {}
        for node in made.graph.find_nodes(op="get_attr"):
            if isinstance(attrgetter(str(node.target))(module), torch.Tensor):
                uses.setdefault(str(node.target), []).append(node)
        captured = {name: attrgetter(name)(module) for name in _in_order(module, uses)}
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
    """The names of a module's tensors in the order of AOTAutograd; others come last."""
    known = [
        *dict(module.named_parameters(remove_duplicate=False)),
        *dict(module.named_buffers(remove_duplicate=False)),
    ]
    places = {name: place for place, name in enumerate(known)}
    return sorted(names, key=lambda name: places.get(name, len(places)))


def snapshot(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph and its subgraphs. A backend may change the graph that it gets."""
    root = torch.nn.Module()
    for name, value in (
        *module.named_buffers(recurse=False),
        *module.named_parameters(recurse=False),
    ):
        setattr(root, name, value)
    for node in module.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            part = attrgetter(str(node.target))(module)
            part = snapshot(part) if isinstance(part, fx.GraphModule) else part
            _set(root, str(node.target), part)
    made = copied(module.graph, root)
    made.meta = dict(module.meta)
    return made


def without_narrow_conversions(module: fx.GraphModule) -> fx.GraphModule:
    """The same graph with float64 instead of the narrower floating-point dtypes in its calls."""
    for part in (it for it in module.modules() if isinstance(it, fx.GraphModule)):
        for node in part.graph.nodes:
            if node.target in _CONVERSIONS and node.op == "call_method":
                node.target = "double"
            elif node.target not in ("view", torch.ops.aten.view.dtype):  # these reinterpret bits
                node.args = map_aggregate(node.args, wide_argument)
                node.kwargs = map_aggregate(node.kwargs, wide_argument)
        part.recompile()
    return module


def _set(root: torch.nn.Module, path: str, value: Any) -> None:
    *parts, last = path.split(".")
    for part in parts:
        if not hasattr(root, part):
            setattr(root, part, torch.nn.Module())
        root = getattr(root, part)
    setattr(root, last, value)


# --- eager graph ----------------------------------------------------------------------------------
#
# A captured graph with eager's semantics: marks that Dynamo leaves for compilers are executed.


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
    """Run a part of a model that is computed again in the backward pass.

    Torch's operator leaves random numbers to compilers: in eager, dropout would drop other elements
    in the second run.
    """
    options, others = _MARK.divide_kwargs(kwargs)
    context = getattr(part, "meta", {}).get("_checkpoint_context_fn")
    if context is not None:
        options["context_fn"] = context
    return checkpoint(part, *args, **{**options, "use_reentrant": False}, **others)


# --- graph names ----------------------------------------------------------------------------------
#
# Names for reports: of a captured graph by its lines in the model, of its inputs and outputs.


# Dynamo keeps a stack for each node. Its last frame outside of torch is the line of the model.
_FRAME = re.compile(r'File "(.+?)", line (\d+), in (\S+)')
_TORCH = str(Path(str(torch.__file__)).parent)
# How Dynamo writes `self.fc.weight`.
_SOURCE_PARTS = (
    (re.compile(r"\b[LG]\['(\w+)'\]"), r"\1"),
    (re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]"), r".\1"),
    # And `optimizer.state[p]`, by the index of the parameter.
    (re.compile(r"\[list\(dict\.keys\([^()]*\)\)\[(\d+)\]\]"), r"[\1]"),
    (re.compile(r"\bfn\.__self__\b"), "self"),
)


def where(graph: fx.Graph) -> str:
    """The lines that a graph was captured from, such as 'train.py:12-31 in forward'."""
    frames = [frame for node in graph.nodes if (frame := _frame(node))]
    if not frames:
        return "a graph without lines"
    file, _, first = frames[0]
    # Prefer a function, since a comprehension is inside one.
    function = next((name for _, _, name in frames if not name.startswith("<")), first)
    numbers = [int(line) for other, line, _ in frames if other == file]
    low, high = min(numbers), max(numbers)
    lines = str(low) if low == high else f"{low}-{high}"
    return f"{Path(file).name}:{lines} in {function}"


def _frame(node: fx.Node) -> tuple[str, str, str] | None:
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not frame[0].startswith(_TORCH)]
    file, line, function = (own or frames or [("", "", "")])[-1]
    return (file, line, function) if file else None


def place_names(graph: fx.Graph) -> dict[str, str]:
    """Names of locations: `input 'self.fc.weight'`, and outputs with the line of their code."""
    names = {}
    tensors = 0
    for node in graph.find_nodes(op="placeholder"):
        if is_number(node):
            continue
        names[f"input {tensors}"] = f"input '{_input_name(node)}'"
        tensors += 1
    outputs = graph.output_node().args[0]
    for index, output in enumerate(pytree.tree_leaves(outputs)):
        if isinstance(output, fx.Node):
            frame = _frame(output)
            at = "" if frame is None else f", {Path(frame[0]).name}:{frame[1]}"
            names[f"output {index}"] = f"output {index} ({output.name}{at})"
    return names


def is_number(placeholder: fx.Node) -> bool:
    """Whether this input of a graph is a number: a size that may change."""
    value = placeholder.meta.get("example_value", placeholder.meta.get("val"))
    return value is not None and not hasattr(value, "untyped_storage")


def _input_name(node: fx.Node) -> str:
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", None)
    text = str(name() if callable(name) else name or node.name)
    for pattern, replacement in _SOURCE_PARTS:
        text = pattern.sub(replacement, text)
    return text
