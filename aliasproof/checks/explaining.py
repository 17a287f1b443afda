"""`explain`: run the reference pass on a function, and record its graphs and decisions."""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
import textwrap
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.eager.definedness import Undefined
from aliasproof.ir.devices import CPU, on_device
from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import as_graph, returns_one_tensor
from aliasproof.ir.program import Program
from aliasproof.ir.values import clone_inputs, input_tensors
from aliasproof.oracles.observation import observe_eager
from aliasproof.reference_pass.alias_analysis import Analysis, analyse
from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.regions import Size, known, same_strides
from aliasproof.reference_pass.calls.storages import Geometry, storage_of, written_tensors
from aliasproof.reference_pass.candidates import How
from aliasproof.reference_pass.capture.function_trace import capture
from aliasproof.reference_pass.eager.torch_semantics import EAGER
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.functionalize import Views
from aliasproof.reference_pass.memory_plan import plan_memory
from aliasproof.reference_pass.pipeline import CONDITIONS, functionalize, reinplace
from aliasproof.reference_pass.planning.join_buffers import buffer_name
from aliasproof.reference_pass.planning.timeline import Lifetime, lifetimes, live_bytes
from aliasproof.reference_pass.reinplace import Decision, decisions
from aliasproof.reports.explanation import Explanation, ShownDecision, ShownRefusal
from aliasproof.reports.node_lines import NodeLine, ShownLayout, letter
from aliasproof.reports.storage_timeline import (
    MemoryPlan,
    ResultLocation,
    StorageRow,
    StorageTimeline,
)
from aliasproof.targets.target import Function
from aliasproof.user_code.captured_tensors import UNNAMED
from aliasproof.user_code.comparable import Comparable
from aliasproof.user_code.given_path import FileNames
from aliasproof.user_code.user_file import UserFunction, apply_to, raised_text


@dataclass(frozen=True, slots=True)
class ObservedGraph:
    """A graph, its analysis in a run on fakes, and the lines that show it."""

    graph: fx.Graph
    analysis: Analysis
    lines: tuple[NodeLine, ...]

    @property
    def named(self) -> dict[str, tuple[fx.Node, NodeLine]]:
        """Nodes and their lines, by name."""
        nodes = zip(self.graph.nodes, self.lines, strict=True)
        return {node.name: (node, line) for node, line in nodes}

    def lives(self) -> dict[str, Lifetime]:
        """The storages that the graph allocates, by letter."""
        letters: dict[int, str] = {}
        for node, line in zip(self.graph.nodes, self.lines, strict=True):
            tensors = [] if node.op == "output" else tensors_in(self.analysis.value(node))
            for tensor, layout in zip(tensors, line.tensors, strict=False):
                letters[storage_of(tensor)] = layout.storage
        lives = lifetimes(self.graph, self.analysis.value)
        return {letters[storage]: life for storage, life in lives.items()}


# --- storages in time -----------------------------------------------------------------------------


def storage_timeline(observed: ObservedGraph) -> StorageTimeline:
    """The storages that a graph allocates, and the inputs that it writes, in time."""
    lives = observed.lives()
    allocated: dict[int, list[str]] = {}
    for storage, life in lives.items():
        allocated.setdefault(life.born, []).append(storage)
    calls: list[int] = []  # the positions of calls that allocate or write
    results: dict[str, list[tuple[int, str]]] = {}
    for at, line in enumerate(observed.lines):
        stored = dict.fromkeys((*allocated.get(at, ()), *line.writes))
        for storage in stored:
            results.setdefault(storage, []).append((len(calls), line.name))
        if stored:
            calls.append(at)
    inputs = [
        StorageRow(storage, None, 0, len(calls) - 1, True, tuple(written))
        for storage, written in results.items()
        if storage not in lives
    ]
    symbolic = {
        layout.storage
        for line in observed.lines
        for layout in line.tensors
        if not all(isinstance(size, int) for size in layout.sizes)
    }
    own = [
        StorageRow(
            storage,
            life.nbytes,
            bisect_right(calls, life.born) - 1,
            bisect_right(calls, life.dies) - 1,
            life.returned,
            tuple(results[storage]),
            unknown=not life.nbytes and storage in symbolic,
        )
        for storage, life in lives.items()
    ]
    live = live_bytes(list(lives.values()), len(observed.lines))
    return StorageTimeline((*inputs, *own), tuple(live[at] for at in calls))


