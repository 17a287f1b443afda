"""`bisect`: the layers, the part at fault, the graph around it, versions of torch, bad input."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aliasproof.campaigns.publish.replaying import FIXED, NOT_RUN, STILL, Replayed
from aliasproof.campaigns.store.run_folder import write_finding
from aliasproof.commands.bisect import first_wrong
from aliasproof.corpus.bug_files import python_bugs
from tests.campaigns.made_findings import finding_of
from tests.short_programs import known_bug


@pytest.fixture
def copies(write_program: Callable[..., str]) -> str:
    """A program in which Inductor reuses the first copy for the second one."""
    return write_program("y = x + 1\nreturn y.clone(), y.clone()", "torch.ones(3)")


PASSES = """
import torch

def doubled(graph_module):
    for node in graph_module.graph.nodes:
        if node.target is torch.ops.aten.add.Tensor:
            node.args = (node.args[0], 2)
    return graph_module
"""


@known_bug
def test_the_layer_the_pass_and_the_version_are_named(call, tmp_path: Path, copies) -> None:
    # By default, it bisects Inductor.
    asked = ["bisect", copies, "--json"]
    for version, ending in (
        ("2.13", "grep -q torch.compile $2 && echo BUG: it; exit 1"),
        ("2.12", ":"),
    ):
        python = tmp_path / version
        python.write_text(f'#!/bin/sh\n[ "$2" = -c ] && echo {version} && exit\n{ending}\n')
        python.chmod(0o755)
        asked += ["--torch", python]
    found = call(*asked).json()
    states = {layer["target"]: layer["state"] for layer in found["layers"]}
    assert [*states] == ["aot", "inductor-reinplace", "inductor-fx", "inductor"]
    assert [*states.values()][:3] == ["right", "right", "wrong"]
    assert found["pass"]["name"].endswith("remove_noop_ops")
    assert "clone" in found["pass"]["before"]
    assert "clone" not in found["pass"]["after"]
    assert found["torch"] == {"2.12": FIXED, "2.13": STILL}
    assert found["first wrong torch"] == "2.13"


def test_the_part_of_a_layer_that_is_named_has_a_row(call, write_program) -> None:
    file = write_program("x.expand(3, 4).zero_()\nreturn x + 0", "torch.arange(4.0)")
    found = call("bisect", file, "-t", "aot", "--json").json()
    assert found["at fault"]["target"] == "functionalize"
    assert [layer["target"] for layer in found["layers"]] == ["functionalize", "aot"]
    assert {layer["state"] for layer in found["layers"]} == {"wrong"}


def test_a_documented_difference_is_called_so(call, write_program) -> None:
    file = write_program("return x.nonzero()", "torch.ones(3)")
    assert "aot differs only as it documents" in call("bisect", file, "-t", "aot").refusal
    found = call("bisect", file, "-t", "aot", "--oracle", "errors")
    assert found.code == 0, found.err
    assert "aot documented errors: raises Dynamic" in " ".join(found.out.split())
    assert "aot differs first, as it documents;" in found.out


def test_a_pass_of_the_user_is_named_with_the_graph_around_it(call, tmp_path: Path, copies) -> None:
    (tmp_path / "passes.py").write_text(PASSES)
    done = call("bisect", copies, "-t", f"{tmp_path}/passes.py:doubled")
    assert done.code == 0, done.err
    assert "is wrong first; the part at fault is your pass `doubled`" in done.out
    assert "+    add = torch.ops.aten.add.Tensor(arg0_1, 2)" in done.out


def test_a_finding_of_hunt_is_bisected_by_its_layers(call, tmp_path: Path) -> None:
    bug = python_bugs()["maximum_is_new"]
    finding = finding_of(bug.program, "dynamo", "values", "wrong value", "x")
    write_finding(tmp_path, finding)
    found = call("bisect", tmp_path, "--json").json()
    assert [layer["state"] for layer in found["layers"]] == ["wrong"]
    assert found["pass"]["name"].startswith("Dynamo")


BRANCHES = """
y = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x + 2, (x,))
x.expand(3, 4).zero_()
return y, x + 0
"""


def test_what_no_program_can_call_is_bisected_as_it_is_written(call, write_program) -> None:
    found = call("bisect", write_program(BRANCHES, "torch.arange(4.0)"), "-t", "aot-eager")
    assert found.code == 0, found.err
    assert "searched as it is written, since" in found.err
    assert "aot-eager is wrong first; the part at fault is AOTAutograd" in found.out


PRINTED = """
class GraphModule(torch.nn.Module):
    def forward(self, arg0_1: "f32[4]"):
        add: "f32[4]" = torch.ops.aten.add.Tensor(arg0_1, 1);  arg0_1 = None
        return (add,)
"""


@pytest.mark.parametrize("command", ["bisect", "check", "minimize"])
def test_a_graph_that_torch_printed_is_taken(call, tmp_path: Path, command: str) -> None:
    (tmp_path / "log.txt").write_text(PRINTED)
    (tmp_path / "passes.py").write_text(PASSES)
    options = {"check": ("--in-process",), "minimize": ("--workers", 1)}.get(command, ())
    done = call(command, f"{tmp_path}/log.txt:1", "-t", f"{tmp_path}/passes.py:doubled", *options)
    assert done.code == int(command == "check"), done.err
    assert "a text has no values" in done.err
    assert ("your pass `doubled`" if command != "minimize" else "aten.add.Tensor") in done.out


@pytest.mark.parametrize("command", ["bisect", "minimize"])
def test_a_program_that_does_not_differ_is_bad_input(call, copies, command: str) -> None:
    refusal = call(command, copies, "-t", "identity").refusal
    assert "nothing differs: identity does what eager does" in refusal


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ([FIXED, STILL, STILL], "1"),
        ([STILL, FIXED], None),
        ([FIXED, NOT_RUN, STILL], None),
        ([FIXED], None),
        ([], None),
    ],
)
def test_a_version_is_the_first_if_all_older_ones_are_right(words, first) -> None:
    replays = [Replayed("program", str(number), word, "") for number, word in enumerate(words)]
    assert first_wrong(replays) == first
