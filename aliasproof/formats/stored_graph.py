"""`StoredGraph`: an `fx.GraphModule` with the inputs of one call, in a folder.

`graph.json` has the graph and the layouts of all tensors, `storages.safetensors` the bytes of their
storages, in the format of that library. Nothing in them is executed, and nothing is unpickled.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import fx

from aliasproof.formats.graph_ops import (
    function_of_name,
    name_of_function,
    require_arguments,
    require_method,
)
from aliasproof.ir.errors import UserError, shown
from aliasproof.ir.regions import reach
from aliasproof.ir.serialization import DTYPE_BY_NAME, SPECIAL_FLOATS, dtype_name
from aliasproof.ir.stored_text import read_text
from aliasproof.ir.values import STATIC, bytes_of

# --- graph json -----------------------------------------------------------------------------------
#
# The nodes of an `fx.Graph`, in order, with names in place of functions.


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
    """An argument as JSON. A value without a form in JSON becomes an object with one key."""
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


# Values without a form in JSON: their type, the key of the object that they become, its value.
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
    """The graph. `attributes` are the values that a node may read by name.

    Raises `UserError`, which begins with `where`.
    """
    if not isinstance(data, list) or len(data) > MOST_NODES:
        raise UserError(f"{where}: expected a list of at most {MOST_NODES:,} nodes")
    reader = _Reader(attributes)
    for index, node in enumerate(data):
        try:
            reader.add(node)
        except UserError as error:
            raise UserError(f"{where}[{index}]: {error}") from error
    if not data or data[-1].get("op") != "output":
        raise UserError(f"{where}: the last node must be the output")
    return reader.graph


class _Reader:
    def __init__(self, attributes: Mapping[str, object]) -> None:
        self.graph, self.attributes = fx.Graph(), attributes
        self.nodes: dict[str, fx.Node] = {}

    def add(self, data: object) -> None:
        """Add a node. Raises `UserError` if it is not valid."""
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
        target: Any = data.get("target", name)
        if not isinstance(target, str):
            raise UserError(f"expected the name of a target, got {shown(target)}")
        if kind == "call_function":
            target = function_of_name(target)
            require_arguments(target, args)
        elif kind == "call_method":
            require_method(target)
        elif kind == "get_attr" and target not in self.attributes:
            raise UserError(f"there is no {shown(target)} among the constants and graphs")
        node = self.graph.create_node(kind, target, args, kwargs, name)
        self.nodes[name] = node

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
            if kind == "tuple":
                return tuple(elements)
            if kind == "slice" and len(elements) == 3:
                return slice(*elements)
            if kind == "complex" and [*map(type, elements)] == [float, float]:
                return complex(*elements)
            raise UserError(f"unknown {shown(kind)}: {shown(elements)}")
        if kind == "dict":
            pairs = [[self._value(it, depth + 1) for it in _items(pair)] for pair in _items(value)]
            if not all(len(pair) == 2 and isinstance(pair[0], (str, int)) for pair in pairs):
                raise UserError(f"expected pairs of a key and a value, got {shown(pairs)}")
            return {key: value for key, value in pairs}  # noqa: C416 - for mypy, a list is no pair
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


# --- stored graph ---------------------------------------------------------------------------------


GRAPH, STORAGES = "graph.json", "storages.safetensors"
VERSION = 1
MOST_BYTES = 16 * 2**30  # of all storages
_STATIC_TYPES = (None, "guarded", "unguarded")
_DEEPEST = 8  # graphs within graphs


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """A graph, the inputs of a call of it, and facts about both, as texts by name."""

    module: fx.GraphModule
    inputs: Sequence[object]
    about: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write both files. Raises `UserError` before that if a file cannot express the graph."""
        layouts = _Layouts()
        written = {
            "version": VERSION,
            "about": dict(self.about),
            "inputs": [layouts.of(value) for value in self.inputs],
            "graph": _module_to_json(self.module, layouts),
        }
        text = _lines(written)
        folder.mkdir(parents=True)
        (folder / GRAPH).write_text(text + "\n", encoding="utf-8")
        _write_storages(folder / STORAGES, layouts.storages)

    @classmethod
    def read(cls, folder: Path) -> StoredGraph:
        """Read both files. Raises `UserError` with the file and the location of an error."""
        file, data = folder / GRAPH, _read_json(folder)
        storages = _read_storages(folder / STORAGES, folder)
        try:
            fields = _object(data, "", ("version", "about", "inputs", "graph"))
            if (version := fields["version"]) != VERSION:
                raise UserError(f"version: this aliasproof reads {VERSION}, not {shown(version)}")
            about = {str(key): str(it) for key, it in _object(fields["about"], "about").items()}
            inputs = _list(fields["inputs"], "inputs")
            values = [_value(it, f"inputs[{index}]", storages) for index, it in enumerate(inputs)]
            module = _module(fields["graph"], "graph", storages)
            wanted = len(module.graph.find_nodes(op="placeholder"))
            if wanted != len(values):
                raise UserError(f"the graph takes {wanted} inputs, and there are {len(values)}")
            return StoredGraph(module, values, about)
        except UserError as error:
            raise UserError(f"{file}: {error}") from error


