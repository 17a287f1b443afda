"""`explain`: run the reference pass on a function, and record its graphs and decisions."""

from __future__ import annotations

import copy
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.definedness_note import definedness_note
from aliasproof.ir.devices import CPU, on_device
from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import as_graph, returns_one_tensor
from aliasproof.ir.program import Program
from aliasproof.ir.values import input_tensors
from aliasproof.planned_memory import ObservedGraph, memory_plan
from aliasproof.reference_pass.alias_analysis import Analysis, analyse
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import on_copies
from aliasproof.reference_pass.calls.storages import Geometry, written_tensors
from aliasproof.reference_pass.capture.function_trace import capture
from aliasproof.reference_pass.eager.torch_semantics import EAGER
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.functionalize import Views
from aliasproof.reference_pass.memory_plan import plan_memory
from aliasproof.reference_pass.pipeline import CONDITIONS, functionalize, reinplace
from aliasproof.reference_pass.regions import Size, known, same_strides
from aliasproof.reference_pass.reinplace import Decision, decisions
from aliasproof.reports.explanation import Explanation, ShownDecision, ShownRefusal
from aliasproof.reports.node_lines import NodeLine, ShownLayout
from aliasproof.targets.target import Function
from aliasproof.user_code.captured_tensors import UNNAMED
from aliasproof.user_code.comparable import Comparable
from aliasproof.user_code.user_file import FileNames, UserFunction, apply_to, raised_text

VIEWS: Mapping[str, Views] = {"alias": "alias", "copy": "copy"}


def explain(
    function: Program | Function,
    inputs: object = (),
    views: Views = "alias",
    *,
    plan: bool = False,
    file: Path | None = None,
) -> Explanation:
    """Functionalize and reinplace a function, or plan its memory, and record each step.

    A `Program` brings its own inputs. `file` is the file of the function: errors then name their
    line in it. Raises `UserError` if the function cannot be captured as a graph, or if the pass
    refuses it.
    """
    code: Program | str | None
    notes: list[str] = []
    paths: Sequence[str] = ()
    try:
        if isinstance(function, Program):
            function = on_device(function, CPU)  # what the pass does is the same on each
            inputs = input_tensors(function)
            # A program is a graph already: a trace could only change it.
            captured, code = named_graph(function), function
        else:
            captured, comparable = _captured_graph(function, inputs)
            inputs, paths = comparable.inputs, comparable.names
            notes, code = _capture_notes(comparable), _source_of(function)
        notes += filter(None, [note := definedness_note(captured, inputs)])
        program = graph_lines(captured, inputs, paths)
    except Refused as refused:
        raise UserError(f"the reference pass refuses it: {refused}") from refused
    # Tracing runs the user's code, so any exception can come out of it.
    except Exception as error:
        raise UserError(f"it cannot be traced: {raised_text(error, file)}") from error
    graphs = _graphs(captured, inputs, views, note, plan=plan)
    made = tuple(map(_shown_decision, decisions(graphs[-1])))
    observed = [_observed(graph, inputs, paths) for graph in graphs]
    lines = program, observed[0].lines, observed[-1].lines
    planned = memory_plan(observed, made) if plan else None
    return Explanation(code, *lines, made, tuple(notes), planned)


def explain_file(
    path: Path, names: tuple[str, str], views: Views, *, plan: bool = False
) -> Explanation:
    """The same for the program, or the function of these names, in a user's file."""

    def action(given: UserFunction | Program) -> Explanation:
        if isinstance(given, Program):
            return explain(given, views=views, plan=plan)
        return explain(given.function, given.inputs, views, plan=plan, file=path)

    return apply_to(path, FileNames(*names), action)


def _graphs(
    captured: fx.GraphModule,
    inputs: Sequence[torch.Tensor],
    views: Views,
    note: str | None,
    *,
    plan: bool,
) -> list[fx.GraphModule]:
    """The functional graph, the reinplaced one, and with `plan` the planned one.

    `note` says why a refusal may be expected.
    """
    try:
        functional = functionalize(captured, *inputs, views=views)
        # The passes change the graph that they get, and all graphs are shown.
        passes = (reinplace, plan_memory) if plan else (reinplace,)
        rewritten = [rewrite(copy.deepcopy(functional), *inputs) for rewrite in passes]
        return [functional, *rewritten]
    except Refused as refused:
        why = "" if note is None else f"; {note}"
        raise UserError(f"the reference pass refuses it: {refused}{why}") from refused


def named_graph(program: Program) -> fx.GraphModule:
    """The graph of a program, whose nodes have the names of the results in its source."""
    graph = as_graph(program)
    calls = (node for node in graph.nodes if isinstance(node.target, OpOverload))
    for instruction, node in zip(program.instructions, calls, strict=True):
        results = instruction.results
        if returns_one_tensor(node.target):
            named = dict(zip(results, [node], strict=False))
        else:
            named = {results[user.args[1]]: user for user in node.users}
        for name, result in named.items():
            result._rename(name)
    return fx.GraphModule(torch.nn.Module(), graph)


def _captured_graph(function: Function, inputs: object) -> tuple[fx.GraphModule, Comparable]:
    """The graph of a function, and its inputs with the captured tensors and their names."""
    comparable = Comparable.of(function, inputs)
    graph_module = capture(comparable.function, comparable.inputs)
    _name_inputs(graph_module, comparable.names)
    return graph_module, comparable


