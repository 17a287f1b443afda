"""Models under the check give the same results as without it, and planted faults are found."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch
from torch import nn

from aliasproof.ir.devices import cpu_capability
from aliasproof.targets import inductor
from tests.judge.test_memory_use import fill_of_transposed
from tests.running_model.models import MODELS
from tests.short_programs import known_bug
from tests.subprocesses import aliasproof, python


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_judged_in_each_call_and_computes_the_same(checking, name: str) -> None:
    def run(backend: str) -> list[float]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        return MODELS[name](lambda function: torch.compile(function, backend=backend))

    expected = run("eager")
    with checking() as check:
        assert run("aot_eager") == expected
    assert check.differences == []
    assert check.graphs
    for graph in check.graphs:
        assert graph.counts.forward == graph.counts.calls
        assert graph.counts.unjudged == {}
    trains = "cache" not in name
    assert any(graph.counts.backward for graph in check.graphs) == trains


@pytest.mark.skipif(inductor.unavailable() is not None, reason="needs a C++ compiler")
def test_inductor_draws_and_rounds_as_it_may(checking) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.5), nn.LayerNorm(64))
    with checking() as check:
        compiled = torch.compile(model)
        for _ in range(3):
            compiled(100 * torch.randn(32, 64)).pow(2).mean().backward()
    assert check.differences == []
    (graph,) = check.graphs
    assert (graph.target.name, graph.counts.forward, graph.counts.backward) == ("inductor", 3, 3)
    assert graph.counts.unjudged == {}


@pytest.mark.vectors
@pytest.mark.skipif(cpu_capability() == "DEFAULT", reason="a store of a vector writes too far")
@pytest.mark.skipif(inductor.unavailable() is not None, reason="needs a C++ compiler")
def test_a_write_behind_a_buffer_is_a_difference(checking) -> None:
    with checking() as check:
        torch.compile(fill_of_transposed, dynamic=True)(torch.rand(64, 5, 5).mT)
    ((oracle, kind),) = {(it.violation.oracle, it.violation.kind) for it in check.differences}
    assert (oracle, kind) == ("bounds", "writes behind the end of a buffer")


# --- faults of the catalogue, planted into a pass -------------------------------------------------


@pytest.mark.timeout(900)  # minutes, on a busy machine
@pytest.mark.parametrize(
    ("model", "fault", "oracle"),
    [
        ("Llama, training", "reinplaces_what_is_read_later", "values"),
        ("ResNet, training", "one_input_is_written_back", "inputs"),
    ],
    ids=["Llama", "ResNet"],
)
def test_a_fault_is_found_in_the_first_call_and_reduced(checking, planted, model, fault, oracle):
    target = planted(fault)
    torch.manual_seed(0)
    with checking(target) as check:
        MODELS[model](torch.compile)
    found, folder = check.differences[0], check.folders[0]
    assert (found.graph.number, found.call.number, found.violation.oracle) == (0, 1, oracle)
    done = aliasproof("minimize", folder, "--target", target, "--json")
    assert done.returncode == 0, done.stderr
    sizes = json.loads(done.stdout)["instructions"]
    assert sizes["before"] > 30
    assert sizes["after"] <= 8


# --- the walk-through of docs/models.md: from a training script to an issue -----------------------


SCRIPT = Path(__file__).parent / "sharpness.py"


@pytest.mark.timeout(900)  # it compiles C++, also in fresh processes
@pytest.mark.skipif(inductor.unavailable() is not None, reason="needs a C++ compiler")
@known_bug
def test_what_the_tool_prints_leads_from_a_script_to_an_issue_that_runs(tmp_path: Path) -> None:
    checked = aliasproof("run", SCRIPT, cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    found, *_, hint = checked.stderr.splitlines()
    assert "forward: inputs: input ends wrong in input" in found
    command = shlex.split(hint.split(": aliasproof ")[1])

    reduced = aliasproof(*command, cwd=tmp_path)
    assert reduced.returncode == 0, reduced.stderr
    kept = reduced.stderr.splitlines()[0]
    assert "known bug copy-of-written-input: Inductor removes a clone" in kept
    assert "https://github.com/pytorch/pytorch/issues/198131" in kept

    folder = tmp_path / command[-1]
    issue = (folder / "issue.md").read_text()
    assert "Inductor's joint_graph pass remove_noop_ops" in issue
    assert "Found in a model that was compared with eager while it ran: graph 0" in issue
    script = re.findall(r"```python\n(.*?)```", issue, re.DOTALL)[0]
    assert len(script.split("def inputs")[0].split("def program")[1].splitlines()) <= 6
    (tmp_path / "of_issue.py").write_text(script)
    shown = python("of_issue.py", cwd=tmp_path)
    assert (shown.returncode, shown.stdout.strip() in issue) == (1, True)

    named = aliasproof("bisect", folder, cwd=tmp_path)
    assert "the part at fault is joint_graph: remove_noop_ops" in named.stdout
