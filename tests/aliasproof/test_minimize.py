"""`minimize`: by a target and by a script, what is kept, interruption, and output files."""

import json
import re
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.fx import symbolic_trace

from aliasproof.campaigns.store.run_folder import write_finding
from aliasproof.formats.stored_graph import StoredGraph
from aliasproof.ir.errors import UserError
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import dumps, loads
from aliasproof.minimization.candidate_checks import (
    RememberedCheck,
    RepeatedCheck,
    ScriptCheck,
    minimize,
)
from tests.campaigns.made_findings import finding_of
from tests.short_programs import known_bug, of_vectors
from tests.subprocesses import ran

MINE = """
import torch

def program(x, y):
    z = torch.relu(y * 2)
    wide = x[1:].expand(3, 3)
    wide.zero_()
    return x + 0, torch.div(z, 3, rounding_mode="floor")

def inputs():
    return torch.arange(4.), torch.arange(4.)
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A function with a write that functionalization of torch 2.13 gets wrong."""
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


@known_bug
def test_a_function_is_reduced_by_a_target(call, mine: Path) -> None:
    found = call("minimize", mine, "-t", "aot", "--json", "-o", "small.json", "--workers", 2).json()
    assert found["instructions"] == {"before": 7, "after": 2}
    assert found["kept"] == {"target": "functionalize", "oracle": "values", "kind": "wrong value"}
    assert found["signature"]
    assert found["candidates tried"] == sum(step["candidates"] for step in found["steps"].values())
    small = loads(Path("small.json").read_text())
    assert [each.op for each in small.instructions] == ["aten.expand.default", "aten.zero_.default"]
    # Its output can be reduced, too, and is a fixpoint.
    again = call("minimize", "small.json", "-t", "functionalize", "--workers", 1)
    assert again.code == 0, again.err
    assert "2 to 2 instructions" in again.err
    assert "def inputs():" in again.out


REPLAYED = "y = (torch.sin(x) * 2).t()\nreturn y, y.detach()"
LEAF = "torch.ones(2, 2, requires_grad=True)"


@known_bug
@pytest.mark.parametrize("stored", [True, False])
def test_what_differs_with_gradients_alone_is_reduced_with_them(
    call, tmp_path: Path, write_program, stored: bool
) -> None:
    path = tmp_path / write_program(REPLAYED, LEAF)
    if stored:
        names: dict[str, Callable[..., torch.Tensor]] = {}
        exec(path.read_text(), names)
        path = tmp_path / "graph-0"
        StoredGraph(symbolic_trace(names["program"]), [names["inputs"]()]).write(path)
    done = call("minimize", path, "-t", "aot", "--json", "--workers", 1)
    found = done.json()
    reduced = "note: its calls differ with gradients alone: reduced through aot:grad"
    assert reduced in done.err.splitlines()
    assert found["instructions"] == {"before": 4, "after": 3}
    assert found["kept"]["target"] == "aot:grad"
    assert found["signature"] == "known-detached-view-replayed"


def test_where_gradients_agree_too_check_is_named(call, write_program) -> None:
    file = write_program(REPLAYED.replace(", y.detach()", ""), LEAF)
    refusal = call("minimize", file, "-t", "aot").refusal
    assert "aot does what eager does; `aliasproof check mine.py` judges it" in refusal


DROPS_ONES = """
import torch

def program(x, y):
    return torch.relu(x * y) + 1, y - x

def inputs():
    return torch.arange(4.), torch.arange(4.)

def drop_ones(module):
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor):
        if node.args[1] == 1:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    module.recompile()
    return module
"""


def test_a_pass_of_the_user_gets_the_calls_that_it_gets_of_the_function(call, tmp_path) -> None:
    (tmp_path / "pass.py").write_text(DROPS_ONES)
    name = f"{tmp_path}/pass.py:drop_ones"
    done = call("minimize", tmp_path / "pass.py", "-t", name, "-o", "small.json", "--workers", 1)
    assert done.code == 0, done.err
    assert [each.op for each in loads(Path("small.json").read_text()).instructions] == [
        "aten.add.Tensor"
    ]


