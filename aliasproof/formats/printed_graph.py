"""A graph in a text, with inputs for it, whose layouts are in the text.

The layouts are in annotations (`x: "f32[2, 3][3, 1]cpu"`), or in `load_args` of a minifier's
script, which also says which inputs share a storage. A text has no values, so those of the fill are
used.
"""

from __future__ import annotations

import ast
import functools
import importlib
import itertools
import operator
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils._dtype_abbrs import dtype_abbrs

from aliasproof.formats.graph_ops import (
    function_of_name,
    require_arguments,
    require_attribute,
    require_method,
)
from aliasproof.ir.errors import UserError, shown
from aliasproof.ir.program import Storage
from aliasproof.ir.regions import dense_strides, reach
from aliasproof.ir.serialization import DTYPE_BY_NAME
from aliasproof.ir.values import fill

# --- graph text -----------------------------------------------------------------------------------
#
# Graphs as torch prints them: `print_readable`, `TORCH_LOGS`, debug folders, scripts of minifiers.
#
# Nothing in the text is executed: it is parsed, a graph is built node by node, and its functions
# are looked up by name (`aliasproof.formats.graph_ops`).


# 'V1126 01:17:43.750000 6284 torch/_dynamo/output_graph.py:2835] [0/0] [__graph_code] '
_LOGGED = re.compile(r"^[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+:\d+\] ?(?:\[[^\]\n]*\] ?)*")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_TITLE = re.compile(r"=====\s*(.+?)\s*=====")
_CLASS = re.compile(r"^\s*(?:\S+ )?class (\S+)\((?:torch\.nn\.|nn\.)?Module\):\s*$")
_FORWARD = re.compile(r"^(\s*)def forward\(.*\)(?: *->.*)?:\s*$")
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_IN_PLACE: dict[type[ast.AST], Callable[..., Any]] = {
    kind: getattr(operator, f"i{_OPERATORS[kind].__name__.rstrip('_')}")
    for kind in (
        *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult),
        *(ast.BitAnd, ast.BitOr, ast.BitXor),
    )
}
_NUMBERS = {"inf": float("inf"), "nan": float("nan")}
_CONSTANTS = (torch.dtype, torch.memory_format, torch.layout)


@dataclass(frozen=True, slots=True)
class GraphText:
    """A printed graph: its title, the line of its `forward` in the text, and that parsed."""

    title: str
    line: int
    forward: ast.FunctionDef

    @property
    def parameters(self) -> list[ast.arg]:
        """The inputs, without `self`."""
        return self.forward.args.args[1:]

    def describe(self) -> str:
        """The title, the number of inputs and of statements."""
        return f"{self.title} ({len(self.parameters)} inputs, {len(self.forward.body)} statements)"


def graph_texts(text: str) -> list[GraphText]:
    """The graphs in a text, in order. Raises `UserError` for one that is not valid Python."""
    if "torch.ops.prims.inductor" in text:  # this import registers them
        importlib.import_module("torch._inductor.inductor_prims")
    lines = [_LOGGED.sub("", _COLOR.sub("", line)) for line in text.splitlines()]
    graphs: list[GraphText] = []
    title, name = "", ""
    for number, line in enumerate(lines):
        if titled := _TITLE.search(line):
            title = titled[1]
        elif of_class := _CLASS.match(line):
            name = of_class[1]
        elif begins := _FORWARD.match(line):
            # The lines of its body are indented deeper.
            deeper = re.compile(rf"\s*$|{begins[1]}\s")
            code = [line, *itertools.takewhile(deeper.match, lines[number + 1 :])]
            try:
                (forward,) = ast.parse(textwrap.dedent("\n".join(code))).body
            except SyntaxError as error:
                place = number + (error.lineno or 1)
                raise UserError(f"line {place}: this graph is not Python: {error.msg}") from error
            assert isinstance(forward, ast.FunctionDef)
            graphs.append(GraphText(title or name or "graph", number + 1, forward))
            title = ""
    return graphs


def graph_of(text: GraphText) -> tuple[fx.Graph, dict[str, str]]:
    """The graph, and the annotation of each attribute that it reads, by name.

    Raises `UserError` with the line that it cannot read.
    """
    builder = _Builder(text.line)
    for parameter in text.parameters:
        builder.names[parameter.arg] = builder.graph.placeholder(parameter.arg)
    for statement in text.forward.body:
        builder.statement(statement)
    if not builder.returns:
        raise UserError(f"line {text.line}: the graph has no return; is the text cut off?")
    return builder.graph, builder.attributes


