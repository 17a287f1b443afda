"""A file of `torch.export.save`: its graph, with the weights and with inputs of the same layouts.

`torch.export.load` unpickles sample inputs and custom objects, and imports what they name. Here the
JSON of the graph is read by its schema (`torch._export.serde.schema`), and weights as bytes. A
pickle in the archive is never read. Sample inputs are pickled, so inputs get values of the fill.
"""

from __future__ import annotations

import json
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._export.serde.schema import MemoryFormat, ScalarType

from aliasproof.formats.printed_graph import MOST_BYTES, FilledStorages, GraphOfFile
from aliasproof.formats.stored_graph import graph_from_json
from aliasproof.ir.errors import UserError, shown
from aliasproof.ir.regions import reach
from aliasproof.ir.serialization import dtype_name
from aliasproof.ir.stored_text import MOST_BYTES as LONGEST_JSON

# By the numbers in the schema.
_DTYPES = {
    ScalarType.BYTE.value: torch.uint8,
    ScalarType.CHAR.value: torch.int8,
    ScalarType.SHORT.value: torch.int16,
    ScalarType.INT.value: torch.int32,
    ScalarType.LONG.value: torch.int64,
    ScalarType.HALF.value: torch.float16,
    ScalarType.FLOAT.value: torch.float32,
    ScalarType.DOUBLE.value: torch.float64,
    ScalarType.COMPLEXFLOAT.value: torch.complex64,
    ScalarType.COMPLEXDOUBLE.value: torch.complex128,
    ScalarType.BOOL.value: torch.bool,
    ScalarType.BFLOAT16.value: torch.bfloat16,
    ScalarType.FLOAT8E4M3FN.value: torch.float8_e4m3fn,
    ScalarType.FLOAT8E5M2.value: torch.float8_e5m2,
    ScalarType.FLOAT8E4M3FNUZ.value: torch.float8_e4m3fnuz,
    ScalarType.FLOAT8E5M2FNUZ.value: torch.float8_e5m2fnuz,
}
_FORMATS = {
    MemoryFormat.ContiguousFormat.value: torch.contiguous_format,
    MemoryFormat.ChannelsLast.value: torch.channels_last,
    MemoryFormat.ChannelsLast3d.value: torch.channels_last_3d,
    MemoryFormat.PreserveFormat.value: torch.preserve_format,
}
_STRIDED = 7
# A symbol, or a number, in an expression of sizes as SymPy spells it.
_SYMBOL = re.compile(r"Symbol\('(\w+)'[^()]*\)|Integer\((\d+)\)")
_MUTATIONS = ("buffer_mutation", "parameter_mutation", "user_input_mutation")
_WEIGHTS = ("parameter", "buffer", "tensor_constant")


