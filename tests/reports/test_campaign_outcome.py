"""The progress and the outcome of a campaign, for consoles of several widths."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from aliasproof.campaigns.run.campaign import Campaign, Parts
from aliasproof.campaigns.run.shard import Statistics
from aliasproof.campaigns.store.plan import Plan
from aliasproof.corpus.bug_files import all_bugs
from aliasproof.eager.definedness import Undefined
from aliasproof.ir.errors import Rejected
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import Examination
from aliasproof.judge.trial import Case
from aliasproof.reports import progress
from aliasproof.reports.campaign_outcome import print_outcome
from aliasproof.reports.progress import display
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.user_targets import YOUR_PASS


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


def outcome(campaign: Campaign, width: int = 100, *, everything: bool = False) -> str:
    console = terminal(width)
    print_outcome(console, campaign, everything=everything)
    return re.sub(r"\x1b\[[\d;]*m", "", printed(console))


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_outcome_fits_the_terminal(campaign, silent_finding, raising_finding, width):
    campaign.known.update(dict.fromkeys(sorted(all_bugs())[:50], 9))
    for number in range(40):
        name = f"{raising_finding.identifier}{number}"
        campaign.findings[name] = replace(raising_finding, identifier=name)
    campaign.statistics["aot"].rejected.update({f"no form of aten.op{n}": 9 for n in range(30)})
    lines = outcome(campaign, width).splitlines()
    # A command is not wrapped, so that it can be copied.
    assert {line[-13:] for line in lines if len(line) > width} <= {"reproducer.py"}
    assert len(lines) <= 40
    # The identifier is on one line, so that it can be copied.
    assert any(silent_finding.identifier in line for line in lines)


def test_the_outcome_names_silent_findings_first_and_shows_the_shortest(
    campaign, silent_finding, raising_finding
):
    text = outcome(campaign)
    assert text.startswith("2 findings, 1 of them silent")
    assert text.index(silent_finding.identifier) < text.index(raising_finding.identifier)
    assert "Shortest silent finding: aot-epilogue-metadata-12345678" in text
    assert "    aten.add_.Scalar(x0, 1)" in text
    assert (
        "    aliasproof show runs/20260101-120000/findings/aot-epilogue-metadata-12345678" in text
    )
    summary = one_line(text)
    assert "175 programs in 45 s, 8.6 % discarded" in summary
    assert "8 with a violation, 4 of these not reduced" in summary
    assert (
        "Stored, and waiting: 2 to be reduced and 1 to be confirmed. To go on (--seconds are"
        in summary
    )
    assert "aliasproof fuzz --run runs/20260101-120000" in summary
    assert summary.endswith("1 worker death, seed 3.")


def test_known_bugs_have_one_line_or_one_each(campaign):
    campaign.known.update({"as-strided-of-new-base": 2, "expand-inverse": 5})
    folded = "7 violations by 2 known bugs: expand-inverse 5, as-strided-of-new-base 2"
    assert f"{folded} (--known shows all)\n" in outcome(campaign)
    text = outcome(campaign, 200, everything=True)
    patched, marked = (line for line in text.splitlines() if "https://" in line)
    assert patched.startswith("        5  expand-inverse: ")
    assert patched.endswith("  https://github.com/pytorch/pytorch/issues/197448")
    assert "as-strided-of-new-base" in marked
    assert "attributed by signature" in marked


def test_findings_of_known_bugs_come_with_all(campaign, silent_finding, raising_finding):
    name = silent_finding.identifier
    campaign.findings[name] = replace(silent_finding, known="lost-strides")
    text = outcome(campaign)
    assert text.startswith("1 finding, 0 of them silent")
    assert name not in text
    text = outcome(campaign, everything=True)
    assert text.index(raising_finding.identifier) < text.index(name)
    del campaign.findings[raising_finding.identifier]
    text = outcome(campaign)
    assert text.startswith("No new findings yet; 1 known bug found again.")
    assert f"Shortest silent finding: {name}" in text


def test_the_time_of_reductions_is_shown(campaign):
    campaign.spent = Parts(searching=6.0, recognizing=1.0, reducing=2.0, confirming=1.0)
    assert "30 % of the time in reduction and confirmation" in one_line(outcome(campaign))


def test_the_outcome_without_findings(campaign):
    campaign.findings.clear()
    campaign.interrupted = True
    begin = "Interrupted. Findings so far are kept.\nNo findings yet.\n"
    assert outcome(campaign).startswith(begin)


def test_a_suspicion_is_shown_with_its_folder(campaign):
    program = Program((), (), (), ())
    campaign.suspicions.add(Symptom("aot", "equivalence", "wrong"), program)
    campaign.statistics["aot"].suspicious = 1
    text = one_line(outcome(campaign))
    assert (
        "1 suspicion: values match, graphs do not: runs/20260101-120000/suspicions/ (aliasproof"
        " check FOLDER)" in text
    )
    campaign.plan = replace(campaign.plan, past_known=True)
    assert "suspicions/ (seen while known bugs were patched)" in one_line(outcome(campaign))


@pytest.mark.parametrize("changed", [0, 2])
def test_how_often_a_pass_changed_a_graph_is_said(campaign, changed):
    found = dict(campaign.findings)
    campaign.findings.clear()
    assert "changed a graph" not in outcome(campaign)
    tally = campaign.statistics["aot"]
    tally.fired[YOUR_PASS], tally.refused[YOUR_PASS] = changed, 5 - changed
    expected = "aot changed a graph in 2 of 5" if changed else "aot changed no graph in 5"
    assert f"{expected} compilations" in outcome(campaign)
    # One that raised has changed no graph, and its finding says what it did.
    campaign.findings.update(found)
    assert "nothing of it was tested" not in outcome(campaign)


def test_a_target_that_takes_few_programs_says_why(campaign) -> None:
    name, tally = next(iter(campaign.statistics.items()))
    assert "does not take" not in outcome(campaign)
    tally.rejected.update({f"it has no form of aten.op{number}": 9 - number for number in range(8)})
    tally.discarded += tally.rejected.total()
    text = f"{name} does not take 44 of {tally.programs} programs:"
    assert f"{text} it has no form of aten.op0 (9), it" in outcome(campaign)
    listed = outcome(campaign, everything=True)
    assert f"{text}\n        9  it has no" in listed
    assert "        2  it has no form of aten.op7\n" in listed
    assert "44 not for their target" in one_line(listed)


def test_a_rejection_is_counted_by_its_reason() -> None:
    rejected = Rejected("it has no form\n of aten.add")
    statistics = Statistics()
    for reason in (rejected, rejected, Undefined("writes what it reads")):
        statistics.count(
            Examination(Case.of(Program((), (), (), ())), TARGETS["identity"], {}, rejected=reason)
        )
    assert (statistics.discarded, statistics.undefined_rate) == (3, 1 / 3)
    assert statistics.rejected == {"it has no form of aten.add": 2}


def test_targets_that_ran_no_program_are_named(campaign):
    targets = (*campaign.plan.targets, "inductor")
    ran = dict.fromkeys((f"{name}:grad" for name in campaign.plan.targets), Statistics(programs=1))
    untried = replace(campaign, plan=replace(campaign.plan, targets=targets), statistics=ran)
    assert "The time did not suffice for a program of inductor." in outcome(untried)
    assert "did not suffice" not in outcome(replace(untried, interrupted=True))


# --- progress -------------------------------------------------------------------------------------


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