@dataclass(slots=True)
class _Builder:
    """Builds the nodes for the statements of a graph; `line` is the first one's in the file."""

    line: int
    graph: fx.Graph = field(default_factory=fx.Graph)
    names: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    returns: bool = False

    def refusal(self, node: ast.AST, what: str) -> UserError:
        """An error with the line of a node."""
        line = self.line + getattr(node, "lineno", 1) - 1
        return UserError(f"line {line}: {what}: {shown(ast.unparse(node))}")

    def statement(self, node: ast.stmt) -> None:
        """Build the calls of a statement, and bind its names."""
        if isinstance(node, ast.Return):
            self.graph.output(None if node.value is None else self.value(node.value))
            self.returns = True
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            # The annotation of an attribute that is read, `a: "f32[2]" = self.a`.
            path = _dotted(node.value) if isinstance(node.value, ast.Attribute) else None
            if path and path.startswith("self.") and isinstance(node.annotation, ast.Constant):
                self.attributes[path.removeprefix("self.")] = str(node.annotation.value)
            self._assign(node.target, node.value)
        elif isinstance(node, ast.Assign):
            # `add = None` frees a name.
            if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                for target in node.targets:
                    self._assign(target, node.value)
        elif isinstance(node, ast.AugAssign) and type(node.op) in _IN_PLACE:
            if not isinstance(node.target, ast.Name) or node.target.id not in self.names:
                raise self.refusal(node.target, "a graph writes in place to names alone")
            written = node.target.id
            self.names[written] = self.graph.call_function(
                _IN_PLACE[type(node.op)], (self.names[written], self.value(node.value))
            )
        elif isinstance(node, ast.Expr):
            self.value(node.value)
        elif isinstance(node, ast.AnnAssign):  # a declaration of inputs in lists
            what = "a joint graph; give the forward or the backward graph that is made from it"
            raise self.refusal(node, what)
        elif not isinstance(node, ast.Pass):
            raise self.refusal(node, "not a statement of a graph")

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Subscript):
            operands = (target.value, target.slice, value)
            self.graph.call_function(operator.setitem, tuple(map(self.value, operands)))
        elif isinstance(target, ast.Name):
            self.names[target.id] = named = self.value(value)
            if isinstance(named, fx.Node) and not isinstance(value, ast.Name):
                named._rename(target.id)
        else:
            raise self.refusal(target, "a graph assigns names and parts of tensors alone")

    # --- expressions ------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        """The value of an expression: a node, a constant, or a container of these."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name(id=name) if name in self.names or name in _NUMBERS:
                return self.names[name] if name in self.names else _NUMBERS[name]
            case ast.Name():
                raise self.refusal(node, "nothing has this name")
            case ast.Tuple(elts=elements):
                return tuple(map(self.value, elements))
            case ast.List(elts=elements):
                return list(map(self.value, elements))
            case ast.Dict():
                keys = [None if key is None else self.value(key) for key in node.keys]
                return dict(zip(keys, map(self.value, node.values), strict=True))
            case ast.Slice(lower=lower, upper=upper, step=step):
                parts = (lower, upper, step)
                return slice(*(None if part is None else self.value(part) for part in parts))
            case ast.UnaryOp():
                operand = self.value(node.operand)
                if isinstance(node.op, ast.USub) and isinstance(operand, int | float | complex):
                    return -operand
                return self._operator(node, type(node.op), (operand,))
            case ast.BinOp(left=left, op=kind, right=right):
                return self._operator(node, type(kind), (self.value(left), self.value(right)))
            case ast.Compare(left=left, ops=[kind], comparators=[right]):
                return self._operator(node, type(kind), (self.value(left), self.value(right)))
            case ast.Compare():
                raise self.refusal(node, "a graph compares two values at once")
            case ast.Subscript(value=base, slice=index):
                operands = (self.value(base), self.value(index))
                return self.graph.call_function(operator.getitem, operands)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self._call(node)
        raise self.refusal(node, "not an expression of a graph")

    def _operator(self, node: ast.expr, kind: type[ast.AST], operands: tuple[Any, ...]) -> Any:
        if kind not in _OPERATORS:
            raise self.refusal(node, "not an operator of a graph")
        return self.graph.call_function(_OPERATORS[kind], operands)

    def _attribute(self, node: ast.Attribute) -> Any:
        path = _dotted(node)
        if path is not None and path.startswith("self."):
            name = path.removeprefix("self.")
            self.attributes.setdefault(name, "")
            return self.graph.create_node("get_attr", name)
        if path is not None and path.startswith("torch.") and path.count(".") == 1:
            constant = getattr(torch, node.attr, None)
            if isinstance(constant, _CONSTANTS):
                return constant
            raise self.refusal(node, "not a dtype, a layout or a memory format of torch")
        self._allowed(node, require_attribute, node.attr)
        return self.graph.call_function(getattr, (self.value(node.value), node.attr))

    def _call(self, node: ast.Call) -> Any:
        arguments = tuple(map(self.value, node.args))
        if any(keyword.arg is None for keyword in node.keywords):
            raise self.refusal(node, "a graph names its keywords")
        named = {str(it.arg): self.value(it.value) for it in node.keywords}
        called = node.func
        path = _dotted(called)
        if path in ("device", "torch.device"):
            return torch.device(*arguments, **named)
        if path == "slice":
            return slice(*arguments)
        if path is not None and path.startswith("self."):
            raise self.refusal(called, "the text does not keep what this module computes")
        root = "" if path is None else path.partition(".")[0]
        if path is not None and root not in self.names:
            name = path if "." in path else f"builtins.{path}"
            function = self._allowed(called, function_of_name, name)
            self._allowed(node, functools.partial(require_arguments, function), arguments)
            return self.graph.call_function(function, arguments, named)
        if isinstance(called, ast.Attribute):
            self._allowed(called, require_method, called.attr)
            operands = (self.value(called.value), *arguments)
            return self.graph.call_method(called.attr, operands, named)
        raise self.refusal(called, "a graph calls functions and methods by name")

    def _allowed(self, node: ast.expr, look_up: Callable[[Any], Any], name: Any) -> Any:
        """The value of a name, if a graph may use it."""
        try:
            return look_up(name)
        except UserError as error:
            raise self.refusal(node, str(error)) from error