def is_stored_graph(path: Path) -> bool:
    """True if a path is a folder with a graph of this form."""
    return (path / GRAPH).is_file()


def about_graph(folder: Path) -> dict[str, str]:
    """The facts about a stored graph, without its tensors. Raises `UserError` if it is invalid."""
    data = _read_json(folder)
    fields = _object(data.get("about") if isinstance(data, dict) else None, f"{folder / GRAPH}")
    return {str(key): str(value) for key, value in fields.items()}


def _read_json(folder: Path) -> object:
    file = folder / GRAPH
    try:
        data: object = json.loads(read_text(file, within=folder))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: not JSON: {shown(str(error))}") from error
    return data


def _lines(value: Any, indent: str = "") -> str:
    """JSON with a line for each entry of the outer objects, for each input, and for each node."""
    inner = f"{indent} "
    if isinstance(value, dict) and any(isinstance(it, (dict, list)) for it in value.values()):
        if indent and not {"nodes", "constants"} & value.keys():
            return json.dumps(value, allow_nan=False)
        parts = [f"{inner}{json.dumps(key)}: {_lines(it, inner)}" for key, it in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(it, dict) for it in value):
        parts = [f"{inner}{json.dumps(it, allow_nan=False)}" for it in value]
        return "[\n" + ",\n".join(parts) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)


# --- graphs ---------------------------------------------------------------------------------------


def _module_to_json(module: fx.GraphModule, layouts: _Layouts) -> dict[str, Any]:
    constants, graphs = {}, {}
    for node in module.graph.find_nodes(op="get_attr"):
        name, value = str(node.target), attrgetter(str(node.target))(module)
        if isinstance(value, fx.GraphModule):
            graphs[name] = _module_to_json(value, layouts)
        elif isinstance(value, torch.Tensor):
            constants[name] = layouts.of(value)
        else:
            raise UserError(f"a stored graph cannot have a constant of {type(value).__name__}")
    nodes = [_node_to_json(node) for node in module.graph.nodes]
    return {"constants": constants, "graphs": graphs, "nodes": nodes}


def _module(
    data: object, where: str, storages: Sequence[torch.Tensor], depth: int = 0
) -> fx.GraphModule:
    if depth > _DEEPEST:
        raise UserError(f"{where}: graphs are nested more than {_DEEPEST} deep")
    fields = _object(data, where, ("constants", "graphs", "nodes"))
    root = torch.nn.Module()
    for name, value in _object(fields["constants"], f"{where}.constants").items():
        root.register_buffer(_name(name, where), _tensor(value, f"{where}.{name}", storages))
    for name, value in _object(fields["graphs"], f"{where}.graphs").items():
        graph = _module(value, f"{where}.{name}", storages, depth + 1)
        root.add_module(_name(name, where), graph)
    known = {**dict(root.named_buffers()), **dict(root.named_children())}
    return fx.GraphModule(root, graph_from_json(fields["nodes"], f"{where}.nodes", known))


def _name(name: str, where: str) -> str:
    if not name.isidentifier() or hasattr(torch.nn.Module, name):
        raise UserError(f"{where}: expected a name for a constant or a graph, got {shown(name)}")
    return name


# --- tensors --------------------------------------------------------------------------------------


class _Layouts:
    """The layouts of tensors, and the storages that they are in."""

    def __init__(self) -> None:
        self.storages: list[torch.UntypedStorage] = []
        self._numbers: dict[int, int] = {}

    def of(self, value: object) -> dict[str, Any]:
        """A tensor or a number. Raises `UserError` for any other value."""
        if isinstance(value, float) and not math.isfinite(value):
            return {"value": str(value)}
        if value is None or isinstance(value, (bool, int, float)):
            return {"value": value}
        if not isinstance(value, torch.Tensor):
            raise UserError(f"a stored graph cannot have an input of {type(value).__name__}")
        storage = value.untyped_storage()
        number = self._numbers.setdefault(storage._cdata, len(self.storages))
        if number == len(self.storages):
            self.storages.append(storage)
        return {
            "storage": number,
            "dtype": dtype_name(value.dtype),
            "device": str(value.device),
            "sizes": list(value.shape),
            "strides": list(value.stride()),
            "offset": value.storage_offset(),
            "requires_grad": value.requires_grad,
            "leaf": value.is_leaf,
            "parameter": isinstance(value, torch.nn.Parameter),
            "static": getattr(value, STATIC, None),
        }


