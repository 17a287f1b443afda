"""Campaigns of Python programs: findings, their scripts, and passes and backends of users."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.failure.finding import Finding, is_of_python
from aliasproof.campaigns.publish.python_issue import confirm_python, python_issue, script, title
from aliasproof.campaigns.publish.replaying import FIXED, STILL, findings_of, replay
from aliasproof.campaigns.run import languages
from aliasproof.campaigns.run.languages import (
    is_of_bug,
    judge_programs,
    named,
    reduce_program,
    straight_line,
)
from aliasproof.campaigns.store.plan import Shard
from aliasproof.campaigns.store.run_folder import RunFolder, read_finding, write_finding
from aliasproof.campaigns.store.run_lock import FINDINGS, UNCONFIRMED
from aliasproof.corpus.known_bug import PythonBug
from aliasproof.findings.showing import show_finding
from aliasproof.ir.errors import InternalError, UserError
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.python_case import PythonCase
from aliasproof.targets.registry import backend_source
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.user_names import grant
from tests.campaigns.made_findings import finding_of
from tests.short_programs import python_of
from tests.wrong_python import WRONG

FINDING = finding_of(PythonProgram(WRONG), "aot-eager", "values", "wrong value", "base")


@pytest.mark.parametrize(
    "change",
    [
        {"program": "import os"},
        {"version": 0},
        {"program": 3},
        {"place": "x'] or print('hi') or ['"},
        {"place": "x.__class__"},
        {"place": "print('hi')"},
        {"evidence": []},
        {"count": "many"},
    ],
)
def test_a_file_that_is_no_finding_is_refused(tmp_path: Path, change: dict[str, object]):
    (tmp_path / "finding.json").write_text(json.dumps({**FINDING.to_json(), **change}))
    with pytest.raises(UserError):
        read_finding(tmp_path)


@pytest.mark.parametrize("place", ["x", "out['a'][0].grad", "a.first, out[-1]", "layer.0.weight"])
def test_a_folder_gives_a_finding_with_a_path_as_place_again(tmp_path: Path, place: str):
    finding = replace(FINDING, place=place)
    write_finding(tmp_path, finding)
    assert read_finding(tmp_path) == finding


def test_names_and_numbers_do_not_change_a_signature():
    other = PythonProgram(WRONG.replace("base", "whole").replace("8", "6"))
    shown = FINDING.target, FINDING.violation
    assert Finding.of(other, *shown).identifier == FINDING.identifier
    more = replace(FINDING.violation, oracle="aliasing")
    assert Finding.of(other, FINDING.target, more).identifier != FINDING.identifier


def known(target: str, oracle: str, kind: str, *needs: str) -> PythonBug:
    symptom = (frozenset({oracle}), kind, frozenset(needs))
    return PythonBug("b", "", "", target, ("2.13",), *symptom, FINDING.program, layer="dynamo")


def test_a_known_bug_is_recognised_by_what_it_needs():
    bug = known("aot-eager", "values", "^wrong", "expand")
    assert is_of_bug(FINDING, bug)
    assert not is_of_bug(FINDING, replace(bug, needs=frozenset({"unfold"})))
    assert not is_of_bug(FINDING, replace(bug, target="inductor"))
    assert not is_of_bug(FINDING, replace(bug, lacks=frozenset({"write"})))
    assert not is_of_bug(FINDING, replace(bug, place="gradient"))
    assert not is_of_bug(FINDING, replace(bug, parts=frozenset({"Dynamo: guards"})))


def test_a_gradient_that_is_new_is_that_of_a_known_bug_if_it_has_zeros():
    bug = known("aot-eager", "structure", "something is new: zeros", "backward")
    bug = replace(bug, sufficient="reason")
    new = replace(FINDING, oracle="structure", kind="something is new")
    trained = python_of("x.sum().backward()", "torch.ones(2).requires_grad_()")
    new = replace(new, program=trained, evidence={"zeros": True})
    assert is_of_bug(new, bug)
    assert not is_of_bug(replace(new, evidence={}), bug)


def test_a_mechanism_that_a_known_bug_does_without_is_another_cause():
    bug = known("aot-eager", "values", "^wrong")
    more = PythonProgram(WRONG.replace("x.expand(3, 4)", "x.data.expand(3, 4)"))
    assert not is_of_bug(replace(FINDING, program=more), bug)
    assert is_of_bug(replace(FINDING, program=more), replace(bug, sufficient="reason"))
    assertion = replace(bug, oracles=frozenset({"errors"}), kind="raises")
    raised = replace(FINDING, program=more, oracle="errors")
    assert is_of_bug(replace(raised, kind="raises AssertionError: idx"), assertion)
    assert not is_of_bug(replace(raised, kind="raises RuntimeError: no"), assertion)


def test_an_error_that_is_not_raised_is_known_by_its_message():
    bug = known("dynamo", "errors", "Error: no")
    missing = replace(FINDING, target="dynamo", oracle="errors", kind="does not raise Error")
    assert is_of_bug(replace(missing, evidence={"message": "no\nmore"}), bug)
    assert not is_of_bug(replace(missing, evidence={"message": "yes"}), bug)


@pytest.mark.thorough
def test_the_script_shows_the_difference_and_a_right_program_shows_none():
    confirmation = confirm_python(FINDING)
    assert confirmation.shown, confirmation.output
    assert "expected: [0.0, 0.0" in confirmation.output
    assert confirmation.output.splitlines()[-1] == f"BUG: {title(FINDING)}."
    right = replace(FINDING, program=PythonProgram(WRONG.replace(".expand(3, 4)", "")))
    assert confirm_python(right).ending == "exits 0"


@pytest.mark.parametrize(
    ("oracle", "place"),
    [
        ("aliasing", "base, x"),
        ("objects", "base, x"),
        ("metadata", "x"),
        ("structure", "x"),
        ("errors", "call"),
        ("values", "out['a'].grad"),
    ],
)
def test_every_script_is_python(oracle: str, place: str):
    compile(script(replace(FINDING, oracle=oracle, place=place)), "script", "exec")


@pytest.mark.thorough
def test_a_script_says_what_is_new_and_what_else_it_is():
    cleared = "x.bias.detach().clamp_(max=2)\nx.weight.sum().backward()"
    program = python_of(cleared, "torch.nn.BatchNorm1d(2)")
    what = ("structure", "something is new", "x1.bias.grad")
    new = finding_of(program, "aot-eager", *what, {"zeros": True})
    assert confirm_python(new).output.startswith("expected: False\nactual:   True\n")
    other = replace(new, kind="another type, or gradients")
    shown = "expected: ['NoneType', None, None]\nactual:   ['Tensor', False, True]\n"
    assert confirm_python(other).output.startswith(shown)


@pytest.mark.thorough
def test_a_script_prints_what_a_backend_raised():
    program = python_of("x.running_var.unfold(0, 2, 1).fill_(2)", "torch.nn.BatchNorm1d(2)")
    what = ("errors", "raises BackendCompilerFailed", "call")
    output = confirm_python(finding_of(program, "aot-eager", *what)).output
    assert "BackendCompilerFailed: backend='aot_eager' raised: RuntimeError: While exec" in output


def test_a_script_shows_what_the_check_of_the_oracle_says():
    overlapping = replace(FINDING, oracle="aliasing", kind="output overlaps itself", place="x")
    assert 'len(memory(left["x"])) < left["x"].numel() * left["x"].itemsize' in script(overlapping)


def test_a_title_says_who_leaves_what_for_which_program():
    assert title(FINDING) == (
        "torch.compile(backend='aot_eager') leaves wrong values in `base` for"
        " x.expand(3, 4).zero_()"
    )
    lost = replace(FINDING, oracle="structure", kind="something is missing", target="dynamo")
    assert title(lost).startswith("torch.compile(backend='eager') leaves out `base` for")
    raised = replace(FINDING, oracle="errors", kind="raises Error", place="call")
    raised = replace(raised, evidence={"type": "Error", "message": "no\nmore"})
    assert " raises Error: no, for " in title(raised)


LONG = """
try:
    y = torch.cond(x.sum() > 1, lambda y: y / 2, lambda y: y + 1, (x,))
