"""The commands with a user's own pass: the example of docs/targets.md, findings, entry points."""

import json
import re
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from aliasproof.campaigns.store.run_folder import write_finding
from aliasproof.commands.targets import installed_targets
from aliasproof.targets import registry, user_names
from aliasproof.targets.registry import TARGETS, target
from tests.aliasproof.test_show import FINDING
from tests.subprocesses import python

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
SECTION = DOCS.partition("## Your own pass or backend")[2].partition("\n## ")[0]


@pytest.fixture
def ungranted(monkeypatch):
    """As in a new process."""
    monkeypatch.setattr(user_names, "_granted", set())
    monkeypatch.setattr(registry, "OWN", {})


@pytest.fixture
def passes(tmp_path, ungranted, write_program):
    """The file of the documentation."""
    (code,) = re.findall(r"```python\n# passes\.py\n(.*?)```", SECTION, re.DOTALL)
    assert len(code.split("\n\n\n", 1)[1].strip().splitlines()) <= 10
    (tmp_path / "passes.py").write_text(code)
    write_program("x.add_(1)\nreturn x * 2", "torch.ones(3)")
    yield tmp_path
    sys.modules.pop("aliasproof_target_passes", None)


def test_a_campaign_finds_the_mistake_of_the_example(call, passes):
    assert "$ aliasproof fuzz --target passes.py:cleanup --programs 25" in SECTION
    done = call("fuzz", "--target", "./passes.py:cleanup", "--programs", 8, "--workers", 1)
    assert done.code == 0, done.err
    assert "input ends wrong" in done.out
    (run,) = (passes / "runs").iterdir()
    found = [path for path in (run / "findings").iterdir() if "passes.py.cleanup" in path.name]
    outcome = json.loads((run / "run.json").read_text())
    assert {entry["target"] for entry in outcome["findings"]} == {"passes.py:cleanup"}
    # The command that it prints works.
    (command,) = re.findall(r"aliasproof (show .*)", done.out)
    assert command.endswith(" --target passes.py:cleanup")
    shown = call(*command.split())
    assert "Still there in torch" in shown.out, shown.err
    assert "For PyTorch's tracker" not in shown.out
    # A fresh process needs only torch and the user's file.
    ran = python("-I", found[0] / "reproducer.py")
    assert ran.returncode == 1, ran.stderr
    assert "BUG: passes.py:cleanup" in ran.stdout


def test_a_check_and_a_proof_take_it(call, passes):
    checked = call("check", "mine.py", "--target", "passes.py:cleanup", "--json").json(1)
    oracles = checked["targets"]["passes.py:cleanup"]["oracles"]
    assert oracles["inputs"]["verdict"] == "violated"
    proved = call("prove", "mine.py", "--target", "passes.py:cleanup")
    assert proved.code == 0, proved.err
    assert "1 proved, 0 refuted" in proved.out


IDLE = """
def my_pass(graph_module):
    for node in graph_module.graph.nodes:
        if "{op}" in str(node.target):
            node.kwargs = dict(node.kwargs, alpha=1)
    return graph_module
"""


@pytest.mark.parametrize(("op", "untested"), [("aten.relu", True), ("aten.add", False)])
def test_a_pass_that_changes_no_graph_is_said_to_be_untested(call, passes, op, untested):
    (passes / "idle.py").write_text(IDLE.format(op=op))
    outcome = call("check", "mine.py", "--target", "idle.py:my_pass", "--in-process")
    assert outcome.code == 0, outcome
    said = "idle.py:my_pass: your pass `my_pass` changed no graph of it" in outcome.out
    assert said == untested


LATER = """
def reuses_its_outputs(module, examples):
    kept = []

    def run(x):
        kept[:] = kept or [x.clone()]
        kept[0].copy_(module(x)[0])
        return kept

    return run

def keeps_its_first_inputs(module, examples):
    kept = []

    def run(*inputs):
        kept.append([x.clone() for x in inputs])
        return module(*kept[0])

    return run
"""


@pytest.mark.parametrize(
    ("name", "variant"),
    [("reuses_its_outputs", "kept-outputs"), ("keeps_its_first_inputs", "second-values")],
)
def test_a_backend_that_is_wrong_in_later_calls_is_called_twice(
    call, passes, write_program, name, variant
):
    (passes / "later.py").write_text(LATER)
    target = f"later.py:{name}"
    done = call("check", write_program("return x * 2"), "--target", target, "--in-process")
    assert done.code == 1, done
    assert f"Wrong: {target}:{variant}. Equal to eager: {target}, later.py" in done.out


