"""The command `explain`: a program through the reference pass, its graphs, and why each op is in place or is not."""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof import held_tensors, user_file
from aliasproof.comparable import Comparable
from aliasproof.console import (
    notes,
    print_code,
    print_exactly,
    print_heading,
    print_lines,
    results,
    write_json,
)
from aliasproof.user_file import what_was_raised
from programs.errors import UserError
from programs.execution import as_graph
from programs.printing import inputs_source, source
from programs.program import Program
from programs.values import input_tensors
from reference_pass.alias_analysis import Analysis, Geometry, analyse, written_tensors
from reference_pass.capture import capture
from reference_pass.conditions import CONDITIONS
from reference_pass.exceptions import Refused
from reference_pass.functionalize import Views, functionalize
from reference_pass.nested import tensors_in
from reference_pass.operator_forms import on_copies
from reference_pass.regions import Size, known, same_strides
from reference_pass.reinplace import Decision, decisions, reinplace
from targets.target import Function
from trials.worker import quiet_torch

VIEWS: Mapping[str, Views] = {"alias": "alias", "copy": "copy"}
LEGEND = (
    "A letter names the storage that a tensor lies in, in each graph anew; ! marks a write to it."
)
NOTHING_DECIDED = (
    "No op could be in place: there is none that has such a form and an operand to write to."
)
WIDEST = 70  # columns that the calls of a graph may take before the sizes


@dataclass(frozen=True, slots=True)
class ShownLayout:
    """Where a tensor lies: in which storage, and how it sees it."""

    dtype: str
    sizes: tuple[int | str, ...]  # text for a symbol
    strides: tuple[int | str, ...]
    offset: int | str
    contiguous: bool
    storage: str

    def __str__(self) -> str:
        text = f"{self.dtype}[{', '.join(map(str, self.sizes))}]"
        if not self.contiguous:
            text += f" strides [{', '.join(map(str, self.strides))}]"
        return f"{text} offset {self.offset}" if self.offset else text