@pytest.mark.parametrize("kind", ["latent", "suspicion"])
def test_what_only_graphs_show_is_found_by_its_name(call, program, tmp_path, kind):
    # The inverse of expand computes with the values; only infinity shows that.
    body = "v0 = aten.expand.default(x0, [1, 4])\naten.copy_.default(v0, x1)\nreturn (x0,)"
    given, oracle, what = program(body, (4,), (1, 4)), "equivalence", "wrong symbolic value"
    folder = tmp_path / "runs" / "some-run" / "suspicions" / "some-name"
    finding = finding_of(given, "functionalize", oracle, what, "", identifier="some-name")
    write_finding(folder, replace(finding, latent=kind == "latent"))
    done = call("minimize", "some-name", "--workers", 1)
    assert done.code == 0, done.err
    assert f"keeps {oracle}: {what}, target functionalize" in done.err


def test_what_other_values_show_is_reduced_with_them(call, write_program) -> None:
    file = write_program("return torch.zeros(2) + x * 2", "torch.ones(2)")
    checked = call("check", file, "-t", "inductor-fx")
    assert "Wrong: inductor-fx." in checked.out
    assert "Known bug: negative-zero - " in checked.out
    found = call("minimize", file, "-t", "inductor-fx", "--json", "--workers", 1).json()
    assert found["kept"]["kind"] == "zero of the other sign"
    assert found["signature"] == "known-negative-zero"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return x.undefined_method()", "eager raises AttributeError"),
        ("return x + torch.empty(2)", "reads memory that was never written"),
    ],
)
def test_what_cannot_be_judged_has_a_status_of_its_own(call, write_program, body, why) -> None:
    done = call("minimize", write_program(body), "-t", "identity")
    assert done.code == 4
    assert why in done.err


BAD = [
    (("--interesting", "mine.py"), "not an executable file"),
    (("-t", "aot", "-o", "small.txt"), "ends in .py or .json"),
    (("-t", "aot", "--oracle", "value"), "did you mean 'values'?"),
]


@pytest.mark.parametrize(("options", "why"), BAD)
def test_bad_options_are_named(call, mine: Path, options: tuple[str, ...], why: str) -> None:
    assert why in call("minimize", mine.name, *options).refusal


# --- a script -------------------------------------------------------------------------------------


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_function_is_reduced_by_a_script(call, mine: Path, tmp_path: Path) -> None:
    wanted = script(tmp_path / "wanted.sh", 'grep -q relu "$1" && grep -q \'"op"\' program.json')
    done = call("minimize", mine, "--interesting", wanted, "-o", "small.py")
    assert done.code == 0, done.err
    assert Path("small.py").read_text() == done.out
    assert "aten.relu.default" in done.out
    assert "7 to 1 instruction" in done.err


def test_a_script_that_rejects_the_program_is_bad_input(call, mine: Path, tmp_path: Path) -> None:
    refusal = call("minimize", mine, "--interesting", script(tmp_path / "no.sh", "exit 1")).refusal
    assert "does not find" in refusal


def test_a_script_that_hangs_finds_nothing_interesting(program, tmp_path: Path) -> None:
    start = program("aten.zero_.default(x0)\nreturn (x0,)", (4,))
    assert ScriptCheck(script(tmp_path / "hang.sh", "sleep 60"), 0.2)(start) == 0
    assert ScriptCheck(script(tmp_path / "yes.sh", "exit 0"), 60.0)(start) == 1


# --- interrupted ----------------------------------------------------------------------------------


