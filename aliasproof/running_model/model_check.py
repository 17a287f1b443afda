"""`ModelCheck`: the graphs of a running model, their differences, and the summary at the end."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import fx
from torch._dynamo.exc import RestartAnalysis, SkipFrame

from aliasproof.formats.stored_graph import StoredGraph
from aliasproof.ir.errors import UserError, printable
from aliasproof.ir.values import STATIC
from aliasproof.oracles.verdict import rename_places
from aliasproof.reports.console import counted, notes, print_lines
from aliasproof.running_model.checked_graph import (
    IN_BACKWARD,
    CallCounts,
    CheckedGraph,
    FoundDifference,
    GraphDiffers,
    Running,
)
from aliasproof.running_model.checked_target import CheckedTarget
from aliasproof.running_model.graph_call import Modes
from aliasproof.running_model.lifted_graph import (
    LiftedGraph,
    eager_graph,
    place_names,
    snapshot,
    where,
)
from aliasproof.targets.registry import TARGETS, is_name
from aliasproof.targets.user_names import NAME_IT

# --- graph storing --------------------------------------------------------------------------------
#
# A graph of a model that differs, as a `StoredGraph`: with its inputs and the modes of the call.


_ENTER, _EXIT = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast


def stored_graph(found: FoundDifference) -> StoredGraph:
    """The stored form of a difference."""
    module = in_modes(snapshot(found.graph.module), found.call.modes)
    about = {
        "target": found.graph.target.name,
        "reduced through": found.graph.target.reducing(found.direction),
        "direction": found.direction,
        "graph": f"{found.graph.number} ({found.graph.where})",
        "difference": f"{found.violation.oracle}: {found.violation.describe()}",
        "torch": str(torch.__version__),
    }
    # Mark the inputs that Dynamo took for static, such as buffers, and captured tensors.
    inputs = found.graph.module.graph.find_nodes(op="placeholder")
    for index, (node, value) in enumerate(zip(inputs, found.call.given, strict=True)):
        known = node.meta.get("tensor_dict", {}).get(STATIC)
        static = "unguarded" if index < len(found.graph.captured) else known
        if static is not None:
            setattr(value, STATIC, static)
    return StoredGraph(module, found.call.given, about)


def in_modes(module: fx.GraphModule, modes: Modes) -> fx.GraphModule:
    """The graph with calls that enter the modes at its start, and leave them at its end."""
    graph = module.graph
    body = next(node for node in graph.nodes if node.op != "placeholder")
    entered = []
    with graph.inserting_before(body):
        if not modes.gradients or modes.inference:
            graph.call_function(torch._C._set_grad_enabled, (False,))
        for device, dtype in modes.autocast.items():
            entered.append(graph.call_function(_ENTER, (device, dtype, True, None)))
    with graph.inserting_before(graph.output_node()):
        for mode in reversed(entered):
            graph.call_function(_EXIT, (mode,))
        if not modes.gradients or modes.inference:
            graph.call_function(torch._C._set_grad_enabled, (True,))
    module.recompile()
    return module


# --- model check ----------------------------------------------------------------------------------


OnDifference: TypeAlias = Literal["continue", "raise"]
OUT = "aliasproof-graphs"  # the folder for graphs that differ


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How a model is checked: how many calls of each graph, and what happens at a difference.

    Raises `UserError` for invalid values.
    """

    calls: int | None = None
    on_difference: OnDifference = "continue"
    out: Path | None = Path(OUT)

    def __post_init__(self) -> None:
        if self.on_difference not in ("continue", "raise"):
            raise UserError(f"on_difference={self.on_difference!r}: give 'continue' or 'raise'")
        if self.calls is not None and (type(self.calls) is not int or self.calls < 1):
            raise UserError(f"calls={self.calls!r}: give a whole number from 1, or None for all")