# --- where each result is -------------------------------------------------------------------------


def result_locations(
    functional: ObservedGraph, planned: ObservedGraph, shown: Sequence[ShownDecision]
) -> Iterator[ResultLocation]:
    """For each call that allocates memory in the functional graph: where its result is."""
    wording = _Wording(functional, planned, {decision.node: decision for decision in shown})
    for node in dict.fromkeys(life.node for life in functional.lives().values()):
        decision = wording.decisions.get(node.name)
        refused = () if decision is None else tuple(map(str, decision.refused))
        op = str(node.args[0] if node.target is on_copies else node.target)
        is_new = node.name in wording.allocated
        yield ResultLocation(node.name, op, is_new, wording.location(node), refused)


# How a call that is no longer in the planned graph happens in place.
GIVES_WAY = {
    How.REDUNDANT: "where it is already, in",
    How.SCATTER: "in its base",
    How.COPIED: "copied at once to the input",
    How.VIEW: "not copied, but a view,",
}


class _Wording:
    """Describes where results are in a planned graph."""

    def __init__(
        self,
        functional: ObservedGraph,
        planned: ObservedGraph,
        made: Mapping[str, ShownDecision],
    ) -> None:
        self.decisions = made
        self.named = planned.named
        self.lives = planned.lives()
        # For each node of the functional graph: the input or call whose storage it uses.
        first: dict[str, str] = {}
        self.owners = {
            line.name: first.setdefault(line.tensors[0].storage, line.name)
            for line in functional.lines
            if line.tensors
        }
        self.allocated = {life.node.name: storage for storage, life in self.lives.items()}
        self.position = {node: at for at, node in enumerate(functional.graph.nodes)}
        # By storage: the concatenation that a buffer is for.
        self.joins = {
            self.allocated[buffer_name(node)]: node
            for node in self.position
            if buffer_name(node) in self.allocated
        }

    def location(self, node: fx.Node) -> str:
        """Where the result of a node of the functional graph is."""
        decision = self.decisions.get(node.name)
        if decision is not None and decision.how is not None:
            return self._in_place(node, decision)
        if node.name in self.named:
            _, line = self.named[node.name]
            return f"in new memory: {_storages(layout.storage for layout in line.tensors)}"
        for operand in node.all_input_nodes:  # if this is a cast, its operand is in place
            cast = self.decisions.get(operand.name)
            if cast is not None and cast.how == How.CAST_BACK.value:
                return self.location(operand)
        return self._joined(node)

    def _joined(self, node: fx.Node) -> str:
        """Where a concatenation is whose parts are written into a buffer."""
        buffer = buffer_name(node)
        if buffer in self.allocated:
            return f"in the buffer of its parts: storage {self.allocated[buffer]}"
        storage = self._storage(buffer)
        if storage is not None:
            return self._elsewhere(node, storage)
        return "in no memory: the planned graph does not compute it"

    def _in_place(self, node: fx.Node, decision: ShownDecision) -> str:
        how = How(decision.how)
        storages = list(filter(None, map(self._storage, decision.into)))
        where = f": {_storages(storages)}" if storages else ""
        named = f"{', '.join(decision.into)}{where}"
        if how in GIVES_WAY:
            return f"{GIVES_WAY[how]} {named}"
        call, _ = self.named[node.name]
        operands = [operand.name for operand in nodes_in(call.args)]
        if how is not How.OUT or decision.into[0] in operands:
            return f"in place of its operand {named}"
        return self._elsewhere(node, storages[0])

    def _elsewhere(self, node: fx.Node, storage: str) -> str:
        """Where a result is that does not reuse an operand."""
        if storage not in self.lives:
            return f"in the input that it is copied to in the end: storage {storage}"
        join = self.joins.get(storage)
        if join is not None and self.position[node] < self.position[join]:
            return f"in the buffer of {join}: storage {storage}"
        life = self.lives[storage]
        _, held = self.named[life.node.name]
        was = next(layout.dtype for layout in held.tensors if layout.storage == storage)
        value = node.meta["val"]
        notes = [] if str(value.dtype) == f"torch.{was}" else [f"{was} before"]
        nbytes = value.untyped_storage().nbytes()
        notes += [] if nbytes == life.nbytes else [f"{nbytes} of its {life.nbytes} bytes"]
        text = f"in memory of {life.node}, which is not read any more: storage {storage}"
        return f"{text} ({', '.join(notes)})" if notes else text

    def _storage(self, name: str) -> str | None:
        """The storage of a node, by name, in the planned graph; None if it has none."""
        # The node may have been replaced by another; views that are not read are erased.
        while name not in self.named:
            decision = self.decisions.get(name)
            if decision is not None and decision.into:
                (name,) = decision.into
            elif self.owners.get(name, name) != name:
                name = self.owners[name]
            else:
                return None
        _, line = self.named[name]
        return line.tensors[0].storage


