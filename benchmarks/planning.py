"""What planning memory saves, and how far it is from the least that any plan could need.

- *drawn programs*: for graphs of few calls, the exact minimum of the peak is found by z3
  (`aliasproof.oracles.proofs.smallest_peak`). *reached* is the share of them in which the peak of
  `plan_memory` is that minimum. No graph may be below it, and none above `reinplace`.
- *graphs*: bytes that are live at the peak, and allocations, of the functional graph, of
  `reinplace`, of `torch.fx.passes.reinplace.reinplace`, of Inductor with and without its memory
  planning, and of `plan_memory`. *at least* is a bound that no plan of the functional graph is
  below. Inductor's kernels hold what they fuse in registers, which no graph of ATen calls can.
- *chains*: seconds of processor time of `plan_memory`. *growth* is that as a multiple of the row
  above, for ten times as many nodes.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import fx
from torch.fx.passes import reinplace as torch_reinplace

from aliasproof.campaigns.store.plan import PROGRAMS_PER_SHARD
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import as_graph
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import dumps
from aliasproof.ir.values import input_tensors
from aliasproof.oracles.proofs.memory_problem import needed
from aliasproof.oracles.proofs.sharing_rules import problem_of
from aliasproof.oracles.proofs.smallest_peak import smallest_peak
from aliasproof.reference_pass.calls.operator_forms import is_opaque
from aliasproof.reference_pass.capture.footprint import Footprint, footprint
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.memory_plan import plan_memory
from aliasproof.reference_pass.pipeline import (
    functionalize,
    reinplace,
    remove_noops,
    update_metadata,
)
from benchmarks.inductor_memory import inductor_footprint
from benchmarks.pass_cost import CHAINS, graph_of
from benchmarks.planning_subjects import SUBJECTS, Subject, subjects
from benchmarks.tables import Table, percent

PROGRAMS = 1_000
FIRST_SEED = 2000
MOST_CALLS = 12  # of a graph whose smallest peak is looked for
DRAWN, CHAIN = "drawn programs", "chains"
SIZES = (1_000, 10_000)
PLANNERS = ("functional", "reinplace", "torch", "Inductor", "Inductor, planned", "plan_memory")


@dataclass(frozen=True, slots=True)
class DrawnPlan:
    """The plan of a drawn program: peaks and allocations, and the smallest peak if it is known."""

    program: str
    calls: int
    functional: Footprint
    reinplaced: Footprint
    planned: Footprint
    smallest: int | None

    @property
    def wasteful(self) -> bool:
        """True if a better plan is known."""
        return self.smallest is not None and self.planned.peak > self.smallest

    @property
    def worse(self) -> bool:
        """True if reinplacing alone needs fewer bytes or allocations."""
        ours, other = self.planned, self.reinplaced
        return ours.peak > other.peak or ours.calls > other.calls


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """The footprints of one graph by planner, and the least peak that a plan could have."""

    graph: str
    footprints: dict[str, Footprint]
    at_least: int

    def row(self) -> tuple[str, ...]:
        """The row of its table."""
        sizes = [self.footprints[planner] for planner in PLANNERS]
        cells = (f"{size.peak:,} / {size.calls}" for size in sizes)
        return (self.graph, *cells, f"{self.at_least:,}")


@dataclass(frozen=True, slots=True)
class PlanTiming:
    """Seconds to plan a chain."""

    chain: str
    nodes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Planning:
    """All figures. `refused` counts programs that the pass refuses, or whose sizes are symbols."""

    drawn: Sequence[DrawnPlan]
    refused: int
    graphs: Sequence[GraphPlan]
    timings: Sequence[PlanTiming]

    def tables(self) -> list[Table]:
        """A table per part that was measured."""
        tables = []
        if self.drawn:
            tables.append(self._of_drawn())
        if self.graphs:
            columns = ("graph", *PLANNERS, "at least")
            rows = [plan.row() for plan in self.graphs]
            tables.append(Table("planning: bytes at the peak / allocations", columns, rows))
        if self.timings:
            tables.append(self._of_timings())
        return tables

    def _of_drawn(self) -> Table:
        known = [plan for plan in self.drawn if plan.smallest is not None]
        small = [plan for plan in self.drawn if plan.calls <= MOST_CALLS]
        reached = sum(plan.planned.peak == plan.smallest for plan in known)
        rows = [
            ("programs", str(len(self.drawn))),
            ("refused", str(self.refused)),
            (f"of at most {MOST_CALLS} calls", str(len(small))),
            ("smallest peak found", str(len(known))),
            ("reached", percent(reached / max(1, len(known)))),
            ("below (a defect of the bound)", str(sum(map(_is_below, known)))),
            ("above reinplace", str(sum(plan.worse for plan in self.drawn))),
        ]
        notes = [f"wasteful: {_in_words(plan)}" for plan in known if plan.wasteful]
        notes += [f"below: {_in_words(plan)}" for plan in known if _is_below(plan)]
        notes += [f"above reinplace: {_in_words(plan)}" for plan in self.drawn if plan.worse]
        return Table("planning: drawn programs", ("", "number"), rows, notes)

    def _of_timings(self) -> Table:
        rows = []
        for before, timing in zip([None, *self.timings], self.timings, strict=False):
            is_next = before is not None and before.chain == timing.chain
            growth = f"{timing.seconds / before.seconds:.1f}" if is_next and before else ""
            rows.append((timing.chain, str(timing.nodes), f"{timing.seconds:.2f}", growth))
        columns = ("chain", "nodes", "seconds", "growth")
        return Table("planning: seconds to plan a chain", columns, rows)


def measure(
    names: Sequence[str] = (), programs: int = PROGRAMS, sizes: Sequence[int] = SIZES
) -> Planning:
    """Measure the parts with these names, which may be graphs; all of them, if none is given."""
    known = (DRAWN, CHAIN, *SUBJECTS)
    for name in names:
        if name not in known:
            raise UserError(f"unknown part '{name}'; parts: {'; '.join(known)}")
    chosen = names or known
    drawn = list(_drawn_plans(programs)) if DRAWN in chosen else []
    plans = [plan for plan in drawn if plan is not None]
    wanted = [name for name in SUBJECTS if name in chosen]
    graphs = [graph_plan(name, subject) for name, subject in subjects(wanted).items()]
    timings = list(_timings(sizes)) if CHAIN in chosen else []
    return Planning(plans, len(drawn) - len(plans), graphs, timings)


# --- drawn programs -------------------------------------------------------------------------------


def _drawn_plans(count: int) -> Iterator[DrawnPlan | None]:
    for start in range(0, count, PROGRAMS_PER_SHARD):
        seed = FIRST_SEED + start // PROGRAMS_PER_SHARD
        for program in sample(swarm(seed), seed, min(PROGRAMS_PER_SHARD, count - start)):
            yield drawn_plan(program)


def custom_operators(graph: fx.Graph) -> set[object]:
    """The operators of other libraries, whose schemas are true here, as `reinplace` trusts them."""
    called = {op for node in graph.nodes for op in (node.target, *node.args[:1])}
    return {op for op in called if is_opaque(op)}


def drawn_plan(program: Program) -> DrawnPlan | None:
    """The plan of a program; None if it is refused, or its graph has symbolic sizes."""
    graph = fx.GraphModule(torch.nn.Module(), as_graph(program))
    try:
        functional = remove_noops(functionalize(graph, *input_tensors(program)))
        trusted = custom_operators(functional.graph)
        planned = footprint(plan_memory(copy.deepcopy(functional), non_aliasing=trusted).graph)
        reinplaced = footprint(reinplace(copy.deepcopy(functional)).graph)
        problem = problem_of(functional.graph)
    except (Refused, ValueError):
        return None
    calls = sum(node.op == "call_function" for node in functional.graph.nodes)
    smallest = smallest_peak(problem) if calls <= MOST_CALLS else None
    before = footprint(functional.graph)
    return DrawnPlan(dumps(program), calls, before, reinplaced, planned, smallest)


def _is_below(plan: DrawnPlan) -> bool:
    return plan.smallest is not None and plan.planned.peak < plan.smallest


def _in_words(plan: DrawnPlan) -> str:
    return (
        f"{plan.planned.peak} bytes in {plan.planned.calls}, smallest {plan.smallest},"
        f" reinplace {plan.reinplaced.peak} in {plan.reinplaced.calls}: {plan.program}"
    )


# --- graphs ---------------------------------------------------------------------------------------


def graph_plan(name: str, subject: Subject) -> GraphPlan:
    """What each planner makes of a graph."""
    function, inputs = subject
    functional = remove_noops(functionalize(function, *inputs))
    theirs = torch_reinplace.reinplace(copy.deepcopy(functional), *inputs)
    update_metadata(theirs, *inputs)
    modules = {
        "functional": functional,
        "reinplace": reinplace(copy.deepcopy(functional)),
        "torch": theirs,
        "plan_memory": plan_memory(copy.deepcopy(functional)),
    }
    footprints = {planner: footprint(module.graph) for planner, module in modules.items()}
    for title, planning in (("Inductor", False), ("Inductor, planned", True)):
        footprints[title] = inductor_footprint(function, inputs, planning)
    return GraphPlan(name, footprints, needed(problem_of(functional.graph)))


# --- chains ---------------------------------------------------------------------------------------


def joins(graph: fx.Graph, value: fx.Node, nodes: int) -> fx.Node:
    """Concatenations of two computed parts, each halved again."""
    aten = torch.ops.aten
    for _ in range(nodes // 4):
        one = graph.call_function(aten.add.Tensor, (value, 1))
        other = graph.call_function(aten.mul.Tensor, (value, 2))
        joined = graph.call_function(aten.cat.default, ([one, other],))
        value = graph.call_function(aten.slice.Tensor, (joined, 0, 0, 4))
    return value


def reductions(graph: fx.Graph, value: fx.Node, nodes: int) -> fx.Node:
    """Products and sums of rows, each of which is used some calls later: storages to take over."""
    aten = torch.ops.aten
    sums = [value] * 8
    for step in range(nodes // 3):
        value = graph.call_function(aten.mm.default, (value, value))
        value = graph.call_function(aten.add.Tensor, (value, sums[step % 8]))
        sums[step % 8] = graph.call_function(aten.sum.dim_IntList, (value, [0], True))
    return value


def _timings(sizes: Sequence[int]) -> Iterator[PlanTiming]:
    chains = {**CHAINS, "concatenations": joins, "products and sums": reductions}
    for name, chain in chains.items():
        plan_memory(graph_of(chain, 10), torch.ones(4, 4))  # imports, and fills caches
        for nodes in sizes:
            module = graph_of(chain, nodes)
            start = time.process_time()
            plan_memory(module, torch.ones(4, 4))
            yield PlanTiming(name, nodes, time.process_time() - start)