def read_exported(path: Path) -> GraphOfFile:
    """Read the only model in a file, with its weights as the first inputs.

    Nothing is executed or unpickled.

    Raises `UserError` for any other file, and for a model that a graph cannot express.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError("it is not a regular file")
        with zipfile.ZipFile(path) as archive:
            return _ArchiveReader(archive).read()
    except (zipfile.BadZipFile, zlib.error, OSError, NotImplementedError) as error:
        raise UserError(f"it is no archive of torch.export.save: {shown(str(error))}") from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        what = f"{type(error).__name__}: {shown(str(error))}"
        raise UserError(f"its graph is not of the form that torch writes: {what}") from error


@dataclass(slots=True)
class _ArchiveReader:
    """Reads an archive.

    `symbols` has the sizes of the example by their symbols, `numbers` by the names of their nodes.
    Weights in one file of the archive share its storage.
    """

    archive: zipfile.ZipFile
    filled: FilledStorages = field(default_factory=FilledStorages)
    without_bytes: list[str] = field(default_factory=list)
    symbols: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    _storages: dict[str, torch.UntypedStorage] = field(default_factory=dict)

    def read(self) -> GraphOfFile:
        models = [it for it in self.archive.namelist() if "/models/" in it and it.endswith(".json")]
        if not models:
            older = any(
                it.endswith("serialized_exported_program.json") for it in self.archive.namelist()
            )
            why = "an older torch wrote it; export it again" if older else "it has no models/*.json"
            raise UserError(f"it is no archive of torch.export.save: {why}")
        if len(models) > 1:
            raise UserError(f"it has {len(models)} models: {', '.join(map(shown, models))}")
        (model,) = models
        module = self._json(model)["graph_module"]
        name = model.rpartition("/")[2].removesuffix(".json")
        root = model.partition("/models/")[0]
        weights: dict[str, Any] = {}
        for folder in ("weights", "constants"):
            config = f"{root}/data/{folder}/{name}_{folder}_config.json"
            if config in self.archive.namelist():
                for key, entry in self._json(config)["config"].items():
                    weights[key] = f"{root}/data/{folder}", entry
        return self._graph(module["graph"], module["signature"], weights)

    def _json(self, name: str) -> Any:
        return json.loads(self._bytes(name, LONGEST_JSON))

    def _bytes(self, name: str, most: int) -> bytes:
        info = self.archive.getinfo(name)
        if info.file_size > most:
            raise UserError(f"{name} has {info.file_size:,} bytes; at most {most:,} are read")
        return self.archive.read(info)

    # --- the graph --------------------------------------------------------------------------------

    def _graph(self, graph: Any, signature: Any, weights: Mapping[str, Any]) -> GraphOfFile:
        self.numbers = {name: self._size(it) for name, it in graph["sym_int_values"].items()}
        nodes: list[dict[str, Any]] = []
        inputs: list[torch.Tensor | float] = []
        places: dict[str, str] = {}  # of weights and inputs in the graph, by their own names
        for number, (argument, spec) in enumerate(
            zip(graph["inputs"], signature["input_specs"], strict=True)
        ):
            name, value = self._input(argument, spec, weights, graph["tensor_values"], places)
            if value is not None:
                nodes.append({"name": name or f"number_{number}", "op": "placeholder"})
                inputs.append(value)
        for node in graph["nodes"]:
            nodes += _calls(node)
        nodes += _outputs(graph["outputs"], signature["output_specs"], places)
        made = graph_from_json(nodes, "graph", {})
        notes = ["sample inputs are pickled, so inputs have values of the fill"]
        if self.without_bytes:
            names = ", ".join(self.without_bytes)
            notes.append(f"weights with values of the fill, since theirs are pickled: {names}")
        if self.symbols:
            named = {_SYMBOL.sub(r"\1\2", text): size for text, size in self.symbols.items()}
            sizes = ", ".join(f"{name} = {size}" for name, size in named.items())
            notes.append(f"symbolic sizes are those of the example: {sizes}")
        return GraphOfFile(fx.GraphModule(torch.nn.Module(), made), inputs, tuple(notes))

    def _input(
        self, argument: Any, spec: Any, weights: Mapping[str, Any], layouts: Any, places: Any
    ) -> tuple[str, torch.Tensor | float | None]:
        (kind, fields), *_ = spec.items()
        if kind in _WEIGHTS:
            name, own = fields["arg"]["name"], fields[f"{kind}_name"]
            places[own] = name
            return name, self._weight(own, weights.get(own), layouts[name])
        if kind not in ("user_input", "constant_input"):
            raise UserError(f"a graph cannot have an input of the kind {shown(kind)}")
        (form, value), *_ = argument.items()
        if form == "as_tensor":
            places[value["name"]] = value["name"]
            return value["name"], self._filled_tensor(layouts[value["name"]])
        if form == "as_sym_int":
            return value["as_name"], self.numbers[value["as_name"]]
        if form in ("as_int", "as_float", "as_bool"):
            # JSON has no infinity, so torch writes its name.
            return "", float(value) if isinstance(value, str) else value
        if form in ("as_none", "as_string"):  # the graph does not use this input
            return "", None
        raise UserError(f"a graph cannot have an input of the form {shown(form)}")

    # --- tensors ----------------------------------------------------------------------------------

    def _size(self, data: Any) -> int:
        if "as_int" in data:
            return int(data["as_int"])
        text, hint = data["as_expr"]["expr_str"], data["as_expr"].get("hint")
        if not hint or "as_int" not in hint:
            raise UserError(f"the size {shown(text)} depends on data")
        self.symbols[text] = int(hint["as_int"])
        return int(hint["as_int"])

    def _layout(self, meta: Any) -> tuple[torch.dtype, list[int], list[int], int]:
        dtype = _DTYPES.get(meta["dtype"])
        if dtype is None or meta["layout"] != _STRIDED:
            raise UserError("a tensor has a dtype or a layout that is not supported")
        sizes, strides = (list(map(self._size, meta[it])) for it in ("sizes", "strides"))
        offset = self._size(meta["storage_offset"])
        if len(sizes) != len(strides) or min([offset, *sizes, *strides], default=0) < 0:
            raise ValueError("sizes and strides")
        return dtype, sizes, strides, offset

    def _filled_tensor(self, meta: Any) -> torch.Tensor:
        dtype, sizes, strides, offset = self._layout(meta)
        storage = self.filled.of(dtype, offset + reach(sizes, strides))
        return torch.empty(0, dtype=dtype).set_(storage, offset, sizes, strides)

    def _weight(self, name: str, entry: Any, meta: Any) -> torch.Tensor:
        """A weight on its bytes, or with values of the fill if the archive only has a pickle."""
        if entry is None or entry[1]["use_pickle"]:
            self.without_bytes.append(name)
            return self._filled_tensor(meta)
        folder, fields = entry
        file = f"{folder}/{fields['path_name']}"
        if file not in self._storages:
            data = bytearray(self._bytes(file, MOST_BYTES))
            whole = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0)
            self._storages[file] = whole.clone().untyped_storage()
        storage = self._storages[file]
        dtype, sizes, strides, offset = self._layout(fields["tensor_meta"])
        if (offset + reach(sizes, strides)) * dtype.itemsize > storage.nbytes():
            raise UserError(f"the weight {shown(name)} ends outside of its bytes")
        return torch.empty(0, dtype=dtype).set_(storage, offset, sizes, strides)


# --- nodes, in the form of `graph_json` -----------------------------------------------------------


def _calls(node: Any) -> list[dict[str, Any]]:
    """A call, and a `getitem` for each of several results."""
    args = [_value(it["arg"]) for it in node["inputs"] if it["kind"] != 2]
    kwargs = {it["name"]: _value(it["arg"]) for it in node["inputs"] if it["kind"] == 2}
    outputs = node["outputs"]
    target = str(node["target"])
    target = target.removeprefix("_") if target.startswith("_operator.") else target
    made = {"op": "call_function", "target": target, "args": args, "kwargs": kwargs}
    names: list[str | None]
    if len(outputs) == 1 and "as_tensors" not in outputs[0]:
        return [{**made, "name": _result(outputs[0]) or node["name"]}]
    if len(outputs) == 1:
        names = [it["name"] for it in outputs[0]["as_tensors"]]
    else:
        names = [_result(it) for it in outputs]
    items = [
        {
            "name": name,
            "op": "call_function",
            "target": "operator.getitem",
            "args": [{"node": node["name"]}, index],
        }
        for index, name in enumerate(names)
        if name is not None
    ]
    return [{**made, "name": node["name"]}, *items]


def _result(output: Any) -> str | None:
    """The name of a result; None if there is none."""
    (form, value), *_ = output.items()
    if form == "as_none":
        return None
    if form in ("as_sym_int", "as_sym_bool", "as_sym_float"):
        return str(value["as_name"])
    if form == "as_tensor":
        return str(value["name"])
    raise UserError(f"a graph cannot have a result of the form {shown(form)}")


def _outputs(outputs: Any, specs: Any, places: Mapping[str, str]) -> list[dict[str, Any]]:
    """The writes to inputs that a functional graph returns, and the output."""
    nodes: list[dict[str, Any]] = []
    returned = []
    for argument, spec in zip(outputs, specs, strict=True):
        (kind, fields), *_ = spec.items()
        value = _value(argument)
        if kind in _MUTATIONS:
            own = fields[f"{kind.removesuffix('_mutation')}_name"]
            nodes.append(
                {
                    "name": f"written_back_{len(nodes)}",
                    "op": "call_function",
                    "target": "torch.ops.aten.copy_.default",
                    "args": [{"node": places[own]}, value],
                }
            )
        elif kind == "token":
            raise UserError("a graph cannot return the order of side effects")
        else:
            returned.append(value)
    return [*nodes, {"name": "output", "op": "output", "args": [{"tuple": returned}]}]


def _float(value: Any) -> Any:
    names = {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}
    return {"float": names[value]} if isinstance(value, str) else value


def _symbol(value: Any) -> Any:
    (form, it), *_ = value.items()
    return {"node": it} if form == "as_name" else it


def _tensor(value: Any) -> Any:
    return {"node": value["name"]}


def _optional(value: Any) -> Any:
    (form, it), *_ = value.items()
    return _tensor(it) if form == "as_tensor" else None


def _each(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: [read(value) for value in values]


# The forms of an argument in the schema, with a function to read each.
_VALUES: dict[str, Callable[[Any], Any]] = {
    "as_none": lambda _: None,
    **dict.fromkeys(
        ("as_int", "as_ints", "as_bool", "as_bools", "as_string", "as_strings", "as_int_lists"),
        lambda value: value,
    ),
    "as_float": _float,
    "as_floats": _each(_float),
    "as_tensor": _tensor,
    "as_tensors": _each(_tensor),
    "as_optional_tensor": _optional,
    "as_optional_tensors": _each(_optional),
    **dict.fromkeys(("as_sym_int", "as_sym_float", "as_sym_bool"), _symbol),
    **dict.fromkeys(("as_sym_ints", "as_sym_floats", "as_sym_bools"), _each(_symbol)),
    "as_scalar_type": lambda it: {"dtype": dtype_name(_DTYPES[it])},
    "as_memory_format": lambda it: {"memory_format": str(_FORMATS[it])},
    "as_layout": lambda _: {"layout": str(torch.strided)},
    # A graph runs where its inputs are; `--device` moves both.
    "as_device": lambda _: {"device": "cpu"},
    "as_complex": lambda it: {"complex": [float(it["real"]), float(it["imag"])]},
}


def _value(argument: Any) -> Any:
    """An argument. Raises `UserError` for graphs in graphs, custom objects, and the like."""
    (form, value), *_ = argument.items()
    if form not in _VALUES:
        graph = " (a graph, such as a branch of torch.cond)" if form == "as_graph" else ""
        raise UserError(f"a graph cannot have an argument of the form {shown(form)}{graph}")
    return _VALUES[form](value)