@dataclass(slots=True)
class ModelCheck:
    """The state of checking a running model.

    `folders` have the graphs that differ. `unchecked` says why other graphs are not checked.
    `running` is called with the name of the running graph.
    """

    options: CheckOptions = field(default_factory=CheckOptions)
    graphs: list[CheckedGraph] = field(default_factory=list)
    differences: list[FoundDifference] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    running: Running = nullcontext

    def compile(
        self, target: CheckedTarget, module: fx.GraphModule, examples: Sequence[Any]
    ) -> Callable[..., object]:
        """Compile a graph of the model on the target. If that raises, so does each call."""
        try:
            lifted = LiftedGraph.of(module, examples)
            graph = CheckedGraph(
                number=len(self.graphs),
                module=lifted.module,
                eager=eager_graph(lifted.module),
                captured=lifted.captured,
                target=target,
                compiled=_raising(AssertionError("the graph is not compiled yet")),
                report=self._report,
                where=where(module.graph),
                names=place_names(lifted.module.graph),
                most=self.options.calls,
                running=self.running,
            )
        except Exception as error:  # noqa: BLE001 - our errors must not stop the model
            self.unchecked.append(f"{type(error).__name__}: {' '.join(str(error).split())[:120]}")
            return module
        started = time.perf_counter()
        try:
            # The graph as Dynamo made it, if it has captured no tensors.
            given = snapshot(lifted.module) if lifted.captured else module
            with self.running(f"the compilation of graph {graph.number} ({graph.where})"):
                graph.compiled = target.compile(given, lifted.examples)
        except (RestartAnalysis, SkipFrame):  # the compiler requests another graph from Dynamo
            raise
        except Exception as error:  # noqa: BLE001 - any error of a target is a difference from eager
            graph.compiled = _raising(error)
        graph.counts.first = time.perf_counter() - started
        self.graphs.append(graph)
        return graph

    @property
    def judged(self) -> int:
        """How many calls and backward passes were judged."""
        return sum(graph.counts.forward + graph.counts.backward for graph in self.graphs)

    def _report(self, found: FoundDifference) -> None:
        self.differences.append(found)
        line = f"{describe(found)}; {self._store(found)}"
        print_lines(notes(), f"aliasproof: {printable(line)}")
        if self.options.on_difference == "raise":
            raise GraphDiffers(line)

    def _store(self, found: FoundDifference) -> str:
        """Store the graph with its inputs. Returns where, or why not."""
        if self.options.out is None:
            return "not stored"
        if found.call.overwritten:
            return "not stored: it shows if an input is written before the call's backward pass"
        try:
            stored: StoredGraph = stored_graph(found)
            name = f"graph-{found.graph.number}-{found.direction}"
            folder, number = self.options.out / name, 1
            while folder.exists():
                number += 1
                folder = self.options.out / f"{name}-{number}"
            stored.write(folder)
            self.folders.append(folder)
        except UserError as error:
            return f"not stored: {error}"
        except OSError as error:
            return f"not stored: {error.filename} cannot be written: {error.strerror}"
        return f"stored in {folder}"


def _raising(error: Exception) -> Callable[..., object]:
    """A graph whose calls raise the error of its compilation."""

    def call(*_: object) -> object:
        raise error

    return call


def describe(found: FoundDifference) -> str:
    """One line: graph, call, direction, difference and location."""
    graph, violation = found.graph, found.violation
    names = graph.names
    if found.direction == "backward":  # its outputs are the gradients of inputs
        leaves = found.call.run(lambda *_: ()).leaves
        names = {
            f"output {index}": f"the gradient of {rename_places(place, graph.names)}"
            for index, place in enumerate(leaves)
        }
    place = rename_places(violation.place, names)
    line = (
        f"graph {graph.number} ({graph.where}), call {found.call.number}, {found.direction}:"
        f" {violation.oracle}: {violation.kind} in {place}"
    )
    return f"{line}{_first_element(violation.evidence)}"


