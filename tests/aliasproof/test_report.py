"""`aliasproof report`: a page and files for CI systems, and findings that run again for it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import fx

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.run_contents import read_contents, set_state
from aliasproof.campaigns.store.run_folder import RunFolder, write_finding
from aliasproof.campaigns.store.run_lock import FINDINGS, RunLock
from aliasproof.campaigns.store.store import Store
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.findings.reporting import report
from aliasproof.findings.second_run import (
    IN_EAGER,
    changed_by_pass,
    first_new_value,
    renamed_nodes,
    run_again,
    word_on,
)
from aliasproof.findings.showing import recorded_lines
from aliasproof.oracles.stage import Stage
from aliasproof.reports.side_by_side import SHARED
from aliasproof.reports.storage_strips import strips_of_graph
from aliasproof.targets.target import Build, Function
from tests.campaigns.made_findings import finding_of
from tests.campaigns.test_merging import SHOWN
from tests.short_programs import known_bug, python_of


@pytest.fixture
def finding(adding_program) -> Finding:
    what = ("identity", "values", "wrong value", "output 0")
    evidence = {"eager": "</script><script>"}
    return finding_of(adding_program, *what, evidence, identifier="identity-values-1")


@pytest.fixture
def run(tmp_path: Path, finding: Finding) -> Path:
    """A run with a confirmed finding and an unconfirmed one."""
    folder = tmp_path / "run"
    folder.mkdir()
    store = Store.open(folder)
    store.keep_plan(Plan(("identity",), programs=50, seed=7))
    other = replace(finding, identifier="identity-values-2", target="mine.py:my_pass")
    for each in (finding, other):
        store.keep_finding(each, f"print({each.identifier!r})\n", "reduced")
        store.keep_occurrence(each.identifier, "a task", 0)
    store.keep_confirmation(finding.identifier, "reproduced", SHOWN)
    store.keep_torch_compile(finding, {"inductor": "shows"}, "print(1)\n", "# the issue\n")
    for number in (1, 2):
        store.note_progress(number, {}, (number, 0, 0), 1, (1, 1, 1))
    store.close()
    return folder


def test_a_page_of_a_run_has_its_findings_and_those_that_ran_again(call, run):
    done = call("report", run)
    assert (done.code, done.out) == (0, "")
    assert done.err.strip() == "html: report/report.html"
    page = Path("report/report.html").read_text()
    assert "identity-values-1" in page
    assert "seed 7" in page
    assert "<script><script>" not in page


def test_each_format_is_a_file_of_the_same_run(call, run, monkeypatch, tmp_path):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    forms = ("json", "junit", "sarif", "github")
    done = call("report", run, "-o", "out", "--seconds", 0, *(f"--format={it}" for it in forms))
    assert done.code == 0
    names = {"aliasproof.sarif", "junit.xml", "report.json", "summary.md"}
    assert {path.name for path in Path("out").iterdir()} == names
    assert done.out.startswith("::error file=run/findings/identity-values-1/reproducer.py,line=1")
    assert (tmp_path / "step.md").read_text() == Path("out/summary.md").read_text()
    first = json.loads(Path("out/report.json").read_text())["findings"][0]
    assert first["state"] == "reproduced"
    assert first["issue"] == "# the issue\n"
    assert first["not_run"].startswith("Not run again")


def test_a_report_is_written_over_an_earlier_one_and_over_nothing_else(call, run):
    options = ("--seconds", 0, "--format", "json")
    assert call("report", run, "-o", "out", *options).code == 0
    assert call("report", run, "-o", "out", *options).code == 0
    Path("out/mine.txt").write_text("mine")
    refusal = call("report", run, "-o", "out", *options).refusal
    assert "out exists, and has mine.txt, which no report wrote; name a new folder" in refusal


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("nowhere/run",), "nowhere/run does not exist; name the folder of a run, or a finding"),
        (("no-such-finding",), "no finding 'no-such-finding'"),
        (("empty",), "empty has no store.sqlite; name the folder of a run"),
        (("graphs",), "graphs/graph-0-forward is a graph of a model; reduce it to a finding by"),
        (("begun",), "begun has not begun"),
        (("run", "--format", "htm"), "--format htm; did you mean 'html'?"),
        (("run", "--faults", "none.json"), "--faults: none.json cannot be read"),
        (("run", "--faults", "text"), "--faults: text is no JSON"),
        (("run", "--drawn", "list"), "--drawn: the file is not what 'aliasproof stats --json'"),
        (("run", "--out", "text"), "--out text is a file; name a folder"),
        (("run", "--seconds", "-1"), "--seconds"),
        (("run", "--target", "nonsense"), "nonsense"),
    ],
)
def test_bad_input_is_told_in_one_line(call, run, given, said):
    Path("empty").mkdir()
    Path("graphs/graph-0-forward").mkdir(parents=True)
    Path("graphs/graph-0-forward/graph.json").touch()
    Path("begun").mkdir()
    Store.open(Path("begun")).close()
    Path("text").write_text("{")
    Path("list").write_text("[]")
    options = () if "--seconds" in given else ("--seconds", 0)
    refusal = call(
        "report", *given, *(() if "--out" in given else ("--out", "new")), *options
    ).refusal
    assert said in refusal
    assert not Path("new").exists()


# --- contents of a report -------------------------------------------------------------------------


def test_what_needs_a_look_comes_first_and_states_are_the_last_ones(run):
    store = Store.open(run)
    set_state(store, "identity-values-1", "known", "https://x.y/1", "a note")
    store.close()
    first, second = report(str(run), 0.0).findings
    assert (first.identifier, first.settled) == ("identity-values-2", False)
    assert (second.state, second.link, second.note) == ("known", "https://x.y/1", "a note")


def test_a_run_is_read_while_it_goes_on_and_stays_as_it_was(run):
    lock, before = RunLock.take(run), sorted(run.rglob("*"))
    try:
        contents = read_contents(run)
        assert sorted(run.rglob("*")) == before
    finally:
        lock.release()
    assert contents.view.running
    assert [case.folder.parent.name for case in contents.cases] == ["findings", "unconfirmed"]
    assert len(contents.view.moments) == 2


def test_a_run_of_another_torch_can_be_read(run):
    store = Store.open(run)
    store.write("UPDATE runs SET torch = '1.0'")
    store.close()
    assert report(str(run), 0.0).torches == ("1.0",)


def test_code_of_a_user_runs_only_if_they_name_it(run):
    findings = {it.identifier: it for it in report(str(run), 0.0).findings}
    advice = "Not run again: it needs your code: --target mine.py:my_pass."
    assert findings["identity-values-2"].not_run == advice


def test_a_finding_runs_again_in_a_process_of_its_own(run, finding):
    folder = RunFolder(run).path(FINDINGS, finding.identifier)
    write_finding(folder, finding)
    (one,) = report(str(folder), 60.0).findings
    assert one.second is not None
    assert one.second.status.word == "gone"
    assert one.second.strips[0].strips[0].rows[1].writes
    # The store of the run has more data than the folder of the finding.
    assert (one.state, one.issue) == ("reproduced", "# the issue\n")


def test_a_finding_without_its_run_is_read_from_its_folder(tmp_path, finding):
    folder = tmp_path / "findings" / "x"
    write_finding(folder, finding)
    (folder / "reproducer.py").write_text("print(1)\n")
    (one,) = report(str(folder), 0.0).findings
    assert (one.state, one.script, one.times) == ("reproduced", "print(1)\n", 1)


def test_a_hunt_is_reported_as_a_campaign_is(tmp_path):
    folder = tmp_path / "hunt"
    folder.mkdir()
    store = Store.open(folder)
    store.keep_plan(Plan(("identity",), programs=9, language="python"))
    what = ("identity", "values", "wrong value", "out1")
    made = finding_of(python_of("return x"), *what)
    store.keep_finding(made, "print(1)\n", "reduced")
    store.keep_confirmation(made.identifier, "reproduced", SHOWN)
    store.keep_torch_compile(made, {}, "print(1)\n", "# an issue\n")
    store.close()
    written = report(str(folder), 0.0)
    (one,) = written.findings
    assert (one.unit, one.state, one.issue) == ("line", "reproduced", "# an issue\n")
    assert written.command == "hunt"


def test_a_program_through_another_target_has_a_few_words(program, adding_program) -> None:
    body = "v0 = aten.expand.default(x0, [3, 4])\naten.zero_.default(v0)\nreturn (x0,)"
    wrong = program(body, (4,))
    assert word_on(wrong, "identity") == "holds"
    assert word_on(wrong, "aot") == "wrong: values, inputs"
    assert word_on(adding_program, "eager-cuda").startswith("rejected: ")


# --- second runs ----------------------------------------------------------------------------------


@pytest.fixture
def planted_finding(program):
    """`planted_finding(body, oracle, kind, place)`: a finding of a planted target."""

    def stored(body: str, oracle: str, kind: str, place: str) -> Finding:
        return finding_of(program(body, (4,)), "planted", oracle, kind, place, identifier="one")

    return stored


def test_a_new_alias_is_drawn_with_its_witness(planted_finding, plant):
    plant("planted", lambda function, inputs: Build(lambda x: (x[2:],), []))
    body = "v0 = aten.slice.Tensor(x0, 0, 2)\nv1 = aten.clone.default(v0)\nreturn (v1,)"
    kind, place = "new alias between input and output", "input 0, output 0"
    second = run_again(planted_finding(body, "aliasing", kind, place))
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


def test_a_wrong_stride_shows_both_layouts(planted_finding, plant):
    plant("planted", lambda function, inputs: Build(lambda x: (x.view(2, 2).t().contiguous(),), []))
    body = "v0 = aten.view.default(x0, [2, 2])\nv1 = aten.t.default(v0)\nreturn (v1,)"
    second = run_again(planted_finding(body, "metadata", "wrong stride", "output 0"))
    (ours, theirs) = next(row[1:] for row in second.rows if row[0] == "output 0")
    assert "strides [1, 2]" in ours
    assert "strides [2, 1]" in theirs


def test_a_graph_is_shown_as_a_diff_with_the_first_value_that_eager_never_has(
    planted_finding, plant
):
    def stages(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
        graph = fx.Graph()
        x = graph.placeholder("arg0_1")
        two = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2))
        wrong = graph.call_function(torch.ops.aten.sub.Tensor, (two, 7))
        graph.output((graph.call_function(torch.ops.aten.add.Tensor, (wrong, 1)),))
        module = fx.GraphModule({}, graph)
        return Build(module, [Stage("functional", module, functional=True)])

    plant("planted", stages)
    body = "v0 = aten.mul.Tensor(x0, 2)\nv1 = aten.add.Scalar(v0, 1)\nreturn (v1,)"
    second = run_again(planted_finding(body, "values", "wrong value", "output 0"))
    (change,) = second.graphs
    assert (change.before, change.after) == ("the program", "functional")
    lines = [(line.sign, line.text.strip().partition(" ")[0]) for line in change.lines]
    assert (" ", "mul") in lines  # equal nodes have equal names
    assert [line.text.strip().partition(" ")[0] for line in change.lines if line.marked] == ["sub"]
    assert {place for place, one, other in second.rows if one != other} == {"output 0"}


def test_what_would_end_the_process_does_not_run(planted_finding, plant):
    plant("planted", None)
    body = "v0 = aten.slice.Tensor(x0, 0, 2)\nreturn (v0,)"
    second = run_again(planted_finding(body, "errors", "dies of signal 11", "call"))
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
