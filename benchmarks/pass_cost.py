"""The CPU time of the reference pass on long chains, compared with the passes of torch.

Both get each chain, in one run. The chains of `reinplace` are functional graphs:

- *elementwise*: x = x + 1, repeated.
- *views*: a transpose of the last value, then an add.
- *scatters*: a row of one base, an add, and a scatter of the row into the base.

The chains of `functionalize` are functions of in-place ops. Tracing them is part of the time:

- *in place*: x.add_(1), repeated.
- *views of views*: a transpose of the last transpose, then an in-place add to it.
- *rows*: an in-place add to one row of a base, then to the next.

How to read a row: seconds of CPU time; the least of some rounds if a round is short. *ours / torch*
is the ratio. *growth* is our time as a multiple of the row above. *at most* is the growth of
n·log n. *in place* is the number of calls that write, ours and torch's. `-` means that torch's pass
was left out, because it took too long on the row above.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload
from torch.func import functionalize as torch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes import reinplace as torch_reinplace

from aliasproof.reference_pass.pipeline import functionalize, reinplace
from benchmarks.tables import Table

aten = torch.ops.aten

SIZES = (100, 1_000, 10_000)
ROWS = 4  # of the square tensor that all chains begin with
ROUNDS = 5  # at most
SHORT = 1.0  # seconds: no further round after that

TimedRun: TypeAlias = Callable[[], fx.GraphModule]
# Makes a run on a graph, or a function, that no other run has changed.
FreshRun: TypeAlias = Callable[[], TimedRun]
# For a number of nodes: the runs of our pass, and those of torch's.
BothPasses: TypeAlias = Callable[[int], tuple[FreshRun, FreshRun]]


@dataclass(frozen=True, slots=True)
class Timing:
    """One chain: seconds and calls that write, of our pass and of torch's. None: left out."""

    chain: str
    nodes: int
    ours: float
    theirs: float | None
    in_place: int
    in_place_theirs: int | None


@dataclass(frozen=True, slots=True)
class PassTimings:
    """All chains of each pass.

    `limit` is how many seconds torch's pass may take before the next size is left out.
    """

    limit: float
    reinplace: Sequence[Timing]
    functionalize: Sequence[Timing]

    def tables(self) -> list[Table]:
        return [
            self._table("reinplace", self.reinplace, "torch.fx.passes.reinplace.reinplace"),
            self._table(
                "functionalize", self.functionalize, "make_fx(torch.func.functionalize(f))"
            ),
        ]

    def _table(self, name: str, timings: Sequence[Timing], theirs: str) -> Table:
        above: list[Timing | None] = [None, *timings]
        rows = [_row(timing, before) for before, timing in zip(above, timings, strict=False)]
        columns = (
            "chain",
            "nodes",
            "ours",
            "torch",
            "ours / torch",
            "growth",
            "at most",
            "in place",
            "torch's",
        )
        notes = [f"torch: {theirs}."]
        notes += [
            f"{after.chain}, {after.nodes} nodes: torch left out, it took {before.theirs:.1f} s on"
            f" {before.nodes} nodes, over the limit of {self.limit:g} s."
            for before, after in pairwise(timings)
            if before.theirs is not None and after.theirs is None
        ]
        return Table(f"pass_cost: seconds to {name} a chain", columns, rows, notes)


def measure(sizes: Sequence[int] = SIZES, limit: float = 5.0) -> PassTimings:
    """Time both passes on all chains of these numbers of nodes."""
    graphs: list[Timing] = []
    for name, chain in CHAINS.items():
        graphs += _time_sizes(name, sizes, limit, _reinplacing(chain))
    functions: list[Timing] = []
    for name, program in PROGRAMS.items():
        functions += _time_sizes(name, sizes, limit, _functionalizing(program))
    return PassTimings(limit, tuple(graphs), tuple(functions))


# --- chains ---------------------------------------------------------------------------------------


def elementwise(graph: fx.Graph, value: fx.Node, nodes: int) -> fx.Node:
    """Adds."""
    for _ in range(nodes):
        value = graph.call_function(aten.add.Tensor, (value, 1))
    return value


