"""`ModelCheck`: the graphs of a model that runs, their differences, and the summary at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from torch import fx
from torch._dynamo.exc import RestartAnalysis, SkipFrame

from aliasproof.formats.stored_graph import StoredGraph
from aliasproof.ir.errors import UserError, printable
from aliasproof.oracles.place_names import renamed
from aliasproof.reports.console import notes, print_lines
from aliasproof.running_model.checked_graph import (
    CheckedGraph,
    FoundDifference,
    GraphDiffers,
    Running,
)
from aliasproof.running_model.checked_target import CheckedTarget
from aliasproof.running_model.eager_graph import eager_graph
from aliasproof.running_model.graph_names import place_names, where
from aliasproof.running_model.graph_storing import stored_graph
from aliasproof.running_model.lifted_graph import LiftedGraph, snapshot

OnDifference: TypeAlias = Literal["continue", "raise"]
OUT = "aliasproof-graphs"  # the folder for graphs that differ


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How a model is checked: how many calls of each graph, and what follows a difference.

    Raises `UserError` for a value that is none of these.
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
    """What is known of a model that runs.

    `folders` have the graphs that differ. `unchecked` says why other graphs are not checked.
    `running` is told which graph runs.
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
        """A graph of the model, compiled by the target. What that raises, each call raises."""
        try:
            graph, lifted = self._graph(target, module, examples)
        except Exception as error:  # noqa: BLE001 - the model goes on, whatever we do
            self.unchecked.append(f"{type(error).__name__}: {' '.join(str(error).split())[:120]}")
            return module
        started = time.perf_counter()
        try:
            # The graph as Dynamo made it, if it is one of its inputs alone.
            given = snapshot(lifted.module) if lifted.captured else module
            with self.running(f"the compilation of graph {graph.number} ({graph.where})"):
                graph.compiled = target.backend(given, lifted.examples)
        except (RestartAnalysis, SkipFrame):  # the compiler asks Dynamo for another graph
            raise
        except Exception as error:  # noqa: BLE001 - any error of a target is a difference from eager
            graph.compiled = _Raises(error)
        graph.counts.first = time.perf_counter() - started
        self.graphs.append(graph)
        return graph

    def _graph(
        self, target: CheckedTarget, module: fx.GraphModule, examples: Sequence[Any]
    ) -> tuple[CheckedGraph, LiftedGraph]:
        lifted = LiftedGraph.of(module, examples)
        graph = CheckedGraph(
            number=len(self.graphs),
            module=lifted.module,
            eager=eager_graph(lifted.module),
            captured=lifted.captured,
            target=target,
            compiled=_unset,
            report=self._report,
            where=where(module.graph),
            names=place_names(lifted.module.graph),
            most=self.options.calls,
            running=self.running,
        )
        return graph, lifted

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
        """Keep the graph with its inputs; where it is, or why it is not stored."""
        if self.options.out is None:
            return "not stored"
        if found.call.overwritten:
            return "not stored: it shows if an input is written before the call's backward pass"
        try:
            stored: StoredGraph = stored_graph(found)
            folder = _free_name(self.options.out, f"graph-{found.graph.number}-{found.direction}")
            stored.write(folder)
            self.folders.append(folder)
        except UserError as error:
            return f"not stored: {error}"
        except OSError as error:
            return f"not stored: {error.filename} cannot be written: {error.strerror}"
        return f"stored in {folder}"


def _unset(*_: object) -> object:
    raise AssertionError("the graph is not compiled yet")


@dataclass(frozen=True, slots=True)
class _Raises:
    """What the target raised while it compiled a graph."""

    error: Exception

    def __call__(self, *_: object) -> object:
        raise self.error


def _free_name(folder: Path, name: str) -> Path:
    number, path = 1, folder / name
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}"
    return path


def describe(found: FoundDifference) -> str:
    """One line: which graph, which call, which direction, what differs, and where."""
    graph, violation = found.graph, found.violation
    names = dict(graph.names)
    if found.direction == "backward":
        names = gradient_names(found)
    place = renamed(violation.place, names)
    line = (
        f"graph {graph.number} ({graph.where}), call {found.call.number}, {found.direction}:"
        f" {violation.oracle}: {violation.kind} in {place}"
    )
    return f"{line}{_first_element(violation.evidence)}"


def gradient_names(found: FoundDifference) -> dict[str, str]:
    """The names of the outputs of a backward pass: gradients of inputs."""
    leaves = found.call.run(lambda *_: ()).leaves
    return {
        f"output {index}": f"the gradient of {renamed(place, found.graph.names)}"
        for index, place in enumerate(leaves)
    }


def _first_element(evidence: Any) -> str:
    """The first differing element, or the two sides of another difference."""
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