def _first_element(evidence: Any) -> str:
    """The first differing element, or both sides of another difference."""
    if "eager" not in evidence or "target" not in evidence:
        return ""
    sides = f"{_short(evidence['target'])} for {_short(evidence['eager'])}"
    if "first wrong index" not in evidence:
        return f": {sides}"
    counts = f"{evidence['wrong elements']} of {evidence['elements']} elements"
    return f": {counts}, first {evidence['first wrong index']}: {sides}"


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:59]}…"


# --- check summary --------------------------------------------------------------------------------
#
# The end of a checked run: what was not checked, what differs, and the cost.


_ZEROS = "a gradient is None on one side and zeros on the other (an optimizer skips None only)"


def summary(
    check: ModelCheck, without_graphs: str = "NOT CHECKED: no graph was compiled"
) -> Iterator[str]:
    """The lines, without the differences, each of which has had its line already.

    `without_graphs` is the line if no graph was compiled.
    """
    graphs = check.graphs
    for reason in dict.fromkeys(check.unchecked):
        yield f"NOT CHECKED: a graph, because aliasproof fails; please report it: {reason}"
    if not graphs:
        yield without_graphs
        return
    counts = [graph.counts for graph in graphs]
    yield from _not_checked(counts)
    targets = ", ".join(dict.fromkeys(graph.target.name for graph in graphs))
    wrong = len({difference.graph.number for difference in check.differences})
    yield (
        f"{targets} beside eager: {counted(len(graphs), 'graph')},"
        f" {counted(sum(it.calls for it in counts), 'call')}:"
        f" {sum(it.forward for it in counts)} judged,"
        f" {sum(it.backward for it in counts)} with a backward pass;"
        f" {counted(wrong, 'graph')} {'differs' if wrong == 1 else 'differ'}"
    )
    rounding = sum(it.rounding for it in counts)
    if rounding:
        yield f"{counted(rounding, 'call')}: rounding alone, both sides agree in float64"
    documented = sum(it.documented for it in counts)
    if documented:
        yield f"{counted(documented, 'difference')} that the target documents"
    alone = sum(it.target for it in counts)
    spent = sum(it.model + it.checking for it in counts)
    cost = f"{sum(it.first for it in counts):.1f} s in compilations and first calls"
    if alone:
        cost += f"; {spent:.1f} s in later calls, {spent / alone:.1f} times the target alone"
    yield cost
    if check.folders:
        yield _reduction(check)


def _not_checked(counts: Sequence[CallCounts]) -> Iterator[str]:
    """How many calls were not judged, and why."""
    calls = counted(sum(it.calls for it in counts), "call")
    reasons: Counter[str] = Counter()
    for it in counts:
        reasons.update(it.unjudged)
        reasons.update({f"{IN_BACKWARD}{_ZEROS}": it.zeros})
    for reason, number in (+reasons).items():
        why = reason.removeprefix(IN_BACKWARD)
        which = f"the backward pass in {number}" if why != reason else f"{number}"
        yield f"NOT CHECKED: {which} of {calls}, because {why}"


def _reduction(check: ModelCheck) -> str:
    """The command for the next step. An issue is only for a bug of torch."""
    found, folder = check.differences[0], check.folders[0]
    checked = found.graph.target
    target = checked.reducing(found.direction)
    if not is_name(target):
        return f"no command can import the backend of {folder}: {NAME_IT}"
    if found.direction == "backward" and not checked.gradients:  # programs have no backward pass
        command = ["aliasproof", "check", str(folder), "--target", target]
        return f"to see what differs first: {shlex.join(command)}"
    command = ["aliasproof", "minimize", str(folder), "--target", target]
    if target.split(":")[0] not in TARGETS:
        return f"to reduce what differs first: {shlex.join(command)}"
    command += ["--finding", f"{folder}-reduced"]
    return f"to reduce what differs first to a script and an issue: {shlex.join(command)}"


def print_summary(check: ModelCheck, *without_graphs: str) -> None:
    """Print the summary on standard error; the arguments are those of `summary`."""
    for line in summary(check, *without_graphs):
        print_lines(notes(), f"aliasproof: {line}")