def _storages(letters: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(letters))
    return f"storage{'s' * (len(distinct) > 1)} {', '.join(distinct)}"


def definedness_note(function: Callable[..., object], inputs: Sequence[torch.Tensor]) -> str | None:
    """'undefined in eager: ...' or 'unspecified in eager: ...'; None if eager defines it.

    The function runs once, on clones of the inputs. Its errors are not reported here.
    """
    try:
        _, trace = observe_eager(function, clone_inputs(inputs))
    except Undefined as undefined:
        return f"it is undefined in eager, so a compiler may do anything: {undefined}"
    if trace.unspecified is not None:
        return f"it is unspecified in eager, so a compiler may change it: {trace.unspecified}"
    return None


# --- explaining -----------------------------------------------------------------------------------


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

    A `Program` has its own inputs. `file` is the file of the function: errors then name their line
    in it. Raises `UserError` if the function cannot be captured as a graph, or if the pass refuses
    it.
    """
    code: Program | str | None
    notes: list[str] = []
    paths: Sequence[str] = ()
    try:
        if isinstance(function, Program):
            function = on_device(function, CPU)  # the pass does the same on every device
            inputs = input_tensors(function)
            # A program already is a graph, which a trace could only change.
            captured, code = named_graph(function), function
        else:
            comparable = Comparable.of(function, inputs)
            inputs, paths = comparable.inputs, comparable.names
            captured = capture(comparable, inputs)
            # Named by their paths in the function: `cache.k` becomes `cache_k`.
            placeholders = captured.graph.find_nodes(op="placeholder")
            for node, path in zip(placeholders, paths, strict=True):
                if path != UNNAMED:
                    node._rename(re.sub(r"\W+", "_", path).strip("_"))
                    node.target = node.name
            captured.recompile()
            lifted = enumerate(comparable.captured_names, len(paths) - comparable.captured)
            notes += [f"input {index} is the captured tensor {name}" for index, name in lifted]
            code = None
            with contextlib.suppress(OSError, TypeError):
                code = textwrap.dedent(inspect.getsource(function))
        notes += filter(None, [note := definedness_note(captured, inputs)])
        program = graph_lines(captured, inputs, paths)
    except Refused as refused:
        raise UserError(f"the reference pass refuses it: {refused}") from refused
    # Tracing runs the user's code, which may raise any exception.
    except Exception as error:
        raise UserError(f"it cannot be traced: {raised_text(error, file)}") from error
    graphs = _graphs(captured, inputs, views, note, plan=plan)
    made = tuple(map(_shown_decision, decisions(graphs[-1])))
    observed = [_observed(graph, inputs, paths) for graph in graphs]
    lines = program, observed[0].lines, observed[-1].lines
    planned = None
    if plan:
        locations = result_locations(observed[0], observed[-1], made)
        planned = MemoryPlan(tuple(locations), *map(storage_timeline, observed))
    return Explanation(code, *lines, made, tuple(notes), planned)


def explain_file(path: Path, names: FileNames, views: Views, *, plan: bool = False) -> Explanation:
    """The same for the program, or the function with these names, in a user's file."""

    def action(given: UserFunction | Program) -> Explanation:
        if isinstance(given, Program):
            return explain(given, views=views, plan=plan)
        return explain(given.function, given.inputs, views, plan=plan, file=path)

    return apply_to(path, names, action)


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
        # Passes change their graph, so copy it: all graphs are shown.
        passes = (reinplace, plan_memory) if plan else (reinplace,)
        rewritten = [rewrite(copy.deepcopy(functional), *inputs) for rewrite in passes]
        return [functional, *rewritten]
    except Refused as refused:
        why = "" if note is None else f"; {note}"
        raise UserError(f"the reference pass refuses it: {refused}{why}") from refused