@dataclass(frozen=True, slots=True)
class Line:
    """One node of a graph, as it is shown: the tensors that it gives, and the storages that it writes to."""

    name: str
    call: str
    tensors: tuple[ShownLayout, ...] = ()
    writes: tuple[str, ...] = ()

    @property
    def storages(self) -> str:
        """The storages that it gives tensors in or writes to, these with a mark."""
        named = dict.fromkeys((*(each.storage for each in self.tensors), *self.writes))
        return ", ".join(f"{each}!" if each in self.writes else each for each in named)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the reference pass makes of a program, and why.

    `code` is its source, None where there is none to be had.
    """

    code: str | None
    program: tuple[Line, ...]
    functional: tuple[Line, ...]
    reinplaced: tuple[Line, ...]
    decided: tuple[Decision, ...]
    notes: tuple[str, ...] = ()

    @property
    def parts(self) -> Mapping[str, str]:
        """The graphs and the decisions as text, by their titles."""
        return {
            "ATen calls": graph_text(self.program),
            "functional graph": graph_text(self.functional),
            "reinplaced graph": graph_text(self.reinplaced),
            "decisions": "\n".join(map(decision_text, self.decided)) or NOTHING_DECIDED,
        }

    def to_json(self) -> dict[str, object]:
        """The explanation as JSON values."""
        return {
            "torch": torch.__version__,
            "notes": list(self.notes),
            "program": {"source": self.code, "graph": [asdict(each) for each in self.program]},
            "functional": [asdict(each) for each in self.functional],
            "reinplaced": [asdict(each) for each in self.reinplaced],
            "decisions": [_decision_json(each) for each in self.decided],
        }


def explain(
    function: Program | Function,
    inputs: Sequence[torch.Tensor] = (),
    views: Views = "alias",
    *,
    file: Path | None = None,
) -> Explanation:
    """Functionalize and reinplace a function, and tell what was done. A `Program` brings its own inputs.

    Raises `UserError` if the function cannot be captured as a graph, or the passes refuse it.
    """
    code: str | None
    said: list[str] = []
    try:
        if isinstance(function, Program):
            inputs = input_tensors(function)
            captured, code = fx.GraphModule(torch.nn.Module(), as_graph(function)), source(function)
        else:
            captured, inputs, said = _captured(function, inputs)
            code = _source_of(function)
        program = shown(captured, inputs)
    except Refused as refused:
        raise UserError(f"the reference pass refuses it: {refused}") from refused
    except Exception as error:
        raise UserError(f"it cannot be traced: {what_was_raised(error, file)}") from error
    try:
        functional = functionalize(captured, *inputs, views=views)
        reinplaced = reinplace(copy.deepcopy(functional), *inputs)
        graphs = (program, shown(functional, inputs), shown(reinplaced, inputs))
    except Refused as refused:
        raise UserError(f"the reference pass refuses it: {refused}") from refused
    return Explanation(code, *graphs, decisions(reinplaced), tuple(said))


def _captured(
    function: Function, inputs: Sequence[torch.Tensor]
) -> tuple[fx.GraphModule, Sequence[torch.Tensor], list[str]]:
    """The graph of a function with the tensors that it holds as further inputs, these inputs, and what to say of them."""
    lifted = held_tensors.lifted(function, inputs)
    held = () if lifted is None else lifted.held
    everything = (*inputs, *held)
    graph_module = capture(Comparable(lifted or function), everything)
    named = held_tensors.names(lifted) if lifted is not None and held else []
    said = [
        f"input {len(inputs) + i} is {name}, which the function holds"
        for i, name in enumerate(named)
    ]
    _name_inputs(graph_module, function)
    return graph_module, everything, said


def _name_inputs(graph_module: fx.GraphModule, function: Function) -> None:
    """Call the inputs what the function calls them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins have none
        return
    names = [
        each.name
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    for node, name in zip(placeholders, names, strict=False):
        node._rename(name)
        node.target = node.name
    graph_module.recompile()


def _source_of(function: Function) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return None


# --- graphs ---------------------------------------------------------------------------------------


def shown(graph_module: fx.GraphModule, inputs: Sequence[object]) -> tuple[Line, ...]:
    """The lines of a graph. What lies where is observed: the graph is run on fake tensors."""
    return tuple(_lines(graph_module.graph, analyse(graph_module, inputs)))


def _lines(graph: fx.Graph, analysis: Analysis) -> Iterator[Line]:
    storage: dict[int, int] = {}  # of each tensor object, at this point of the graph
    for node in graph.nodes:
        if node.op == "output":
            yield Line("", f"return {_argument(node.args[0])}")
            continue
        effect = analysis.effects[node]
        written = [
            storage[id(each)] for each in written_tensors(node, lambda n: analysis.effects[n].value)
        ]
        geometries = {**effect.shows, **effect.mutated_metadata}
        storage.update((key, each.storage) for key, each in geometries.items())
        gives = tuple(_lies(effect.shows[id(each)]) for each in tensors_in(effect.value))
        yield Line(node.name, _call(node), gives, tuple(dict.fromkeys(map(letter, written))))


def _lies(geometry: Geometry) -> ShownLayout:
    sizes, strides, offset = (geometry.sizes, geometry.strides, geometry.offset)
    return ShownLayout(
        dtype=str(geometry.dtype).removeprefix("torch."),
        sizes=tuple(map(_number, sizes)),
        strides=tuple(map(_number, strides)),
        offset=_number(offset),
        contiguous=_is_contiguous(sizes, strides),
        storage=letter(geometry.storage),
    )


def _number(size: Size) -> int | str:
    return size if isinstance(size, int) else str(size)


def _is_contiguous(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """True if the strides are those of a new tensor of these sizes, for sure."""
    expected: Size = 1
    wanted = []
    for size in reversed(sizes):
        wanted.append(expected)
        expected = expected * size
    return known(expected == 0) or same_strides(
        tuple(sizes), tuple(reversed(wanted)), tuple(strides)
    )


def letter(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    rest, last = divmod(number, 26)
    return (letter(rest - 1) if rest else "") + chr(ord("A") + last)


def _call(node: fx.Node) -> str:
    if node.op == "placeholder":
        return "input"
    if node.op == "get_attr":
        return f"constant {node.target}"
    name = getattr(node.target, "__name__", "")
    if name == "getitem":
        return f"{_argument(node.args[0])}[{_argument(node.args[1])}]"
    op = node.args[0] if node.target is on_copies else node.target
    kwargs = {key: value for key, value in node.kwargs.items() if not _is_default(op, key, value)}
    arguments = [
        *map(_argument, node.args),
        *(f"{key}={_argument(value)}" for key, value in kwargs.items()),
    ]
    return f"{node.target if isinstance(node.target, OpOverload) else name}({', '.join(arguments)})"


def _is_default(op: object, name: str, value: object) -> bool:
    if not isinstance(op, OpOverload) or not (
        value is None or isinstance(value, (bool, int, float))
    ):
        return False
    defaults = {
        each.name: each.default_value for each in op._schema.arguments if each.has_default_value()
    }
    return name in defaults and (type(value), value) == (type(defaults[name]), defaults[name])


def _argument(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_argument, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_argument, value))}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_argument(each)}' for key, each in value.items())}}}"
    plain = (fx.Node, OpOverload, torch.dtype, torch.device, torch.layout, torch.memory_format)
    return str(value) if isinstance(value, plain) else repr(value)