def test_what_a_backend_raises_is_shown_without_names_of_ours(call, passes):
    (passes / "raises.py").write_text("def mine(module, examples):\n    raise ValueError('this')\n")
    done = call("check", "mine.py", "--target", "raises.py:mine", "--no-grad")
    assert done.code == 1
    assert "BackendCompilerFailed: ValueError: this" in " ".join(done.out.split())
    assert "_recorded" not in done.out


DROPS_A_WRITE = """
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

def compiler(graph, examples):
    (write,) = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    write.replace_all_uses_with(write.args[1])
    graph.graph.erase_node(write)
    graph.recompile()
    return make_boxed_func(graph.forward)

mine = aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=True)
"""


def test_the_compiler_of_a_backend_is_named(call, passes):
    (passes / "drops.py").write_text(DROPS_A_WRITE)
    done = call("check", "mine.py", "--target", "drops.py:mine", "--no-grad")
    assert done.code == 1, done.err
    assert "first wrong after: AOTAutograd: the compiler of the backend" in done.out


@pytest.mark.parametrize("command", ["check", "fuzz", "prove", "minimize"])
def test_a_wrong_name_ends_in_one_line(call, passes, command):
    given = [] if command == "fuzz" else ["mine.py"]
    said = "target 'passes.py:clenup': passes.py has no 'clenup'; did you mean 'cleanup'?"
    refusal = call(command, *given, "--target", "passes.py:clenup").refusal
    assert refusal == f"aliasproof: {said}\n"


@pytest.mark.parametrize("command", ["check", "minimize"])
def test_an_import_that_ends_its_process_costs_one_line(call, passes, command):
    (passes / "dies.py").write_text("import os\nos.abort()\n")
    refusal = call(command, "mine.py", "--target", "dies.py:cleanup").refusal
    assert refusal.startswith("aliasproof: mine.py: the import of a target dies of signal 6")


@pytest.mark.parametrize("name", ["trap:cleanup", "trap.py:cleanup", "trap:cleanup:grad"])
def test_code_that_a_finding_names_is_never_imported(call, tmp_path, ungranted, name):
    (tmp_path / "trap.py").write_text("open('imported', 'w').close()\ndef cleanup(gm): pass\n")
    folder = tmp_path / "runs" / "some" / "findings" / "x"
    write_finding(folder, replace(FINDING, target=name))
    shown = call("show", folder)
    assert shown.code == 0
    assert f"aliasproof show {folder} --target {name}" in shown.out
    checked = call("check", folder, "--target", "identity")
    assert checked.code == 0
    assert "--target trap" in call("minimize", folder).refusal
    assert not (tmp_path / "imported").exists()


def test_a_check_of_a_finding_says_what_to_type(call, passes):
    folder = passes / "runs" / "some" / "findings" / "x"
    write_finding(folder, replace(FINDING, target="passes.py:cleanup"))
    note = "it was found in your own code: to check that, add --target passes.py:cleanup"
    assert note in call("check", folder).err
    done = call("check", folder, "--target", "passes.py:cleanup")
    assert note not in done.err
    assert "Nothing wrong: passes.py:cleanup." in done.out
    assert call("show", folder, "--target", "aot").code == 2


def test_a_broken_entry_point_costs_one_line(call, passes, monkeypatch):
    points = {
        name: EntryPoint(name, value, user_names.GROUP)
        for name, value in (
            ("works", "passes:cleanup"),
            ("gone", "passes:gone"),
            ("aot", "passes:cleanup"),
        )
    }
    monkeypatch.setattr(user_names, "entry_points", lambda group: points.values())
    described = {each["name"]: each for each in installed_targets()}
    assert described["works"]["summary"] == target("works").summary
    assert "has no 'gone'; it defines cleanup" in str(described["gone"]["broken"])
    assert "it cannot be named" in str(described["aot"]["broken"])
    done = call("targets")
    assert done.code == 0
    for name in points:
        assert re.search(rf"^{name} \(entry point passes:\w+\): ", done.out, re.MULTILINE)
    assert all(f"{name}: " in done.out for name in TARGETS)


@pytest.mark.parametrize("command", ["targets", "fuzz", "check"])
def test_the_help_mentions_it(call, command):
    assert "FILE.py:FUNCTION" in " ".join(call(command, "--help").out.split())