def _value(data: object, where: str, storages: Sequence[torch.Tensor]) -> object:
    if isinstance(data, dict) and data.keys() == {"value"}:
        value = data["value"]
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if value in ("inf", "-inf", "nan"):
            return float(value)
        raise UserError(f"{where}: expected a number, got {shown(value)}")
    return _tensor(data, where, storages)


_LAYOUT = ("storage", "dtype", "device", "sizes", "strides", "offset", "requires_grad")


def _tensor(data: object, where: str, storages: Sequence[torch.Tensor]) -> torch.Tensor:
    given = {"static": None, **_object(data, where)}  # older files do not have this key
    fields = _object(given, where, (*_LAYOUT, "leaf", "parameter", "static"))
    tensor, static = _dense(fields, where, storages), fields["static"]
    if static not in _STATIC_TYPES:
        raise UserError(f"{where}.static: expected one of {_STATIC_TYPES}, got {shown(static)}")
    if static is not None:
        setattr(tensor, STATIC, static)
    return tensor


def _dense(fields: Mapping[str, Any], where: str, storages: Sequence[torch.Tensor]) -> torch.Tensor:
    number, dtype = fields["storage"], DTYPE_BY_NAME.get(str(fields["dtype"]))
    if dtype is None or type(number) is not int or not 0 <= number < len(storages):
        raise UserError(f"{where}: expected a dtype and one of {len(storages)} storages")
    place = [_integers(fields[name], f"{where}.{name}") for name in ("sizes", "strides")]
    offset = _integers([fields["offset"]], f"{where}.offset")[0]
    if len(place[0]) != len(place[1]):
        raise UserError(f"{where}: there are {len(place[0])} sizes and {len(place[1])} strides")
    end = 0 if 0 in place[0] else (offset + reach(*place)) * dtype.itemsize
    storage = storages[number]
    if end > storage.numel():
        raise UserError(f"{where}: ends at byte {end} of a storage with {storage.numel()}")
    tensor = torch.empty(0, dtype=dtype).set_(storage.untyped_storage(), offset, *place)
    if fields["requires_grad"] is not True:
        return torch.nn.Parameter(tensor, False) if fields["parameter"] is True else tensor
    if not (dtype.is_floating_point or dtype.is_complex):
        raise UserError(f"{where}: a tensor of {dtype} cannot require gradients")
    if fields["parameter"] is True:
        return torch.nn.Parameter(tensor)
    if fields["leaf"] is not False:
        return tensor.requires_grad_()
    # A result of autograd, in the memory that it may share with others.
    result = tensor.clone().requires_grad_().clone()
    result.data = tensor
    return result


def _integers(data: object, where: str) -> list[int]:
    values = _list(data, where)
    if not all(type(value) is int and 0 <= value < 2**48 for value in values):
        raise UserError(f"{where}: expected integers from 0, got {shown(data)}")
    return values


def _list(data: object, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise UserError(f"{where}: expected a list, got {shown(data)}")
    return data


def _object(data: object, where: str, keys: Sequence[str] | None = None) -> dict[str, Any]:
    if not isinstance(data, dict) or (keys is not None and data.keys() != set(keys)):
        wanted = "an object" if keys is None else f"an object with the keys {', '.join(keys)}"
        raise UserError(f"{where or 'graph'}: expected {wanted}, got {shown(data)}")
    return data


# --- bytes: https://huggingface.co/docs/safetensors, a header in JSON, and the data behind it -----


def _write_storages(file: Path, storages: Sequence[torch.UntypedStorage]) -> None:
    header, end = {}, 0
    for number, storage in enumerate(storages):
        begin, end = end, end + storage.nbytes()
        header[str(number)] = {
            "dtype": "U8",
            "shape": [storage.nbytes()],
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as written:
        written.write(struct.pack("<Q", len(text)) + text)
        for storage in storages:
            written.write(bytes_of(storage).cpu().numpy().tobytes())


def _read_storages(file: Path, folder: Path) -> list[torch.Tensor]:
    """The bytes of each storage, in order."""
    if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{file} is not a regular file in its folder")
    if file.stat().st_size > MOST_BYTES:
        raise UserError(f"{file} has more than {MOST_BYTES:,} bytes")
    data = bytearray(file.read_bytes())
    try:
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        body = torch.frombuffer(data, dtype=torch.uint8)[8 + length :]
        spans = [header[str(number)]["data_offsets"] for number in range(len(header))]
        parts = []
        for begin, end in spans:
            if not (type(begin) is type(end) is int and 0 <= begin <= end <= body.numel()):
                raise ValueError(f"no bytes {begin} to {end}")
            parts.append(body[begin:end].clone())
        return parts
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{file} is not in the format of safetensors: {shown(str(error))}"
        ) from error
