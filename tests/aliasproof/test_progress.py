"""The live display and the outcome of a campaign, drawn for terminals of several widths."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from aliasproof import progress
from aliasproof.outcome import print_outcome
from aliasproof.progress import display
from campaigns.campaign import Campaign
from campaigns.finding import Finding
from campaigns.plan import Plan
from campaigns.statistics import Statistics
from programs.program import Input, Instruction, Program, Ref, Storage

PROGRAM = Program(
    (Storage(torch.float32, 2),),
    (Input("x0", 0, torch.float32, (2,), (1,)),),
    (Instruction("aten.add_.Scalar", (Ref("x0"), 1)),),
    ("x0",),
)
SILENT = Finding(
    "aot-epilogue-metadata-12345678", "aot-epilogue", "metadata", "wrong value", "output 0, output 1", {}, PROGRAM, PROGRAM,
    3, 20, 5, 2, "2.13.0",
)  # fmt: skip
LOUD = replace(
    SILENT,
    identifier="aot-errors-87654321",
    target="aot",
    oracle="errors",
    kind="raises RuntimeError: " + "so long " * 30,
)


@pytest.fixture
def campaign() -> Campaign:
    statistics = {"aot": Statistics(100, 10, 1, 5), "aot-epilogue": Statistics(75, 5, 0, 3)}
    findings = {each.identifier: each for each in (LOUD, SILENT)}
    plan = Plan(("aot", "aot-epilogue"), seed=3, seconds=90.0, workers=2)
    unconfirmed = {"aot-values-1": "did not"}
    folder = Path("runs/20260101-120000")
    return Campaign(
        plan,
        folder,
        statistics,
        findings,
        unconfirmed,
        reducing=2,
        confirming=1,
        repeats=4,
        deaths=1,
        elapsed=45.0,
    )


def terminal(width: int) -> Console:
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        width=width,
        highlight=False,
        markup=False,
        no_color=True,
    )


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_outcome_fits_the_terminal(campaign, width):
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    print_outcome(console, campaign)
    lines = printed(console).splitlines()
    first, last = (
        next(i for i, line in enumerate(lines) if line.startswith(start))
        for start in ("target", "size")
    )
    assert all(len(line) <= width for line in lines[first:last])
    for finding in (SILENT, LOUD):
        assert any(
            finding.identifier in line for line in lines
        )  # on one line, so that it can be copied
    assert (
        "    aliasproof show runs/20260101-120000/findings/aot-epilogue-metadata-12345678" in lines
    )


def test_the_outcome_names_silent_findings_first_and_shows_the_shortest(campaign):
    console = Console(file=io.StringIO(), width=100)
    print_outcome(console, campaign)
    text = printed(console)
    assert "2 findings, 1 of them silent" in text
    assert text.index(SILENT.identifier) < text.index(LOUD.identifier)
    assert "The shortest silent one: aot-epilogue-metadata-12345678" in text
    assert "    aten.add_.Scalar(x0, 1)" in text
    summary = " ".join(text.split())
    assert "175 programs in 45 s, 8.6 % discarded" in summary
    assert "1 outside the contract, 8 violating it, 4 of these not reduced" in summary
    assert "2 of these not reduced, as the run had ended" in summary
    assert summary.endswith("1 unconfirmed, 1 worker death, seed 3.")


def test_the_outcome_without_findings(campaign):
    campaign.findings.clear()
    campaign.interrupted = True
    console = Console(file=io.StringIO(), width=100)
    print_outcome(console, campaign)
    assert printed(console).startswith(
        "Interrupted; what was found until then is kept.\nNothing found.\n"
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_live_display(campaign, width):
    console = terminal(width)
    with display(console, "Fuzzing aot") as listener:
        listener(campaign)
        text = " ".join(printed(console).split())
    assert "0:45 elapsed" in text
    assert "0:45 left" in text
    assert "2 findings, 1 of them silent" in text
    assert "2 being reduced, 1 being confirmed" in text
    assert "8.6 %" in text


def test_the_live_display_is_redrawn_now_and_then(campaign):
    console = terminal(80)
    with display(console, "Fuzzing aot") as listener:
        listener(campaign)
        size = len(printed(console))
        for _ in range(100):
            listener(campaign)
        assert len(printed(console)) < 3 * size


def test_lines_where_there_is_no_terminal(campaign, monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    console = Console(file=io.StringIO(), width=100)
    with display(console, "Fuzzing aot") as listener:
        listener(campaign)
        listener(campaign)
    lines = printed(console).splitlines()
    assert lines[0] == "Fuzzing aot"
    assert [line for line in lines if SILENT.identifier in line] == [
        "[0:45] found aot-epilogue-metadata-12345678: wrong value (output 0, output 1), 1 instruction"
    ]
    assert lines[-1] == (
        "[0:45] 175 programs (aot 100, aot-epilogue 75), 8.6 % discarded, 8 violating, 2 findings (1 silent),"
        " 2 being reduced, 1 being confirmed, 0:45 left"
    )


@pytest.mark.parametrize(
    ("plan", "elapsed", "left"),
    [
        (Plan(("aot",), seconds=90.0), 30.0, "1:00 left"),
        (Plan(("aot",), seconds=90.0), 95.0, "finishing"),
        (Plan(("aot", "aot-epilogue"), programs=175), 30.0, "about 0:30 left"),
        (Plan(("aot",), programs=175), 30.0, "finishing"),
    ],
)
def test_the_time_that_is_left(campaign, plan, elapsed, left):
    campaign.plan, campaign.elapsed = plan, elapsed
    assert progress._left(campaign) == left
