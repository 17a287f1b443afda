"""A stored finding, run again for a report: verdicts, values, memory and graphs as plain values.

It runs in a separate process (`aliasproof.findings.reporting`), which sends the results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.campaigns.failure.finding import AnyFinding, Finding
from aliasproof.checks.explaining import graph_lines, named_graph
from aliasproof.findings.showing import recorded_lines, status_of
from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.errors import InternalError, Rejected, UserError
from aliasproof.ir.execution import seed_generators
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import AnyProgram
from aliasproof.ir.values import clone_inputs, input_tensors
from aliasproof.judge.examination import examine
from aliasproof.judge.localization import first_wrong_pass
from aliasproof.judge.python_case import subject_of
from aliasproof.judge.trial import Case
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.verdict import Report, Verdict
from aliasproof.processes.outcome import DEATHS, DEVICE_LOST
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reports.graph_change import GraphChange, calls_behind, graph_change, new_calls
from aliasproof.reports.run_report import OracleVerdict, SecondRun, Status
from aliasproof.reports.side_by_side import named_rows
from aliasproof.reports.storage_strips import StripSet, strips_of_graph, strips_of_tensors
from aliasproof.reports.verdict_table import STYLES
from aliasproof.targets.registry import target as target_named

# --- new values -----------------------------------------------------------------------------------
#
# `first_new_value`: the first call of a graph whose value eager never has.
#
# A compiled program computes values that eager has at some time, and others that eager never has:
# the inverse of a view, a copy. The first value that no tensor of eager ever has, on the way to a
# wrong result, is where a reader should look. It is a hint, not a proof: a compiler may compute a
# new value and be right.


MOST_ELEMENTS = 1 << 14  # of a value; larger ones are not compared
RTOL, ATOL = 1e-3, 1e-5


class _ValueRecorder(fx.Interpreter):
    """Runs a graph. `values` has what each node returned, `history` all values of its tensors."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.values: dict[str, list[torch.Tensor]] = {}
        self.history: list[torch.Tensor] = []
        self._alive: list[torch.Tensor] = []

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        made = [it for it in tensors_in(result) if it.numel() <= MOST_ELEMENTS]
        self.values[n.name] = [_elements(it) for it in made]
        self._alive += made
        self.history += map(_elements, self._alive)
        return result