finally:
    x.set_(x)
return y
"""


def test_the_title_of_a_long_program_names_its_control_flow_and_syntax():
    long = replace(FINDING, program=python_of(LONG))
    assert title(long).endswith(" for a program with cond, set_, try")


def test_an_issue_has_the_sections_of_the_tracker_and_the_first_wrong_layer():
    text = python_issue(FINDING, "expected: 1\nactual:   2\nBUG: it\nmore")
    for part in (
        "### 🐛 Describe the bug",
        "### Error logs",
        "### Versions",
        "actual:   2\nBUG: it\n```",
    ):
        assert part in text
    assert text.splitlines()[0] == title(FINDING)
    assert '- `backend="eager"`: does what eager does\n- `backend="aot_eager"`: shows' in text


def test_what_no_script_confirms_is_apart_and_has_no_issue(tmp_path: Path):
    files = RunFolder.create(tmp_path / "run")
    for confirmed, kind in ((True, "findings"), (False, "unconfirmed")):
        if confirmed:
            files.write(FINDINGS, FINDING, "", "an issue")
        else:
            files.write(UNCONFIRMED, FINDING, "")
        folder = tmp_path / "run" / kind / FINDING.identifier
        assert (folder / "issue.md").exists() == confirmed
        assert is_of_python(folder)


@pytest.mark.thorough
def test_a_finding_is_shown_and_replayed(tmp_path: Path, capsys):
    files = RunFolder.create(tmp_path)
    files.write(FINDINGS, FINDING, script(FINDING), None)
    own = tmp_path / "findings" / FINDING.identifier
    show_finding(str(own), as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["status"], shown["stored as"]) == ("still there", "finding")
    bugs = findings_of(tmp_path)
    assert [it.word for it in replay(bugs, [Path(sys.executable)])] == [STILL]
    gone = replace(FINDING, program=PythonProgram(WRONG.replace(".expand(3, 4)", "")))
    write_finding(own, gone)
    show_finding(str(own), as_json=False)
    assert "Gone in torch" in capsys.readouterr().out
    bugs = findings_of(tmp_path)
    assert [it.word for it in replay(bugs, [Path(sys.executable)])] == [FIXED]


def test_a_script_defines_the_operators_that_it_calls():
    call = "torch.ops.aliasproof.double(base)\n    return"
    program = PythonProgram(FINDING.program.source.replace("return", call))
    text = script(replace(FINDING, program=program))
    assert text.index("import torch\n") < text.index("def double(") < text.index("def program(")
    compile(text, "script", "exec")


def test_programs_are_judged_by_number():
    judged = judge_programs(Shard(3, "identity", 4, frozenset({2}), python=0))
    assert (judged.statistics.programs, judged.statistics.dies) == (4, 1)
    assert judged.failures == []


def mistaken(*given: object) -> None:
    """In place of a function: a mistake of ours."""
    raise InternalError("ours")


def test_a_mistake_of_ours_is_told(monkeypatch):
    monkeypatch.setattr(languages, "examine", mistaken)
    judged = judge_programs(Shard(3, "identity", 2, python=0))
    assert judged.statistics.mistaken == 2
    assert judged.mistakes == ["program 0: ours", "program 1: ours"]


def test_what_two_eager_runs_differ_in_is_a_mistake_of_ours(monkeypatch):
    symptom = Symptom("identity", "values", "wrong value")
    wrong = SimpleNamespace(symptom=symptom, rejected=None)
    monkeypatch.setattr(languages, "examine", lambda case, target: wrong)
    monkeypatch.setattr(languages, "FailsAlike", lambda symptom: lambda program: True)
    judged = judge_programs(Shard(3, "identity", 1, python=0))
    assert (judged.statistics.mistaken, judged.failures) == (1, [])
    assert "a mistake of aliasproof" in judged.mistakes[0]
    with pytest.raises(UserError, match="no backend"):
        script(replace(FINDING, target="identity"))


def test_a_mistake_of_ours_is_no_other_answer_to_what_a_line_is(monkeypatch):
    monkeypatch.setattr(languages, "lift_program", mistaken)
    with pytest.raises(InternalError, match="ours"):
        straight_line(PythonProgram(WRONG))
    monkeypatch.undo()
    ended = SimpleNamespace(mistake=InternalError("ours"))  # an examination
    monkeypatch.setattr(languages, "examine", lambda *given: ended)
    with pytest.raises(InternalError, match="ours"):
        named(FINDING)


def test_a_finding_without_a_name_is_kept(monkeypatch):
    monkeypatch.setattr(languages, "named", mistaken)
    monkeypatch.setattr(languages, "reduced", lambda *given: FINDING)
    cause = Symptom("aot-eager", "values", "wrong value")
    found = reduce_program(Failure(cause, FINDING.program, 3))
    assert found.reduced == replace(FINDING, seed=3)
    assert found.mistakes == ("ours",)


def program_of(body: str, calls: str) -> PythonProgram:
    return PythonProgram(
        f"import torch\ndef program(x, y):\n    {body}\ndef calls(program):\n    {calls}\n"
        "    return locals()\n"
    )


def test_a_line_of_aten_calls_becomes_a_program():
    line = straight_line(PythonProgram(WRONG))
    assert line is not None
    assert [call.op for call in line.instructions] == ["aten.expand.default", "aten.zero_.default"]
    assert line.inputs[0].sizes == (4,)


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        ("return x", "program(torch.ones(2).requires_grad_(), 1)"),
        ("return x", "program(torch.ones(2), 1)"),
        ("return 3", "program(torch.ones(2), torch.ones(2))"),
        ("return x", "program(torch.ones(2), program(torch.ones(2), torch.ones(2)))"),
        ("return x @ y", "program(torch.ones(2), torch.ones(3))"),
        ("return x.clone().requires_grad_()", "program(torch.ones(2), torch.ones(3))"),
        ("return x + y", "x = 1"),
    ],
)
def test_what_is_no_line_of_aten_calls_becomes_no_program(body: str, calls: str):
    assert straight_line(program_of(body, calls)) is None


def test_one_cause_has_one_name_in_both_languages():
    finding = named(FINDING).finding
    assert finding is not None
    assert finding.known == "expand-inverse"
    assert finding.identifier == "known-expand-inverse"


def test_what_the_documentation_allows_is_no_finding():
    program = program_of("x.zero_()", "program(torch.ones(3).expand(2, 3), torch.ones(2))")
    refused = named(replace(FINDING, program=program, oracle="errors", kind="raises", place="call"))
    assert "overlaps itself" in refused.documented
    assert refused.finding is None


# --- code of a user -------------------------------------------------------------------------------


CODE = '''
import torch

def loses_writes(graph):
    """A wrong pass: inputs stay as they were."""
    for node in list(graph.graph.nodes):
        if node.target is torch.ops.aten.copy_.default:
            graph.graph.erase_node(node)

def copies_outputs(graph, examples):
    """A wrong backend: no output is an input, or shares memory with one."""
    return lambda *args: [out.clone() for out in graph.forward(*args)]

def right(graph, examples):
    return graph.forward

NUMBER = 3
'''
PROGRAM = python_of("for row in x:\n    row += row\nreturn x[1:]", "torch.ones(3)")


@pytest.fixture
def code(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text(CODE)

    def granted(name: str) -> str:
        grant([f"{file}:{name}"])
        return f"{file}:{name}"

    return granted


@pytest.mark.parametrize(
    ("name", "oracle", "kind"),
    [
        ("loses_writes", "values", "wrong value"),
        ("copies_outputs", "aliasing", "lost alias between output and output"),
    ],
)
def test_wrong_code_of_a_user_is_found_and_shown(code, name, oracle, kind):
    target = code(name)
    found = examine(PythonCase(PROGRAM), target_named(target))
    assert found.symptom == Symptom(target, oracle, kind)
    place = found.violations[0].place
    confirmation = confirm_python(finding_of(PROGRAM, target, oracle, kind, place))
    assert confirmation.shown, confirmation.output


def test_right_code_of_a_user_holds(code):
    target = code("right")
    assert examine(PythonCase(PROGRAM), target_named(target)).symptom is None
    counts = judge_programs(Shard(3, target, 20, past_known=True, python=0)).statistics
    assert counts.judged - counts.violating - counts.documented >= 15


def test_the_layer_before_is_at_fault_if_it_is_wrong(code):
    """A known bug of AOTAutograd is not attributed to the pass behind it."""
    wrong = PythonCase(PythonProgram(WRONG))
    symptom = examine(wrong, target_named(code("loses_writes"))).symptom
    assert symptom is not None
    assert symptom.target == "aot-eager"


@pytest.mark.parametrize("name", ["NUMBER", "missing"])
def test_what_is_no_pass_is_refused(code, name):
    with pytest.raises(UserError):
        backend_source(code(name))