class Writes:
    """A check that finds programs with a write interesting."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def __call__(self, candidate: Program, /) -> int:
        return int(any(each.mutates() for each in candidate.instructions))

    def stop(self) -> None:
        self.stopped.set()


def test_ctrl_c_leaves_the_smallest_so_far(program: Callable[..., Program]) -> None:
    body = "\n".join([*(["aten.neg_.default(x0)"] * 8), "return (x0,)"])

    def interrupt(reducer: object) -> None:
        if len(getattr(reducer, "current")) < 8:  # noqa: B009 - any listener will do
            raise KeyboardInterrupt

    check = Writes()
    found = minimize(program(body, (4,)), check, 2, interrupt)
    assert found.interrupted
    assert check.stopped.is_set()
    assert 1 <= len(found.program) < 8
    assert check(found.program)
    whole = minimize(program(body, (4,)), Writes(), 2, lambda reducer: None)
    assert not whole.interrupted
    assert len(whole.program) == 1


@pytest.mark.parametrize(("number", "named"), [(signal.SIGTERM, False), (signal.SIGKILL, True)])
def test_a_reduction_that_is_ended_leaves_the_smallest_so_far(
    call, program, tmp_path: Path, number: int, named: bool
) -> None:
    # The script ends the reduction at the third candidate that it finds interesting.
    body = "\n".join([*(["aten.neg_.default(x0)"] * 8), "return (x0,)"])
    (tmp_path / "given.json").write_text(dumps(program(body, (4,))))
    asked = tmp_path / "asked"
    wanted = script(
        tmp_path / "wanted.sh",
        f"grep -q neg_ $1 || exit 1; echo >> {asked}\n"
        f"test $(wc -l < {asked}) -lt 4 || kill -{number:d} $ENDED",
    )
    output = ("-o", "small.json") if named else ()
    command = ("minimize", "given.json", "--interesting", str(wanted), *output, "--workers", "1")
    shell = ("sh", "-c", f'ENDED=$$ TMPDIR={tmp_path} exec "$@"', "")
    ended = ran(*shell, sys.executable, "-m", "aliasproof", *command)
    assert ended.returncode == (-number if number == signal.SIGKILL else 130), ended.stderr
    (line,) = re.findall(r"smallest program so far is always in (.*)", ended.stderr)
    small = Path(line)
    assert small.name == ("small.json" if named else "smallest.json")
    assert 1 <= len(loads(small.read_text())) < 8
    if number != signal.SIGKILL:
        script(wanted, "grep -q neg_ $1")
        (printed,) = re.findall(r"to continue: aliasproof (.*)", ended.stderr)
        done = call(*shlex.split(printed))
        assert done.code == 0, done.err


def test_a_reduction_that_ends_leaves_no_temporary_file(call, program, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "given.json").write_text(dumps(program("aten.neg_.default(x0)\nreturn ()", (4,))))
    wanted = script(tmp_path / "wanted.sh", "exit 0")
    assert call("minimize", "given.json", "--interesting", wanted).code == 0
    assert not [*tmp_path.glob("aliasproof-minimize-*")]


# --- cached grades, and flaky failures ------------------------------------------------------------


QUESTION = {"target": "aot"}
ONE, OTHER = (of_vectors(f"aten.{op}.default(x0)\nreturn (x0,)", 0) for op in ("zero_", "neg_"))


class Answers:
    """A check that returns these grades in turn, and counts its calls."""

    def __init__(self, *answers: int) -> None:
        self.answers, self.asked = answers, 0

    def __call__(self, candidate: Program, /) -> int:
        self.asked += 1
        return self.answers[(self.asked - 1) % len(self.answers)]

    def stop(self) -> None:
        pass


def test_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    file = tmp_path / "answers"
    first = Answers(1, 0)
    with RememberedCheck.with_file(first, file, QUESTION) as check:
        assert [check(ONE), check(OTHER), check(ONE.renamed())] == [1, 0, 1]
    assert first.asked == 2
    second = Answers(5)
    with RememberedCheck.with_file(second, file, QUESTION) as check:
        assert [check(ONE), check(OTHER)] == [1, 0]
    assert (second.asked, check.remembered) == (0, 2)


def test_a_line_that_was_cut_by_a_kill_is_asked_again(tmp_path: Path) -> None:
    file = tmp_path / "answers"
    with RememberedCheck.with_file(Answers(1), file, QUESTION) as check:
        check(ONE)
    file.write_text(file.read_text()[:-3])
    again = Answers(1)
    with RememberedCheck.with_file(again, file, QUESTION) as check:
        check(ONE)
    assert again.asked == 1


def test_answers_to_another_question_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "answers"
    with RememberedCheck.with_file(Answers(1), file, QUESTION) as check:
        check(ONE)
    with (
        pytest.raises(UserError, match="with target 'aot'; name a new file"),
        RememberedCheck.with_file(Answers(1), file, {"target": "inductor"}),
    ):
        pass
    file.write_text("no JSON\n")
    with (
        pytest.raises(UserError, match="no file of answers"),
        RememberedCheck.with_file(Answers(1), file, QUESTION),
    ):
        pass


def test_the_same_command_goes_on_where_it_ended(call, program, tmp_path):
    given = tmp_path / "given.json"
    given.write_text(dumps(program("aten.neg_.default(x0)\n" * 6 + "return (x0,)", (4,))))
    wanted = script(tmp_path / "wanted.sh", f'echo >> {tmp_path}/asked; grep -q neg_ "$1"')
    command = ("minimize", given, "--interesting", wanted, "--resume", tmp_path / "answers")
    first = call(*command, "--workers", 1)
    asked = len((tmp_path / "asked").read_text())
    second = call(*command, "--workers", 1)
    assert first.code == second.code == 0
    assert first.out == second.out
    # The original program and the result are checked each time.
    assert len((tmp_path / "asked").read_text()) - asked == 2


def test_each_of_several_runs_must_show_it() -> None:
    assert RepeatedCheck(Answers(1, 2, 1), 3)(ONE) == 1
    assert RepeatedCheck(Answers(1, 0, 1), 3)(ONE) == 0
    assert RepeatedCheck(Answers(0, 0, 1), 3, flaky=True)(ONE) == 1
    assert RepeatedCheck(Answers(0, 1, 0, 1), 4).showing(ONE) == 2


def test_a_flaky_failure_is_told_and_reduced(call, program, tmp_path):
    given = tmp_path / "given.json"
    given.write_text(dumps(program("aten.neg_.default(x0)\n" * 4 + "return (x0,)", (4,))))
    # Interesting in every second run.
    count = f"echo >> {tmp_path}/asked; test $(($(wc -l < {tmp_path}/asked) % 2)) = 0"
    wanted = script(tmp_path / "wanted.sh", f'{count} && grep -q neg_ "$1"')
    done = call("minimize", given, "--interesting", wanted, "--repeat", 4, "--workers", 1)
    assert done.code == 0
    assert "flaky: interesting in 2 of 4 runs" in done.err
    assert "4 to 1 instruction" in done.err


# --- the folder of a finding ----------------------------------------------------------------------


@known_bug
def test_the_folder_has_what_a_campaign_writes(call, tmp_path, write_program, monkeypatch):
    monkeypatch.setattr("aliasproof.targets.inductor.unavailable", lambda: "is left out here")
    mine = write_program("x.expand(2).zero_()\nreturn x + 1", "torch.ones(())")
    folder = tmp_path / "made"
    done = call("minimize", mine, "-t", "aot", "--finding", folder, "--json", "--workers", 1)
    found = done.json()
    names = {path.name for path in folder.iterdir()}
    assert names == {"finding.json", "issue.md", "program.json", "reproducer.py"}
    assert "torch.compile(backend='aot_eager'): shows" in done.err
    finding = json.loads((folder / "finding.json").read_text())
    assert finding["identifier"] == found["signature"]
    assert "aliasproof" not in (folder / "reproducer.py").read_text()
    assert "Describe the bug" in (folder / "issue.md").read_text()
    again = call("minimize", mine, "-t", "aot", "--finding", folder)
    assert (again.code, "name a new folder" in again.err) == (2, True)


# --- an exported model ----------------------------------------------------------------------------


class WritesThroughExpand(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.relu() * 2
        x.expand(3, 3).zero_()
        return x + 1, y


@known_bug
def test_an_exported_model_is_reduced(call, tmp_path: Path) -> None:
    program = torch.export.export(WritesThroughExpand(), (torch.ones(3),))
    torch.export.save(program, tmp_path / "model.pt2")
    done = call("minimize", tmp_path / "model.pt2", "-t", "aot", "--json", "--workers", 1)
    assert done.json()["instructions"]["after"] == 2
    assert "sample inputs are pickled" in done.err
