"""A stored finding runs again for a report: verdicts, values, memory and graphs."""

from collections.abc import Sequence

import pytest
import torch
from torch import fx

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.findings.second_run import (
    IN_EAGER,
    changed_by_pass,
    first_new_value,
    renamed_nodes,
    run_again,
)
from aliasproof.findings.showing import recorded_lines
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.stage import Stage
from aliasproof.reports.side_by_side import SHARED
from aliasproof.reports.storage_strips import strips_of_graph
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Build, Function, Target
from tests.campaigns.made_findings import finding_of
from tests.short_programs import known_bug, python_of


@pytest.fixture
def finding(program):
    """`finding(body, oracle, kind, place)`: a finding of a planted target."""

    def stored(body: str, oracle: str, kind: str, place: str) -> Finding:
        return finding_of(program(body, (4,)), "planted", oracle, kind, place, identifier="one")

    return stored


@pytest.fixture
def plant(monkeypatch):
    """`plant(build)`: registers a target under the name 'planted'."""

    def planted(build) -> None:
        monkeypatch.setitem(TARGETS, "planted", Target("planted", "", Contract(), build, ""))

    return planted


def test_a_new_alias_is_drawn_with_its_witness(finding, plant):
    plant(lambda function, inputs: Build(lambda x: (x[2:],), []))
    body = "v0 = aten.slice.Tensor(x0, 0, 2)\nv1 = aten.clone.default(v0)\nreturn (v1,)"
    kind, place = "new alias between input and output", "input 0, output 0"
    second = run_again(finding(body, "aliasing", kind, place))
    assert second.status.word == "still there"
    assert {it.oracle: it.verdict for it in second.verdicts}["aliasing"] == "violated"
    assert [it.title for it in second.strips] == [
        IN_EAGER,
        "what eager leaves",
        "what planted leaves",
    ]
    assert [it.at_fault for it in second.strips] == [False, False, True]
    (shared,) = second.strips[2].strips[0].shared
    assert (shared.first, shared.second) == ("input 0", "output 0")
    assert shared.byte >= 8


def test_a_wrong_stride_shows_both_layouts(finding, plant):
    plant(lambda function, inputs: Build(lambda x: (x.view(2, 2).t().contiguous(),), []))
    body = "v0 = aten.view.default(x0, [2, 2])\nv1 = aten.t.default(v0)\nreturn (v1,)"
    second = run_again(finding(body, "metadata", "wrong stride", "output 0"))
    (ours, theirs) = next(row[1:] for row in second.rows if row[0] == "output 0")
    assert "strides [1, 2]" in ours
    assert "strides [2, 1]" in theirs


def test_a_graph_is_shown_as_a_diff_with_the_first_value_that_eager_never_has(finding, plant):
    def stages(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
        graph = fx.Graph()
        x = graph.placeholder("arg0_1")
        two = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2))
        wrong = graph.call_function(torch.ops.aten.sub.Tensor, (two, 7))
        graph.output((graph.call_function(torch.ops.aten.add.Tensor, (wrong, 1)),))
        module = fx.GraphModule({}, graph)
        return Build(module, [Stage("functional", module, functional=True)])

    plant(stages)
    body = "v0 = aten.mul.Tensor(x0, 2)\nv1 = aten.add.Scalar(v0, 1)\nreturn (v1,)"
    second = run_again(finding(body, "values", "wrong value", "output 0"))
    (change,) = second.graphs
    assert (change.before, change.after) == ("the program", "functional")
    lines = [(line.sign, line.text.strip().partition(" ")[0]) for line in change.lines]
    assert (" ", "mul") in lines  # equal nodes have equal names
    assert [line.text.strip().partition(" ")[0] for line in change.lines if line.marked] == ["sub"]
    assert {place for place, one, other in second.rows if one != other} == {"output 0"}


def test_what_would_end_the_process_does_not_run(finding, plant):
    plant(None)
    body = "v0 = aten.slice.Tensor(x0, 0, 2)\nreturn (v0,)"
    second = run_again(finding(body, "errors", "dies of signal 11", "call"))
    assert second.status.word == "not run"
    assert [it.title for it in second.strips] == [IN_EAGER]


@known_bug
def test_the_wrong_inverse_of_a_view_is_marked():
    made = known_bugs()["expand-inverse"].program
    what = ("functionalize", "values", "wrong value", "output 0")
    stored = finding_of(made, *what, identifier="one")
    second = run_again(stored)
    assert second.status.word in ("still there", "another violation")
    marked = [line.text for change in second.graphs for line in change.lines if line.marked]
    assert len(marked) == 1
    assert "aten.sub" in marked[0]
    assert changed_by_pass(stored) is None


def test_a_python_program_has_rows_by_name_and_its_calls_are_drawn():
    given = python_of("x[1:].add_(1)\nreturn x", "torch.ones(3)")
    stored = finding_of(given, "identity", "values", "wrong value", "out1")
    second = run_again(stored)
    assert second.status.word == "gone"
    assert {place for place, _, _ in second.rows} == {"x1", "out1", SHARED}
    assert (SHARED, "out1, x1", "out1, x1") in second.rows
    strip = second.strips[0].strips[0]
    assert [row.name for row in strip.rows if row.writes] == ["add_"]
    assert [row.spans for row in strip.rows if row.writes] == [((4, 12),)]
    assert strip.shared[0].byte == 4


def test_recorded_calls_name_the_tensors_of_earlier_calls():
    lines = recorded_lines(python_of("return x.t().mul(2)", "torch.ones(2, 3)"))
    calls = {line.name: line.call for line in lines}
    assert calls["mul"].startswith("mul.Tensor(t")
    letters = [strip.storage for strip in strips_of_graph(lines)]
    assert letters == sorted({*letters})


def run_of(function) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    return fx.symbolic_trace(function), [torch.arange(4.0)]


def test_a_value_is_new_if_no_tensor_ever_has_it():
    eager = run_of(lambda x: torch.mul(torch.add(x, 1), 3))
    wrong = run_of(lambda x: torch.mul(torch.sub(torch.add(x, 1), 5), 3))
    runs = eager, wrong
    assert first_new_value(*runs, {"add", "sub", "mul"}) == "sub"
    assert first_new_value(*runs, {"mul"}) == "mul"
    assert first_new_value(runs[0], runs[0], {"add", "mul"}) is None


def test_a_value_that_a_tensor_has_after_a_write_is_not_new():
    runs = run_of(lambda x: x.view(2, 2).add_(1)), run_of(lambda x: torch.add(x, 1))
    assert first_new_value(*runs, {"add"}) is None


def test_rounding_is_no_new_value():
    runs = run_of(lambda x: torch.mul(x, 0.1)), run_of(lambda x: torch.div(x, 10.000001))
    assert first_new_value(*runs, {"div"}) is None


def test_a_graph_that_does_not_run_has_no_new_value():
    raises = run_of(lambda x: torch.mm(x, x))
    assert first_new_value(raises, raises, {"mm"}) is None


def test_renamed_nodes_compute_the_same_under_the_names_of_their_ops():
    graph = fx.Graph()
    x = graph.placeholder("arg0_1")
    added = graph.call_function(torch.ops.aten.add_.Tensor, (x, 1), name="odd")
    graph.output((added,))
    module = renamed_nodes(fx.GraphModule({}, graph), ["x0"])
    assert [node.name for node in module.graph.nodes] == ["x0", "add", "output"]
    assert module(torch.ones(2))[0].tolist() == [2, 2]
    other = renamed_nodes(fx.GraphModule({}, graph), ["x0", "x1"])
    assert [node.name for node in other.graph.nodes][:1] == ["arg0_1"]
