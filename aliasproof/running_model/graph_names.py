"""Names in reports: of a captured graph by its lines in the model, of its inputs and outputs."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import fx

# Dynamo keeps a stack for each node. The last frame outside of torch is the line of the model.
_FRAME = re.compile(r'File "(.+?)", line (\d+), in (\S+)')
_TORCH = str(Path(str(torch.__file__)).parent)
# How Dynamo writes `self.fc.weight`.
_SOURCE_PARTS = (
    (re.compile(r"\b[LG]\['(\w+)'\]"), r"\1"),
    (re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]"), r".\1"),
    # And `optimizer.state[p]`, of the parameter with this number.
    (re.compile(r"\[list\(dict\.keys\([^()]*\)\)\[(\d+)\]\]"), r"[\1]"),
    (re.compile(r"\bfn\.__self__\b"), "self"),
)


def where(graph: fx.Graph) -> str:
    """The lines that a graph was captured from, such as 'train.py:12-31 in forward'."""
    frames = [frame for node in graph.nodes if (frame := _frame(node))]
    if not frames:
        return "a graph without lines"
    file, _, first = frames[0]
    # A comprehension is within a function.
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
    """Names of places: `input 'self.fc.weight'`, and outputs with the line that computes them."""
    names = {}
    tensors = 0
    for node in graph.find_nodes(op="placeholder"):
        if is_number(node):
            continue
        names[f"input {tensors}"] = f"input '{_input_name(node)}'"
        tensors += 1
    outputs = graph.output_node().args[0]
    for index, output in enumerate(_leaves(outputs)):
        if isinstance(output, fx.Node):
            names[f"output {index}"] = f"output {index} ({_computed_at(output)})"
    return names


def is_number(placeholder: fx.Node) -> bool:
    """Whether a graph gets a number here: a size that may change."""
    value = placeholder.meta.get("example_value", placeholder.meta.get("val"))
    return value is not None and not hasattr(value, "untyped_storage")


def _leaves(value: object) -> list[object]:
    if isinstance(value, (list, tuple)):
        return [leaf for element in value for leaf in _leaves(element)]
    return [value]


def _input_name(node: fx.Node) -> str:
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", None)
    text = str(name() if callable(name) else name or node.name)
    for pattern, replacement in _SOURCE_PARTS:
        text = pattern.sub(replacement, text)
    return text


def _computed_at(node: fx.Node) -> str:
    frame = _frame(node)
    return node.name if frame is None else f"{node.name}, {Path(frame[0]).name}:{frame[1]}"