def _dotted(node: ast.expr) -> str | None:
    """The path 'torch.ops.aten.add.Tensor' of names and attributes; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None


# --- printed graph --------------------------------------------------------------------------------


MOST_BYTES = 2**32  # of one storage
_DTYPES = {text: dtype for dtype, text in dtype_abbrs.items()}
_ANNOTATION = re.compile(r"^(?:Parameter )?(\w+)\[([^\]]*)\](?:\[([^\]]*)\])?([a-z]+(?::\d+)?)?$")
_WRITTEN = re.compile(r"^class (?:<lambda>|GraphModule|Repro)\(", re.MULTILINE)
_LOAD_ARGS = re.compile(r"^def load_args\(reader\):\n(?:[ \t]+.*\n|\s*\n)+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GraphOfFile:
    """A graph with inputs, and notes on properties that are not in its file."""

    module: fx.GraphModule
    inputs: Sequence[torch.Tensor | float]
    notes: tuple[str, ...]


@dataclass(slots=True)
class FilledStorages:
    """Makes storages with values of the fill, which differ from storage to storage."""

    made: int = 0

    def of(self, dtype: torch.dtype, length: int) -> torch.UntypedStorage:
        """Raises `UserError` for a storage that is too large."""
        if length * dtype.itemsize > MOST_BYTES:
            raise UserError(f"an input has {length} elements, which is too large")
        self.made += 1
        return fill(Storage(dtype, length), self.made, 0).untyped_storage()


def read_printed(text: str, number: int | None = None) -> GraphOfFile:
    """The graph with that number in a text, counted from 1; the only one without a number.

    Raises `UserError` if there is none or are several, and for text that cannot be read.
    """
    try:
        chosen = _chosen(graph_texts(text), number)
        graph, attributes = graph_of(chosen)
        reads: list[Any] = []
        if found := _LOAD_ARGS.search(text):  # calls of `reader`, in the order of the inputs
            (load_args,) = ast.parse(found[0]).body
            assert isinstance(load_args, ast.FunctionDef)
            reads += load_args.body
        inputs, root = _TextInputs(reads), torch.nn.Module()
        values = [inputs.of(parameter) for parameter in chosen.parameters]
        for name, annotation in attributes.items():
            if "." in name or not annotation or hasattr(root, name):
                raise UserError(f"the text does not keep what self.{name} is")
            root.register_buffer(name, inputs.tensor(name, annotation))
    except RecursionError as error:
        raise UserError("the text nests too deep") from error
    return GraphOfFile(fx.GraphModule(root, graph), values, tuple(inputs.notes(attributes)))


def is_printed(text: str, function: str) -> bool:
    """True if Python is a graph that torch wrote, and defines no function of that name."""
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


_SYMBOL = re.compile(r"[suz]\d+")
_SIZES = (5, 7, 11, 13, 17, 19, 23)  # for symbols, in the order in which they occur
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Pow)


@dataclass(slots=True)
class _SymbolicSizes:
    """The values of size expressions, such as `s33 - 1`."""

    symbols: dict[str, int] = field(default_factory=dict)

    def of(self, text: str) -> Any:
        """A number, or a tuple of numbers. Raises `UserError` for any other text."""
        try:
            return self._value(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, ValueError, ArithmeticError) as error:
            raise UserError(f"{shown(text)} is no size: put numbers into the text") from error

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return int(node.value)
        if isinstance(node, ast.Name) and _SYMBOL.fullmatch(node.id):
            return self.symbols.setdefault(node.id, _SIZES[len(self.symbols) % len(_SIZES)])
        if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
            return _OPERATORS[type(node.op)](self._value(node.left), self._value(node.right))
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(map(self._value, node.elts))
        raise ValueError(ast.unparse(node))


@dataclass(slots=True)
class _TextInputs:
    """Makes inputs, from annotations or from the statements of `load_args`."""

    statements: list[Any]
    storages: dict[str, torch.UntypedStorage] = field(default_factory=dict)
    devices: set[str] = field(default_factory=set)
    sizes: _SymbolicSizes = field(default_factory=_SymbolicSizes)
    filled: FilledStorages = field(default_factory=FilledStorages)

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
        """A tensor on a storage of its own, by an annotation such as 'f32[2, 3][3, 1]cpu'."""
        match = _ANNOTATION.match(annotation)
        if match is None or match[1] not in _DTYPES:
            raise UserError(f"input {name}: {shown(annotation)} is no dtype with sizes")
        sizes = self.sizes.of(f"[{match[2]}]")
        strides = dense_strides(sizes) if match[3] is None else self.sizes.of(f"[{match[3]}]")
        if len(strides) != len(sizes):
            raise UserError(f"input {name}: {shown(annotation)} has not as many strides as sizes")
        self.devices.add((match[4] or "cpu").partition(":")[0])
        dtype = _DTYPES[match[1]]
        storage = self.filled.of(dtype, reach(sizes, strides))
        return torch.empty(0, dtype=dtype).set_(storage, 0, sizes, strides)

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
        self.storages[name] = self.filled.of(dtype, -(-nbytes // dtype.itemsize))

    def _view(self, name: str, call: ast.Call) -> torch.Tensor:
        storage = self.storages[ast.unparse(call.args[0])]
        sizes = self.sizes.of(ast.unparse(call.args[1]))
        given = call.args[2] if len(call.args) > 2 else None
        strides = dense_strides(sizes) if given is None else self.sizes.of(ast.unparse(given))
        named = {it.arg: it.value for it in call.keywords}
        dtype = _dtype(named.get("dtype")) or torch.float32
        offset = self._number(named["storage_offset"]) if "storage_offset" in named else 0
        if (offset + reach(sizes, strides)) * dtype.itemsize > storage.nbytes():
            raise UserError(f"load_args: input {name} ends outside of its storage")
        return torch.empty(0, dtype=dtype).set_(storage, offset, sizes, strides)

    def _number(self, node: ast.expr) -> int:
        return int(self.sizes.of(ast.unparse(node)))

    def notes(self, attributes: dict[str, str]) -> list[str]:
        """Notes on properties that the text leaves open."""
        notes = ["a text has no values, so inputs have those of the fill"]
        if not self.storages and self.filled.made > 1:
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