def _capture_notes(comparable: Comparable) -> list[str]:
    return [
        f"input {index} is the captured tensor {name}"
        for index, name in comparable.captured_inputs()
    ]


def _name_inputs(graph_module: fx.GraphModule, paths: Sequence[str]) -> None:
    """Name the inputs of the graph as the function reaches them: `cache.k` is `cache_k`."""
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    for node, path in zip(placeholders, paths, strict=True):
        if path != UNNAMED:
            node._rename(re.sub(r"\W+", "_", path).strip("_"))
            node.target = node.name
    graph_module.recompile()


def _source_of(function: Function) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return None


# --- graphs ---------------------------------------------------------------------------------------


def graph_lines(
    graph_module: fx.GraphModule, inputs: Sequence[object], paths: Sequence[str] = ()
) -> tuple[NodeLine, ...]:
    """The lines of a graph. Layouts and storages are observed in a run on fake tensors.

    `paths` are those by which the function reaches the inputs.
    """
    return _observed(graph_module, inputs, paths).lines


def _observed(
    graph_module: fx.GraphModule, inputs: Sequence[object], paths: Sequence[str]
) -> ObservedGraph:
    graph, analysis = graph_module.graph, analyse(graph_module, inputs, EAGER)
    path_of = dict(zip(graph.find_nodes(op="placeholder"), paths, strict=False))
    return ObservedGraph(graph, analysis, tuple(_lines(graph, analysis, path_of)))


def _lines(
    graph: fx.Graph, analysis: Analysis, path_of: Mapping[fx.Node, str]
) -> Iterator[NodeLine]:
    storage: dict[int, int] = {}  # of each tensor object, at this point of the graph
    for node in graph.nodes:
        if node.op == "output":
            yield NodeLine("", f"return {_argument(node.args[0])}")
            continue
        effect = analysis.effects[node]
        # Before the update below: a node writes the storage that a tensor has before the node.
        written = [
            storage[id(tensor)]
            for tensor in written_tensors(node, lambda n: analysis.effects[n].value)
        ]
        # `mutated_metadata`: tensors whose metadata the node mutates, such as by `set_`.
        geometries = {**effect.shows, **effect.mutated_metadata}
        storage.update((key, geometry.storage) for key, geometry in geometries.items())
        returned = tuple(
            _shown_layout(effect.shows[id(tensor)]) for tensor in tensors_in(effect.value)
        )
        writes = tuple(dict.fromkeys(map(letter, written)))
        yield NodeLine(node.name, _call(node, path_of.get(node, "")), returned, writes)


def _shown_layout(geometry: Geometry) -> ShownLayout:
    sizes, strides, offset = geometry.sizes, geometry.strides, geometry.offset
    return ShownLayout(
        dtype=str(geometry.dtype).removeprefix("torch."),
        sizes=tuple(map(_size, sizes)),
        strides=tuple(map(_size, strides)),
        offset=_size(offset),
        contiguous=_is_contiguous(sizes, strides),
        storage=letter(geometry.storage),
    )


def _size(size: Size) -> int | str:
    return size if isinstance(size, int) else str(size)


def _is_contiguous(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """True if the strides are those of a new tensor. False if symbolic sizes leave it open."""
    expected: Size = 1
    wanted = []
    for size in reversed(sizes):
        wanted.append(expected)
        expected = expected * size
    # `expected` is now the number of elements. Without elements, any strides will do.
    return known(expected == 0) or same_strides(
        tuple(sizes), tuple(reversed(wanted)), tuple(strides)
    )


def letter(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    rest, last = divmod(number, 26)
    return (letter(rest - 1) if rest else "") + chr(ord("A") + last)


def _call(node: fx.Node, path: str) -> str:
    if node.op == "placeholder":
        return "input" if path in ("", UNNAMED, node.name) else f"input {path}"
    if node.op == "get_attr":
        return f"constant {node.target}"
    name = getattr(node.target, "__name__", "")
    if name == "getitem":  # one result of an op with several
        return f"{_argument(node.args[0])}[{_argument(node.args[1])}]"
    # `on_copies(op, ...)` calls the op, so the defaults are those of the op.
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
        argument.name: argument.default_value
        for argument in op._schema.arguments
        if argument.has_default_value()
    }
    # The types too: `True == 1`, but they are different arguments.
    return name in defaults and (type(value), value) == (type(defaults[name]), defaults[name])


def _argument(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_argument, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_argument, value))}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_argument(item)}' for key, item in value.items())}}}"
    plain = (fx.Node, OpOverload, torch.dtype, torch.device, torch.layout, torch.memory_format)
    return str(value) if isinstance(value, plain) else repr(value)


# --- decisions ------------------------------------------------------------------------------------


# A docstring starts with its steps, such as "(2c), (5): ...", or with "An invariant of ...".
_STEP = re.compile(r"(?:\(\d\w?\)(?:, )?)+|An invariant[^:.]*")


def step_of(condition: str) -> str | None:
    """The step of the algorithm in the docstring of a condition, such as `(1b)`, or None."""
    docstring = next((known.__doc__ for known in CONDITIONS if known.__name__ == condition), None)
    match = _STEP.match((docstring or "").strip())
    return None if match is None else match.group().strip(", ")


def _shown_decision(decision: Decision) -> ShownDecision:
    refused = (
        ShownRefusal(how.value, condition, step_of(condition), reason)
        for how, condition, reason in decision.refused
    )
    how = None if decision.how is None else decision.how.value
    return ShownDecision(decision.node, decision.op, how, tuple(refused), decision.into)
