"""The progress of a campaign: a live display in terminals of several widths, lines elsewhere."""

import io

import pytest
from rich.console import Console

from aliasproof.campaigns.store.plan import Plan
from aliasproof.reports import progress
from aliasproof.reports.progress import display


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


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_live_display(campaign, width):
    console = terminal(width)
    with display(console, "Fuzzing aot") as listener:
        listener(campaign)
        text = " ".join(printed(console).split())
    assert "0:45 elapsed" in text
    assert "0:45 left" in text
    assert "2 new findings, 1 of them silent" in text
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


def test_lines_where_there_is_no_terminal(campaign, silent_finding, monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    console = Console(file=io.StringIO(), width=100)
    with display(console, "Fuzzing aot") as listener:
        listener(campaign)
        listener(campaign)
    lines = printed(console).splitlines()
    assert lines[0] == "Fuzzing aot"
    (found,) = (line for line in lines if silent_finding.identifier in line)
    assert found == (
        "[0:45] found aot-epilogue-metadata-12345678: wrong value (output 0, output 1),"
        " 1 instruction"
    )
    assert lines[-1] == (
        "[0:45] 175 programs, 8 violations, 2 new findings, 2 to reduce, 1 to confirm, 0:45 left"
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
    assert progress._time_left(campaign) == left
