"""A graph in a text with inputs for it, whose layouts the text names.

They are in the annotations (`x: "f32[2, 3][3, 1]cpu"`), or in `load_args` of a minifier's script,
which also says what shares a storage. Values are those of the fill, as a text has none.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils._dtype_abbrs import dtype_abbrs

from aliasproof.programs.errors import UserError, shown
from aliasproof.programs.graph_text import GraphText, graph_of, graph_texts
from aliasproof.programs.program import Storage
from aliasproof.programs.serialization import DTYPE_BY_NAME
from aliasproof.programs.values import fill

MOST_BYTES = 2**32  # of one storage
_DTYPES = {text: dtype for dtype, text in dtype_abbrs.items()}
_ANNOTATION = re.compile(r"^(?:Parameter )?(\w+)\[([^\]]*)\](?:\[([^\]]*)\])?([a-z]+(?::\d+)?)?$")
_WRITTEN = re.compile(r"^class (?:<lambda>|GraphModule|Repro)\(", re.MULTILINE)
_LOAD_ARGS = re.compile(r"^def load_args\(reader\):\n(?:[ \t]+.*\n|\s*\n)+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PrintedGraph:
    """A graph with inputs, and notes on what its text does not say."""

    module: fx.GraphModule
    inputs: Sequence[torch.Tensor | int]
    notes: tuple[str, ...]


def read_printed(text: str, number: int | None = None) -> PrintedGraph:
    """The graph with that number in a text, counted from 1; the only one without a number.

    Raises `UserError` if there is none or are several, and for what cannot be read.
    """
    try:
        chosen = _chosen(graph_texts(text), number)
        graph, attributes = graph_of(chosen)
        inputs, root = _TextInputs(_loaded(text)), torch.nn.Module()
        values = [inputs.of(parameter) for parameter in chosen.parameters]
        for name, annotation in attributes.items():
            if "." in name or not annotation or hasattr(root, name):
                raise UserError(f"the text does not keep what self.{name} is")
            root.register_buffer(name, inputs.tensor(name, annotation))
    except RecursionError as error:
        raise UserError("the text nests too deep") from error
    return PrintedGraph(fx.GraphModule(root, graph), values, tuple(inputs.notes(attributes)))


def is_printed(text: str, function: str) -> bool:
    """Whether Python is a graph that torch wrote, and defines no function of that name."""
    asked = re.search(rf"^def {re.escape(function)}\(", text, re.MULTILINE)
    return asked is None and _WRITTEN.search(text) is not None


def _chosen(graphs: Sequence[GraphText], number: int | None) -> GraphText:
    listed = "\n".join(f"  {place}: {graph.describe()}" for place, graph in enumerate(graphs, 1))
    if not graphs:
        raise UserError(
            "there is no graph in this text: it has no 'def forward(self, ...)'; give what"
            " print_readable, TORCH_LOGS=graph_code,aot_graphs or a minifier printed"
        )
    if number is None and len(graphs) > 1:
        raise UserError(f"there are {len(graphs)} graphs; add the number of one, FILE:1\n{listed}")
    if number is not None and not 1 <= number <= len(graphs):
        raise UserError(f"there is no graph {number}; these are there:\n{listed}")
    return graphs[(number or 1) - 1]


def _loaded(text: str) -> list[Any]:
    """What `load_args` reads, in the order of the inputs: calls of `reader`, as syntax."""
    found = _LOAD_ARGS.search(text)
    if found is None:
        return []
    (function,) = ast.parse(found[0]).body
    assert isinstance(function, ast.FunctionDef)
    return list(function.body)


_SYMBOL = re.compile(r"[suz]\d+")
_SIZES = (5, 7, 11, 13, 17, 19, 23)  # for symbols in the order in which they are met
_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


@dataclass(slots=True)
class _SymbolicSizes:
    """The numbers that expressions of sizes stand for, such as `s33 - 1`."""

    symbols: dict[str, int] = field(default_factory=dict)

    def of(self, text: str) -> Any:
        """A number, or a tuple of these. Raises `UserError` for what is none."""
        try:
            return self._value(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, ValueError, ArithmeticError) as error:
            raise UserError(f"{shown(text)} is no size: put numbers into the text") from error

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return int(node.value)
        if isinstance(node, ast.Name) and _SYMBOL.fullmatch(node.id):
            return self.symbols.setdefault(node.id, _SIZES[len(self.symbols) % len(_SIZES)])
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return _ARITHMETIC[type(node.op)](self._value(node.left), self._value(node.right))
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(map(self._value, node.elts))
        raise ValueError(ast.unparse(node))


@dataclass(slots=True)
class _TextInputs:
    """Makes inputs, from annotations or from the statements of `load_args`."""

    statements: list[Any]
    storages: dict[str, torch.Tensor] = field(default_factory=dict)
    devices: set[str] = field(default_factory=set)
    sizes: _SymbolicSizes = field(default_factory=_SymbolicSizes)
    made: int = 0

    def of(self, parameter: ast.arg) -> torch.Tensor | int:
        """The input of a parameter. Raises `UserError` if the text does not describe it."""
        if self.statements:
            return self._read(parameter.arg)
        annotation = parameter.annotation
        if not isinstance(annotation, ast.Constant):
            raise UserError(
                f"the text does not say what input {parameter.arg} is; print the graph with"
                " print_readable(include_stride=True), or give the script of the minifier"
            )
        text = str(annotation.value)
        if symbolic := re.fullmatch(r"Sym\((.*)\)", text):
            return int(self.sizes.of(symbolic[1]))
        return self.tensor(parameter.arg, text)

    def tensor(self, name: str, annotation: str) -> torch.Tensor:
        """A tensor of a storage of its own, by an annotation such as 'f32[2, 3][3, 1]cpu'."""
        match = _ANNOTATION.match(annotation)
        if match is None or match[1] not in _DTYPES:
            raise UserError(f"input {name}: {shown(annotation)} is no dtype with sizes")
        sizes = self.sizes.of(f"[{match[2]}]")
        strides = _contiguous(sizes) if match[3] is None else self.sizes.of(f"[{match[3]}]")
        if len(strides) != len(sizes):
            raise UserError(f"input {name}: {shown(annotation)} has not as many strides as sizes")
        self.devices.add((match[4] or "cpu").partition(":")[0])
        dtype = _DTYPES[match[1]]
        storage = self._filled(dtype, _length(sizes, strides)).untyped_storage()
        return torch.empty(0, dtype=dtype).set_(storage, 0, sizes, strides)

    def _filled(self, dtype: torch.dtype, length: int) -> torch.Tensor:
        if length * dtype.itemsize > MOST_BYTES:
            raise UserError(f"an input has {length} elements, which is too large")
        self.made += 1
        return fill(Storage(dtype, length), self.made, 0)

    # --- load_args --------------------------------------------------------------------------------

    def _read(self, name: str) -> torch.Tensor | int:
        """Run the statements up to the next one that reads an input; each is one call."""
        while self.statements:
            statement = self.statements.pop(0)
            call = getattr(statement, "value", None)
            if not isinstance(call, ast.Call):
                raise UserError(f"load_args: cannot read {shown(ast.unparse(statement))}")
            method = getattr(call.func, "attr", "")
            if isinstance(statement, ast.Assign) and method == "storage":
                self._storage(ast.unparse(statement.targets[0]), call)
            elif isinstance(statement, ast.Expr) and method == "tensor":
                return self._view(name, call)
            elif isinstance(statement, ast.Expr) and method == "symint":
                return self._number(call.args[0])
            else:
                raise UserError(f"load_args: cannot read {shown(ast.unparse(statement))}")
        raise UserError(f"load_args has no input {name}")

    def _storage(self, name: str, call: ast.Call) -> None:
        named = {it.arg: it.value for it in call.keywords}
        dtype = _dtype(named.get("dtype_hint")) or torch.float32
        device = named.get("device")
        self.devices.add("cuda" if device is not None and "cuda" in ast.unparse(device) else "cpu")
        nbytes = self._number(call.args[1])
        self.storages[name] = self._filled(dtype, -(-nbytes // dtype.itemsize))

    def _view(self, name: str, call: ast.Call) -> torch.Tensor:
        storage = self.storages[ast.unparse(call.args[0])]
        sizes = self.sizes.of(ast.unparse(call.args[1]))
        given = call.args[2] if len(call.args) > 2 else None
        strides = _contiguous(sizes) if given is None else self.sizes.of(ast.unparse(given))
        named = {it.arg: it.value for it in call.keywords}
        dtype = _dtype(named.get("dtype")) or torch.float32
        offset = self._number(named["storage_offset"]) if "storage_offset" in named else 0
        if (offset + _length(sizes, strides)) * dtype.itemsize > storage.untyped_storage().nbytes():
            raise UserError(f"load_args: input {name} ends outside of its storage")
        whole = storage.untyped_storage()
        return torch.empty(0, dtype=dtype).set_(whole, offset, sizes, strides)

    def _number(self, node: ast.expr) -> int:
        return int(self.sizes.of(ast.unparse(node)))

    def notes(self, attributes: dict[str, str]) -> list[str]:
        """What the text leaves open."""
        notes = ["a text has no values, so inputs have those of the fill"]
        if not self.storages and self.made > 1:
            notes.append("the text does not say which inputs share a storage, so none do")
        if self.sizes.symbols:
            chosen = (f"{name} = {size}" for name, size in self.sizes.symbols.items())
            notes.append(f"sizes that the text leaves open: {', '.join(chosen)}")
        if attributes:
            notes.append(f"constants with values of the fill: {', '.join(attributes)}")
        if self.devices - {"cpu"}:
            notes.append("the graph was on another device; --device moves it there")
        return notes


def _dtype(node: ast.expr | None) -> torch.dtype | None:
    if node is None:
        return None
    name = ast.unparse(node).removeprefix("torch.")
    if name not in DTYPE_BY_NAME:
        raise UserError(f"load_args: {shown(name)} is no dtype")
    return DTYPE_BY_NAME[name]


def _contiguous(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(
        math.prod(max(size, 1) for size in sizes[place + 1 :]) for place in range(len(sizes))
    )


def _length(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements of a storage a layout reaches."""
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return 0 if 0 in sizes else last + 1
