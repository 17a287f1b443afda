"""The JSON form of an `fx.Graph`: its nodes in their order, with names in place of functions.

Reading it executes nothing. A mistake in it is a `UserError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from aliasproof.programs.errors import UserError, shown
from aliasproof.programs.graph_ops import (
    function_of_name,
    name_of_function,
    require_arguments,
    require_method,
)
from aliasproof.programs.serialization import DTYPE_BY_NAME, SPECIAL_FLOATS, dtype_name

DEEPEST = 16  # nesting of lists in an argument
MOST_NODES = 100_000
_KINDS = ("placeholder", "get_attr", "call_function", "call_method", "output")
_FORMATS = {
    str(it): it
    for it in (
        torch.contiguous_format,
        torch.preserve_format,
        torch.channels_last,
        torch.channels_last_3d,
    )
}
_LAYOUTS = {str(torch.strided): torch.strided}


# --- writing --------------------------------------------------------------------------------------


def graph_to_json(graph: fx.Graph) -> list[dict[str, Any]]:
    """The nodes. Raises `UserError` for a call or an argument that a file cannot say."""
    return [_node_to_json(node) for node in graph.nodes]


def _node_to_json(node: fx.Node) -> dict[str, Any]:
    if node.op not in _KINDS:
        raise UserError(f"a stored graph cannot have a node of kind {node.op} ({node.target})")
    written: dict[str, Any] = {"name": node.name, "op": node.op}
    if node.op == "call_function":
        written["target"] = name_of_function(node.target)
    elif node.op == "call_method":
        written["target"] = require_method(str(node.target))
    elif node.op == "get_attr":
        written["target"] = str(node.target)
    if node.op != "placeholder":
        written["args"] = [_to_json(value) for value in node.args]
        written["kwargs"] = {key: _to_json(value) for key, value in node.kwargs.items()}
    return written


def _to_json(value: Any) -> Any:
    """An argument. What JSON has no form for is an object with one key."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        return {"tuple": [_to_json(element) for element in value]}
    if isinstance(value, list):
        return [_to_json(element) for element in value]
    for kind, name, write in _FORMS:
        if isinstance(value, kind):
            return {name: write(value)}
    raise UserError(f"a stored graph cannot have an argument of type {type(value).__name__}")


# What JSON has no form for: its type, the key of the object that it becomes, and the value there.
_FORMS: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (fx.Node, "node", lambda node: node.name),
    (torch.dtype, "dtype", dtype_name),
    (torch.device, "device", str),
    (torch.memory_format, "memory_format", str),
    (torch.layout, "layout", str),
    (slice, "slice", lambda it: [_to_json(part) for part in (it.start, it.stop, it.step)]),
    (complex, "complex", lambda it: [_to_json(it.real), _to_json(it.imag)]),
    (type(...), "ellipsis", lambda _: True),
    (dict, "dict", lambda it: [[_to_json(key), _to_json(value)] for key, value in it.items()]),
)


# --- reading --------------------------------------------------------------------------------------


def graph_from_json(data: object, where: str, attributes: Mapping[str, object]) -> fx.Graph:
    """The graph. `attributes` are what a node may read by name.

    Raises `UserError`, which begins with `where`.
    """
    if not isinstance(data, list) or len(data) > MOST_NODES:
        raise UserError(f"{where}: expected a list of at most {MOST_NODES:,} nodes")
    reader = _Reader(fx.Graph(), {}, attributes)
    for index, node in enumerate(data):
        try:
            reader.add(node)
        except UserError as error:
            raise UserError(f"{where}[{index}]: {error}") from error
    if not data or data[-1].get("op") != "output":
        raise UserError(f"{where}: the last node must be the output")
    return reader.graph


