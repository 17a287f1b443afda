"""`minimize`: answers that are kept, flaky failures, and the folder of a finding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aliasproof.ir.errors import UserError
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import dumps
from aliasproof.minimization.candidate_checks import RememberedCheck, RepeatedCheck

known_bug = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="a bug of torch 2.13"
)
QUESTION = {"target": "aot"}


class Answers:
    """A check with answers in a row, which counts its questions."""

    def __init__(self, *answers: int) -> None:
        self.answers, self.asked = answers, 0

    def __call__(self, candidate: Program, /) -> int:
        self.asked += 1
        return self.answers[(self.asked - 1) % len(self.answers)]

    def stop(self) -> None:
        pass


@pytest.fixture
def one(program: Callable[..., Program]) -> Program:
    return program("aten.zero_.default(x0)\nreturn (x0,)", (4,))


@pytest.fixture
def other(program: Callable[..., Program]) -> Program:
    return program("aten.neg_.default(x0)\nreturn (x0,)", (4,))


# --- answers in a file ----------------------------------------------------------------------------


def test_what_was_answered_is_not_asked_again(one: Program, other: Program, tmp_path: Path) -> None:
    file = tmp_path / "answers"
    first = Answers(1, 0)
    with RememberedCheck.with_file(first, file, QUESTION) as check:
        assert [check(one), check(other), check(one.renamed())] == [1, 0, 1]
    assert first.asked == 2
    second = Answers(5)
    with RememberedCheck.with_file(second, file, QUESTION) as check:
        assert [check(one), check(other)] == [1, 0]
    assert (second.asked, check.remembered) == (0, 2)


def test_a_line_that_was_cut_by_a_kill_is_asked_again(one: Program, tmp_path: Path) -> None:
    file = tmp_path / "answers"
    with RememberedCheck.with_file(Answers(1), file, QUESTION) as check:
        check(one)
    file.write_text(file.read_text()[:-3])
    again = Answers(1)
    with RememberedCheck.with_file(again, file, QUESTION) as check:
        check(one)
    assert again.asked == 1


def test_answers_to_another_question_are_refused(one: Program, tmp_path: Path) -> None:
    file = tmp_path / "answers"
    with RememberedCheck.with_file(Answers(1), file, QUESTION) as check:
        check(one)
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


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_same_command_goes_on_where_it_ended(
    call, program: Callable[..., Program], tmp_path: Path
) -> None:
    given = tmp_path / "given.json"
    given.write_text(dumps(program("aten.neg_.default(x0)\n" * 6 + "return (x0,)", (4,))))
    wanted = script(tmp_path / "wanted.sh", f'echo >> {tmp_path}/asked; grep -q neg_ "$1"')
    command = ("minimize", given, "--interesting", wanted, "--resume", tmp_path / "answers")
    first = call(*command, "--workers", 1)
    asked = len((tmp_path / "asked").read_text())
    second = call(*command, "--workers", 1)
    assert first.code == second.code == 0
    assert first.out == second.out
    # The program as it was given, and the result: these are asked each time.
    assert len((tmp_path / "asked").read_text()) - asked == 2


# --- flaky ----------------------------------------------------------------------------------------


def test_each_of_several_runs_must_show_it(one: Program) -> None:
    assert RepeatedCheck(Answers(1, 2, 1), 3)(one) == 1
    assert RepeatedCheck(Answers(1, 0, 1), 3)(one) == 0
    assert RepeatedCheck(Answers(0, 0, 1), 3, flaky=True)(one) == 1
    assert RepeatedCheck(Answers(0, 1, 0, 1), 4).showing(one) == 2


def test_a_flaky_failure_is_told_and_reduced(
    call, program: Callable[..., Program], tmp_path: Path
) -> None:
    given = tmp_path / "given.json"
    given.write_text(dumps(program("aten.neg_.default(x0)\n" * 4 + "return (x0,)", (4,))))
    # Interesting in each second run.
    count = f"echo >> {tmp_path}/asked; test $(($(wc -l < {tmp_path}/asked) % 2)) = 0"
    wanted = script(tmp_path / "wanted.sh", f'{count} && grep -q neg_ "$1"')
    done = call("minimize", given, "--interesting", wanted, "--repeat", 4, "--workers", 1)
    assert done.code == 0
    assert "flaky: interesting in 2 of 4 runs" in done.err
    assert "4 to 1 instruction" in done.err


# --- the folder of a finding ----------------------------------------------------------------------


@known_bug
def test_the_folder_has_what_a_campaign_writes(call, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("aliasproof.targets.inductor.unavailable", lambda: "is left out here")
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import torch\n\ndef program(x):\n    x.expand(2).zero_()\n    return x + 1\n\n"
        "def inputs():\n    return torch.ones(())\n"
    )
    folder = tmp_path / "made"
    done = call("minimize", mine, "-t", "aot", "--finding", folder, "--json", "--workers", 1)
    assert done.code == 0, done.err
    names = {path.name for path in folder.iterdir()}
    assert names == {"finding.json", "issue.md", "program.json", "reproducer.py"}
    assert "torch.compile(backend='aot_eager'): shows" in done.err
    finding = json.loads((folder / "finding.json").read_text())
    assert finding["identifier"] == json.loads(done.out)["signature"]
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
    assert done.code == 0, done.err
    assert json.loads(done.out)["instructions"]["after"] == 2
    assert "sample inputs are pickled" in done.err