def views(graph: fx.Graph, value: fx.Node, nodes: int) -> fx.Node:
    """Transposes and adds, in turn."""
    for _ in range(nodes // 2):
        value = graph.call_function(aten.transpose.int, (value, 0, 1))
        value = graph.call_function(aten.add.Tensor, (value, 1))
    return value


def scatters(graph: fx.Graph, value: fx.Node, nodes: int) -> fx.Node:
    """Adds to one row of a base after the other."""
    # The base is the result of an add, since a functional graph must not write an input.
    value = graph.call_function(aten.add.Tensor, (value, 1))
    for step in range((nodes - 1) // 3):
        row = (0, step % ROWS, step % ROWS + 1)
        part = graph.call_function(aten.slice.Tensor, (value, *row))
        part = graph.call_function(aten.add.Tensor, (part, 1))
        value = graph.call_function(aten.slice_scatter.default, (value, part, *row))
    return value


def in_place(value: torch.Tensor, nodes: int) -> torch.Tensor:
    """In-place adds."""
    for _ in range(nodes):
        aten.add_.Tensor(value, 1)
    return value


def views_of_views(value: torch.Tensor, nodes: int) -> torch.Tensor:
    """Transposes and in-place adds, in turn."""
    for _ in range(nodes // 2):
        value = aten.transpose.int(value, 0, 1)
        aten.add_.Tensor(value, 1)
    return value


def rows(value: torch.Tensor, nodes: int) -> torch.Tensor:
    """In-place adds to one row after the other."""
    for step in range(nodes // 2):
        aten.add_.Tensor(aten.slice.Tensor(value, 0, step % ROWS, step % ROWS + 1), 1)
    return value


Chain: TypeAlias = Callable[[fx.Graph, fx.Node, int], fx.Node]
ChainProgram: TypeAlias = Callable[[torch.Tensor, int], torch.Tensor]

CHAINS: dict[str, Chain] = {"elementwise": elementwise, "views": views, "scatters": scatters}
PROGRAMS: dict[str, ChainProgram] = {
    "in place": in_place,
    "views of views": views_of_views,
    "rows": rows,
}


def graph_of(chain: Chain, nodes: int) -> fx.GraphModule:
    """A chain as a graph module of one input."""
    graph = fx.Graph()
    graph.output((chain(graph, graph.placeholder("x"), nodes),))
    return fx.GraphModule(torch.nn.Module(), graph)


# --- timing ---------------------------------------------------------------------------------------


def _reinplacing(chain: Chain) -> BothPasses:
    def prepare(run: Callable[..., fx.GraphModule], nodes: int) -> FreshRun:
        def fresh() -> TimedRun:
            module, sample = graph_of(chain, nodes), _sample()
            return lambda: run(module, sample)

        return fresh

    return lambda nodes: (prepare(reinplace, nodes), prepare(torch_reinplace.reinplace, nodes))


def _functionalizing(program: ChainProgram) -> BothPasses:
    def both(nodes: int) -> tuple[FreshRun, FreshRun]:
        def function(value: torch.Tensor) -> torch.Tensor:
            return program(value, nodes)

        def theirs() -> fx.GraphModule:
            traced: fx.GraphModule = make_fx(torch_functionalize(function))(_sample())
            return traced

        return lambda: lambda: functionalize(function, _sample()), lambda: theirs

    return both


def _time_sizes(name: str, sizes: Sequence[int], limit: float, runs: BothPasses) -> list[Timing]:
    for fresh in runs(10):  # warm-up: the first run of a pass imports and fills caches
        fresh()()
    timings: list[Timing] = []
    theirs: tuple[float, int] | None = (0.0, 0)
    for nodes in sizes:
        fresh_ours, fresh_theirs = runs(nodes)
        seconds, written = _least(fresh_ours)
        # Over the limit once, torch's pass is left out of all larger sizes.
        theirs = _least(fresh_theirs) if theirs is not None and theirs[0] <= limit else None
        timings.append(
            Timing(
                name,
                nodes,
                seconds,
                *((theirs[0], written, theirs[1]) if theirs else (None, written, None)),
            )
        )
    return timings


def _least(fresh: FreshRun) -> tuple[float, int]:
    """The least seconds of some rounds, and how many calls of the result write."""
    seconds: list[float] = []
    written = 0
    while len(seconds) < ROUNDS and sum(seconds) < SHORT:
        run = fresh()
        gc.collect()  # so that the garbage of other runs is not freed in this one's time
        start = time.process_time()
        module = run()
        seconds.append(time.process_time() - start)
        written = sum(map(_writes, module.graph.nodes))
    return min(seconds), written


def _writes(node: Any) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _sample() -> torch.Tensor:
    return torch.ones(ROWS, ROWS)


def _row(timing: Timing, before: Timing | None) -> tuple[str, ...]:
    growth = at_most = ""  # the first row of a chain has none
    if before is not None and before.chain == timing.chain:
        growth = f"{timing.ours / before.ours:.1f}"
        at_most = f"{_n_log_n(timing.nodes) / _n_log_n(before.nodes):.1f}"
    return (
        timing.chain,
        str(timing.nodes),
        f"{timing.ours:.3f}",
        "-" if timing.theirs is None else f"{timing.theirs:.3f}",
        "-" if timing.theirs is None else f"{timing.ours / timing.theirs:.2f}",
        growth,
        at_most,
        str(timing.in_place),
        "-" if timing.in_place_theirs is None else str(timing.in_place_theirs),
    )


def _n_log_n(nodes: int) -> float:
    return nodes * math.log(nodes)