def first_new_value(
    before: tuple[fx.GraphModule, Sequence[object]],
    after: tuple[fx.GraphModule, Sequence[object]],
    candidates: Collection[str],
) -> str | None:
    """The first of the candidate nodes whose value no tensor has in a run of `before`.

    Each graph comes with its inputs. None if there is no such node, or if a graph does not run.
    """
    runs = []
    for graph_module, inputs in (before, after):
        recorder = _ValueRecorder(graph_module)
        seed_generators()
        try:
            with torch.no_grad():
                recorder.run(*inputs)
        except Exception:  # noqa: BLE001 - only a hint is lost; the verdicts say what is wrong
            return None
        runs.append(recorder)
    ours, theirs = runs
    for name, values in theirs.values.items():
        new = (not any(_alike(value, other) for other in ours.history) for value in values)
        if name in candidates and any(new):
            return name
    return None


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype != other.dtype or one.numel() != other.numel():
        return False
    if one.dtype.is_floating_point or one.dtype.is_complex:
        return torch.allclose(one, other, rtol=RTOL, atol=ATOL, equal_nan=True)
    return torch.equal(one, other)


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the elements, in order, in a dtype that can be compared."""
    flat = tensor.detach().reshape(-1).clone()
    short = flat.dtype.is_floating_point and flat.dtype.itemsize < 4
    return flat.float() if short else flat


IN_EAGER = "the program in eager, call by call"
NEW_VALUE = "marked: the first value on the way to the wrong result that eager never has"
NEW_CALLS = "marked: calls that only this graph has, and that the wrong result comes from"
OF_VALUES = ("values", "inputs", "equivalence")  # oracles
MOST_MARKED = 3  # of calls that only one graph has; more would not help a reader
TORCH = str(torch.__version__)
MOST_PATHS = 200  # of what a Python program leaves behind


def run_again(finding: AnyFinding) -> SecondRun:
    """Run a finding again."""
    program = finding.program
    memory, notes = _memory_in_eager(program)
    if finding.kind.startswith((*DEATHS, DEVICE_LOST)):
        # The program would end this process, and the script already shows the bug.
        status = Status("not run", "Not run again: it would end its process. Run its reproducer.")
        return SecondRun(TORCH, status, strips=memory, notes=notes)
    target = target_named(finding.target)
    examination = examine(subject_of(program), target, every_oracle=True, attribute=False)
    status = status_of(finding, examination)
    trial = examination.trial
    if trial is None:
        return SecondRun(TORCH, status, strips=memory, notes=notes)
    changes: tuple[GraphChange, ...] = ()
    if isinstance(program, Program):
        stages = trial.build.stages if trial.build is not None else []
        after, further = _memory_of_stage(program, stages)
        memory, notes = (*memory, *after), (*notes, *further)
        changes = tuple(_stage_changes(finding, program, stages))
    left = _tensors(trial.eager), _tensors(trial.target)
    left_behind = list(named_rows(trial.eager, trial.target, trial.eager.place_names()))
    if len(left_behind) > MOST_PATHS:
        left_behind.sort(key=lambda row: row[1] == row[2])
    return SecondRun(
        TORCH,
        status,
        tuple(verdict_of(*item) for item in examination.reports.items()),
        tuple(left_behind[:MOST_PATHS]),
        (*memory, *_memory_afterwards(finding, *left, trial.judgement.reports["aliasing"])),
        changes,
        notes=notes,
    )


def _tensors(run: Observation) -> dict[str, torch.Tensor]:
    """The tensors that a run left behind, by path or number."""
    left = run.leaves() or run.tensors()
    return {place: leaf for place, leaf in left.items() if isinstance(leaf, torch.Tensor)}


def word_on(program: Program, name: str) -> str:
    """The verdict of a target on a program in a few words: the worst, and the oracle's name."""
    target = target_named(name)
    examination = examine(Case.of(program), target, every_oracle=False, attribute=False)
    if examination.trial is None:
        return f"rejected: {' '.join(str(examination.rejected).split())}"
    verdicts = {oracle: report.verdict for oracle, report in examination.reports.items()}
    worst = next((it for it in STYLES if it in verdicts.values()), Verdict.NOT_APPLICABLE)
    if worst in (Verdict.HOLDS, Verdict.NOT_APPLICABLE):
        return worst.word
    return f"{worst.word}: {', '.join(name for name, it in verdicts.items() if it is worst)}"


def changed_by_pass(finding: Finding[Program]) -> GraphChange | None:
    """The graph before and after the pass at fault; None if none was found, or it has no graphs."""
    target, case = target_named(finding.target), Case.of(finding.program)
    part = first_wrong_pass(case, target, finding.violation, experiments=False)
    if part is None or not part.before or not part.after:
        return None
    marked = new_calls(part.before, part.after, finding.place)
    names = f"before {part.name}", f"after {part.name}"
    return graph_change(names, part.before, part.after, marked, NEW_CALLS)


def verdict_of(oracle: str, report: Report) -> OracleVerdict:
    """The report of an oracle as lines."""
    documented = (f"documented: {it.difference.describe()}" for it in report.documented)
    suspected = (f"suspected: {it.describe()}" for it in report.suspected)
    lines = (*(it.describe() for it in report.violations), *documented, *suspected)
    return OracleVerdict(oracle, report.verdict.value, report.reason, lines)


# --- memory ---------------------------------------------------------------------------------------


def _memory_in_eager(program: AnyProgram) -> tuple[tuple[StripSet, ...], tuple[str, ...]]:
    """The strips of the program in eager; or a note that says why there are none."""
    try:
        if isinstance(program, Program):
            lines = [*graph_lines(named_graph(program), input_tensors(program))]
        else:
            lines = recorded_lines(program)
    except (InternalError, Refused, Rejected, UserError) as reason:
        return (), (f"no drawing of its memory: {reason}",)
    return (StripSet(IN_EAGER, strips_of_graph(lines)),), ()


