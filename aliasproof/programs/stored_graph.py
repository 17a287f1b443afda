"""`StoredGraph`: an `fx.GraphModule` with the inputs of one call, in a folder.

`graph.json` has the graph and the layouts of all tensors, `storages.safetensors` the bytes of their
storages, in the format of that library. Nothing in them is executed, and nothing is unpickled.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx

from aliasproof.programs.errors import UserError, shown
from aliasproof.programs.graph_json import graph_from_json, graph_to_json
from aliasproof.programs.serialization import DTYPE_BY_NAME, dtype_name
from aliasproof.programs.storage_bytes import bytes_of
from aliasproof.programs.stored_text import read_text
from aliasproof.programs.values import STATIC

GRAPH, STORAGES = "graph.json", "storages.safetensors"
VERSION = 1
MOST_BYTES = 16 * 2**30  # of all storages
_STATIC_TYPES = (None, "guarded", "unguarded")
_DEEPEST = 8  # graphs within graphs


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """A graph, the inputs of a call of it, and what is known of the two, as texts by name."""

    module: fx.GraphModule
    inputs: Sequence[object]
    about: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write both files. Raises `UserError` for what a file cannot say, before it writes one."""
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
        """Read both files. Raises `UserError` with the file and the place of a mistake."""
        file, data = folder / GRAPH, _read_json(folder)
        storages = _read_storages(folder / STORAGES, folder)
        try:
            return _from_json(data, storages)
        except UserError as error:
            raise UserError(f"{file}: {error}") from error


def is_stored_graph(path: Path) -> bool:
    """Whether a path is a folder with a graph of this form."""
    return (path / GRAPH).is_file()


def about_graph(folder: Path) -> dict[str, str]:
    """What is known of a stored graph, without its tensors. Raises `UserError`."""
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
        name, value = str(node.target), _attribute(module, str(node.target))
        if isinstance(value, fx.GraphModule):
            graphs[name] = _module_to_json(value, layouts)
        elif isinstance(value, torch.Tensor):
            constants[name] = layouts.of(value)
        else:
            raise UserError(f"a stored graph cannot have a constant of {type(value).__name__}")
    return {"constants": constants, "graphs": graphs, "nodes": graph_to_json(module.graph)}


def _attribute(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part)
    return owner


def _from_json(data: object, storages: Sequence[torch.Tensor]) -> StoredGraph:
    fields = _object(data, "", ("version", "about", "inputs", "graph"))
    if fields["version"] != VERSION:
        raise UserError(f"version: this aliasproof reads {VERSION}, not {shown(fields['version'])}")
    about = {str(key): str(value) for key, value in _object(fields["about"], "about").items()}
    inputs = _list(fields["inputs"], "inputs")
    values = [_value(it, f"inputs[{index}]", storages) for index, it in enumerate(inputs)]
    module = _module(fields["graph"], "graph", storages)
    wanted = len(module.graph.find_nodes(op="placeholder"))
    if wanted != len(values):
        raise UserError(f"the graph takes {wanted} inputs, and there are {len(values)}")
    return StoredGraph(module, values, about)


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
    given = {"static": None, **_object(data, where)}  # older files do not have it
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
    last = sum((size - 1) * step for size, step in zip(*place, strict=True))
    end = 0 if 0 in place[0] else (offset + last + 1) * dtype.itemsize
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
    """The bytes of each storage, in their order."""
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
        return [_part(body, *span) for span in spans]
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{file} is not in the format of safetensors: {shown(str(error))}"
        ) from error


def _part(body: torch.Tensor, begin: object, end: object) -> torch.Tensor:
    if type(begin) is not int or type(end) is not int or not 0 <= begin <= end <= body.numel():
        raise ValueError(f"no bytes {begin} to {end}")
    return body[begin:end].clone()