def graph_text(lines: Sequence[Line]) -> str:
    """A graph as text: one line a node, with the call, the tensors that it gives and their storages in columns."""
    rows = [
        (
            f"{each.name} = {each.call}" if each.name else each.call,
            ", ".join(map(str, each.tensors)),
            each.storages,
        )
        for each in lines
    ]
    calls = min(max((len(call) for call, _, storages in rows if storages), default=0), WIDEST)
    sizes = max((len(tensors) for _, tensors, _ in rows), default=0)
    return "\n".join(
        f"{call:{calls}}  {tensors:{sizes}}  {storages}".rstrip()
        for call, tensors, storages in rows
    )


# --- decisions ------------------------------------------------------------------------------------


_STEP = re.compile(r"(?:\(\d\w?\)(?:, )?)+|An invariant[^:.]*")


def step_of(condition: str) -> str | None:
    """The step of the algorithm that a condition is, as its docstring says it: `(1b)`; None if it says none."""
    docstring = next((each.__doc__ for each in CONDITIONS if each.__name__ == condition), None)
    found = _STEP.match((docstring or "").strip())
    return None if found is None else found.group().strip(", ")


def decision_text(decision: Decision) -> str:
    """What was decided about a node and why, in a few lines."""
    refused = [
        f"{how.value}: {_named(condition)}: {reason}" for how, condition, reason in decision.refused
    ]
    head = f"{decision.node} = {decision.op}"
    if decision.how is None:
        return "\n".join([head, "  kept because", *(f"    {each}" for each in refused)])
    lines = [head, f"  {decision.how.value} because all conditions hold"]
    return "\n".join(
        [*lines, *(["  refused first"] if refused else []), *(f"    {each}" for each in refused)]
    )


def _named(condition: str) -> str:
    step = step_of(condition)
    return condition if step is None else f"{step} {condition}"


def _decision_json(decision: Decision) -> dict[str, object]:
    return {
        "node": decision.node,
        "op": decision.op,
        "in_place": decision.how is not None,
        "how": None if decision.how is None else decision.how.value,
        "refused": [
            {"how": how.value, "condition": condition, "step": step_of(condition), "reason": reason}
            for how, condition, reason in decision.refused
        ],
    }


# --- the command ----------------------------------------------------------------------------------


def explain_file(path: Path, views: str, function: str, inputs: str, *, as_json: bool) -> None:
    """Explain what the reference pass makes of what a file defines."""
    if views not in VIEWS:
        raise UserError(f"--views {views}: give one of {', '.join(VIEWS)}")
    quiet_torch()
    code = None
    with contextlib.redirect_stdout(sys.stderr):  # what the user's code prints is no result
        given = user_file.read(path, function, inputs)
        try:
            if isinstance(given, Program):
                code = f"aten = torch.ops.aten\n\n{source(given)}\n{inputs_source(given)}"
                found = explain(given, views=VIEWS[views])
            else:
                found = explain(given.function, given.inputs, VIEWS[views], file=path)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        except SystemExit as exit_of_user:
            raise UserError(
                f"{path}: {function} calls sys.exit({exit_of_user.code!r})"
            ) from exit_of_user
    for note in found.notes:
        print_lines(notes(), f"note: {note}")
    if as_json:
        write_json({"file": str(path), "views": views} | found.to_json())
    else:
        _print_explanation(str(path), code or found.code, found)


def _print_explanation(name: str, code: str | None, found: Explanation) -> None:
    console = results()
    print_lines(console, f"{name} in torch {torch.__version__}", "bold")
    print_lines(console, LEGEND, "dim")
    if code is not None:
        print_heading(console, "program")
        print_code(console, code)
    for title, text in found.parts.items():
        print_heading(console, title)
        print_exactly(console, text)