class _Reader:
    def __init__(
        self, graph: fx.Graph, nodes: dict[str, fx.Node], attributes: Mapping[str, object]
    ) -> None:
        self.graph, self.nodes, self.attributes = graph, nodes, attributes

    def add(self, data: object) -> None:
        """Add a node. Raises `UserError`."""
        if not isinstance(data, dict):
            raise UserError(f"expected an object, got {shown(data)}")
        name, kind = data.get("name"), data.get("op")
        if not isinstance(name, str) or not name.isidentifier() or name in self.nodes:
            raise UserError(f"expected a name of its own, got {shown(name)}")
        if kind not in _KINDS:
            raise UserError(f"expected one of {', '.join(_KINDS)}, got {shown(kind)}")
        args = tuple(self._value(value, 0) for value in _items(data.get("args", [])))
        keywords = data.get("kwargs", {})
        if not isinstance(keywords, dict) or not all(key.isidentifier() for key in keywords):
            raise UserError(f"expected keyword arguments, got {shown(keywords)}")
        kwargs = {key: self._value(value, 0) for key, value in keywords.items()}
        target = self._target(kind, data.get("target", name), args)
        node = self.graph.create_node(kind, target, args, kwargs, name)
        self.nodes[name] = node

    def _target(self, kind: str, target: object, args: tuple[Any, ...]) -> str | Callable[..., Any]:
        if not isinstance(target, str):
            raise UserError(f"expected the name of a target, got {shown(target)}")
        if kind == "call_function":
            function = function_of_name(target)
            require_arguments(function, args)
            return function
        if kind == "call_method":
            return require_method(target)
        if kind == "get_attr" and target not in self.attributes:
            raise UserError(f"there is no {shown(target)} among the constants and graphs")
        return target

    def _value(self, data: Any, depth: int) -> Any:
        if depth > DEEPEST:
            raise UserError(f"lists are nested more than {DEEPEST} deep")
        if data is None or isinstance(data, (bool, int, float, str)):
            return data
        if isinstance(data, list):
            return [self._value(element, depth + 1) for element in data]
        if not isinstance(data, dict) or len(data) != 1:
            raise UserError(f"expected an argument, got {shown(data)}")
        (kind, value), *_ = data.items()
        if kind in ("tuple", "slice", "complex"):
            elements = [self._value(element, depth + 1) for element in _items(value)]
            return _joined(kind, elements)
        if kind == "dict":
            pairs = [[self._value(it, depth + 1) for it in _items(pair)] for pair in _items(value)]
            return _mapping(pairs)
        return self._named(kind, value)

    def _named(self, kind: object, value: Any) -> Any:
        tables: dict[object, Mapping[Any, Any]] = {
            "node": self.nodes,
            "dtype": DTYPE_BY_NAME,
            "float": SPECIAL_FLOATS,
            "memory_format": _FORMATS,
            "layout": _LAYOUTS,
        }
        if kind == "ellipsis":
            return ...
        if kind == "device" and isinstance(value, str):
            try:
                return torch.device(value)
            except RuntimeError as error:
                raise UserError(f"unknown device {shown(value)}") from error
        if kind not in tables or not isinstance(value, str) or value not in tables[kind]:
            raise UserError(f"unknown {shown(kind)}: {shown(value)}")
        return tables[kind][value]


def _items(data: object) -> list[Any]:
    if not isinstance(data, list):
        raise UserError(f"expected a list, got {shown(data)}")
    return data


def _joined(kind: object, elements: list[Any]) -> Any:
    if kind == "tuple":
        return tuple(elements)
    if kind == "slice" and len(elements) == 3:
        return slice(*elements)
    if kind == "complex" and len(elements) == 2 and all(isinstance(it, float) for it in elements):
        return complex(*elements)
    raise UserError(f"unknown {shown(kind)}: {shown(elements)}")


def _mapping(pairs: list[list[Any]]) -> dict[Any, Any]:
    if not all(len(pair) == 2 and isinstance(pair[0], (str, int)) for pair in pairs):
        raise UserError(f"expected pairs of a key and a value, got {shown(pairs)}")
    return {key: value for key, value in pairs}  # noqa: C416 - for mypy, a list is no pair