def named_graph(program: Program) -> fx.GraphModule:
    """The graph of a program, whose nodes are named like the results in its source."""
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


# --- graphs ---------------------------------------------------------------------------------------


def graph_lines(
    graph_module: fx.GraphModule, inputs: Sequence[object], paths: Sequence[str] = ()
) -> tuple[NodeLine, ...]:
    """The lines of a graph. Layouts and storages are observed in a run on fake tensors.

    `paths` are the expressions by which the function reaches its inputs.
    """
    return _observed(graph_module, inputs, paths).lines


def _observed(
    graph_module: fx.GraphModule, inputs: Sequence[object], paths: Sequence[str]
) -> ObservedGraph:
    graph, analysis = graph_module.graph, analyse(graph_module, inputs, EAGER)
    path_of = dict(zip(graph.find_nodes(op="placeholder"), paths, strict=False))
    storage: dict[int, int] = {}  # by tensor object, at this point of the graph
    lines = []
    for node in graph.nodes:
        if node.op == "output":
            lines.append(NodeLine("", f"return {_argument(node.args[0])}"))
            continue
        effect = analysis.effects[node]
        # Before the update below: a node writes the storage that a tensor had before the node.
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
        lines.append(NodeLine(node.name, _call(node, path_of.get(node, "")), returned, writes))
    return ObservedGraph(graph, analysis, tuple(lines))


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
    """True if the strides are those of a new tensor. False if that depends on symbolic sizes."""
    expected: Size = 1
    wanted = []
    for size in reversed(sizes):
        wanted.append(expected)
        expected = expected * size
    # `expected` is now the number of elements. Without elements, any strides are contiguous.
    return known(expected == 0) or same_strides(tuple(sizes), tuple(wanted[::-1]), tuple(strides))


def _call(node: fx.Node, path: str) -> str:
    if node.op == "placeholder":
        return "input" if path in ("", UNNAMED, node.name) else f"input {path}"
    if node.op == "get_attr":
        return f"constant {node.target}"
    name = getattr(node.target, "__name__", "")
    if name == "getitem":  # one of several results of an op
        return f"{_argument(node.args[0])}[{_argument(node.args[1])}]"
    # `on_copies(op, ...)` calls the op, so it has the defaults of the op.
    op = node.args[0] if node.target is on_copies else node.target
    kwargs = {key: value for key, value in node.kwargs.items() if not _is_default(op, key, value)}
    arguments = [
        *map(_argument, node.args),
        *(f"{key}={_argument(value)}" for key, value in kwargs.items()),
    ]
    return f"{node.target if isinstance(node.target, OpOverload) else name}({', '.join(arguments)})"


def _is_default(op: object, name: str, value: object) -> bool:
    if not isinstance(op, OpOverload) or not isinstance(value, (bool, int, float, type(None))):
        return False
    named = [it for it in op._schema.arguments if it.name == name and it.has_default_value()]
    # Compare types, too: `True == 1`, but they are different arguments.
    defaults = [(type(it.default_value), it.default_value) for it in named]
    return (type(value), value) in defaults


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
    refused = tuple(
        ShownRefusal(how.value, condition, step_of(condition), reason)
        for how, condition, reason in decision.refused
    )
    how = None if decision.how is None else decision.how.value
    return ShownDecision(decision.node, decision.op, how, refused, decision.into)