def _memory_of_stage(
    program: Program, stages: Sequence[Stage]
) -> tuple[tuple[StripSet, ...], tuple[str, ...]]:
    """The strips of the last graph that the target makes."""
    if not stages:
        return (), ()
    stage = stages[-1]
    inputs = _stage_inputs(program, stage)
    if inputs is None:
        return (), ()
    title = f"the graph '{stage.name}', call by call"
    try:
        lines = graph_lines(stage.graph, inputs)
    except Exception as reason:  # noqa: BLE001 - a graph of a target may not run on fakes
        return (), (f"no drawing of {title}: {type(reason).__name__}",)
    return (StripSet(title, strips_of_graph(lines)),), ()


def _memory_afterwards(
    finding: AnyFinding,
    eager: Mapping[str, torch.Tensor],
    target: Mapping[str, torch.Tensor],
    aliasing: Report,
) -> Iterator[StripSet]:
    """The memory that both runs leave behind, by name, if the finding is about memory."""
    if finding.oracle not in ("aliasing", "objects", "metadata"):
        return
    violations = aliasing.violations
    pair = next(
        (it for it in violations if it.place == finding.place), next(iter(violations), None)
    )
    ours, theirs = strips_of_tensors(eager), strips_of_tensors(target, pair)
    if any(strip.aliased for strip in (*ours, *theirs)):
        yield StripSet("what eager leaves", ours)
        yield StripSet(f"what {finding.target} leaves", theirs)


# --- graphs ---------------------------------------------------------------------------------------


def _stage_inputs(program: Program, stage: Stage) -> Sequence[object] | None:
    """Fresh inputs of a stage; None if they were not recorded."""
    if stage.whole:
        return input_tensors(program)
    if stage.inputs is None or not all(isinstance(it, torch.Tensor) for it in stage.inputs):
        return stage.inputs
    return clone_inputs(list(stage.inputs))


def _stage_changes(
    finding: AnyFinding, program: Program, stages: Sequence[Stage]
) -> Iterator[GraphChange]:
    """The program and the graphs of the target, each beside the one before it."""
    names = [view.name for view in program.inputs]
    start = renamed_nodes(named_graph(program), names)
    name, before = "the program", start
    for stage in stages:
        after = renamed_nodes(stage.graph, names)
        marked, note = _marked(finding, program, start, before, after, stage)
        yield graph_change((name, stage.name), before.code, after.code, marked, note)
        name, before = stage.name, after


def _marked(
    finding: AnyFinding,
    program: Program,
    start: fx.GraphModule,
    before: fx.GraphModule,
    after: fx.GraphModule,
    stage: Stage,
) -> tuple[Sequence[str], str]:
    """The nodes of a stage that are at fault, if they are found, and why."""
    inputs = _stage_inputs(program, stage)
    # The graph of a wrapped stage has other inputs and results than the program.
    if not stage.whole or inputs is None:
        return (), ""
    if finding.oracle in OF_VALUES:
        behind = calls_behind(after.code, finding.place)
        eager = start, input_tensors(program)
        first = first_new_value(eager, (after, inputs), behind)
        if first is not None:
            return [first], NEW_VALUE
    new = new_calls(before.code, after.code, finding.place)
    return (new, NEW_CALLS) if len(new) <= MOST_MARKED else ((), "")


def renamed_nodes(graph_module: fx.GraphModule, inputs: Sequence[str]) -> fx.GraphModule:
    """A copy whose nodes are named by their ops, so that graphs of different tools look alike.

    Its placeholders get the names `inputs`, if their numbers are equal.
    """
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    own = dict(zip(placeholders, inputs, strict=True)) if len(placeholders) == len(inputs) else {}
    for node in graph_module.graph.nodes:
        is_op = isinstance(node.target, OpOverload)
        stem = node.target.overloadpacket.__name__.strip("_") if is_op else node.name
        name = own.get(node, stem)
        target = name if node.op == "placeholder" else node.target
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), copies.__getitem__)
        copies[node] = graph.create_node(node.op, target, args, kwargs, name)
    return fx.GraphModule(graph_module, graph)
