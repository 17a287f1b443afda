"""The outcome of a campaign, printed for consoles of several widths."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from aliasproof.campaigns.run.campaign import Campaign, Parts
from aliasproof.campaigns.run.shard import Statistics
from aliasproof.eager.definedness import Undefined
from aliasproof.ir.errors import Rejected
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import Examination
from aliasproof.judge.trial import Case
from aliasproof.reports.campaign_outcome import print_outcome
from aliasproof.targets.registry import TARGETS


def outcome(campaign: Campaign, width: int = 100) -> str:
    file = io.StringIO()
    print_outcome(Console(file=file, width=width, highlight=False, markup=False), campaign)
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_outcome_fits_the_terminal(campaign, silent_finding, raising_finding, width):
    lines = outcome(campaign, width).splitlines()
    first, last = (
        next(i for i, line in enumerate(lines) if line.startswith(start))
        for start in ("target", "size")
    )
    assert all(len(line) <= width for line in lines[first:last])
    for finding in (silent_finding, raising_finding):
        # The identifier is on one line, so that it can be copied.
        assert any(finding.identifier in line for line in lines)
    assert (
        "    aliasproof show runs/20260101-120000/findings/aot-epilogue-metadata-12345678" in lines
    )


def test_the_outcome_names_silent_findings_first_and_shows_the_shortest(
    campaign, silent_finding, raising_finding
):
    text = outcome(campaign)
    assert "2 findings, 1 of them silent" in text
    assert text.index(silent_finding.identifier) < text.index(raising_finding.identifier)
    assert "Shortest silent finding: aot-epilogue-metadata-12345678" in text
    assert "    aten.add_.Scalar(x0, 1)" in text
    summary = " ".join(text.split())
    assert "175 programs in 45 s, 8.6 % discarded" in summary
    assert "8 with a violation, 1 that differ as documented, 4 of these not reduced" in summary
    assert (
        "Stored, and waiting: 2 to be reduced and 1 to be confirmed. To go on (--seconds are"
        in summary
    )
    assert "aliasproof fuzz --run runs/20260101-120000" in summary
    assert summary.endswith("1 unconfirmed, 1 worker death, seed 3.")


def test_known_bugs_are_listed_with_count_link_and_how_they_were_told(campaign):
    campaign.known.update({"as-strided-of-new-base": 2, "expand-inverse": 5})
    text = outcome(campaign, 200)
    assert "7 violations by 2 known bugs (corpus/bugs/); --past-known leaves" in text
    patched, marked = (line for line in text.splitlines() if "https://" in line)
    assert patched.startswith("        5  expand-inverse: ")
    assert patched.endswith("  https://github.com/pytorch/pytorch/issues/197448")
    assert "as-strided-of-new-base" in marked
    assert "attributed by signature" in marked


def test_one_known_bug_is_one_bug(campaign):
    campaign.known.update({"expand-inverse": 1})
    assert "1 violation by 1 known bug (" in outcome(campaign)


def test_the_table_names_the_known_bug(campaign, silent_finding):
    name = silent_finding.identifier
    campaign.findings[name] = replace(silent_finding, known="lost-strides")
    assert "lost-strides" in outcome(campaign, 120)
    assert "30 % of the time in reduction and confirmation" not in outcome(campaign)
    campaign.spent = Parts(searching=6.0, recognizing=1.0, reducing=2.0, confirming=1.0)
    assert "30 % of the time in reduction and confirmation" in " ".join(outcome(campaign).split())


def test_the_outcome_without_findings(campaign):
    campaign.findings.clear()
    campaign.interrupted = True
    begin = "Interrupted. Findings so far are kept.\nNo findings yet.\n"
    assert outcome(campaign).startswith(begin)


def test_a_suspicion_is_shown_with_its_folder(campaign):
    program = Program((), (), (), ())
    campaign.suspicions.add(Symptom("aot", "equivalence", "wrong"), program)
    campaign.statistics["aot"].suspicious = 1
    text = outcome(campaign, 160)
    assert "1 suspicion: values match, but an oracle on graphs reports a violation." in text
    assert "    1  aot  equivalence: wrong  runs/20260101-120000/suspicions/" in text


def test_a_target_that_takes_few_programs_says_why(campaign) -> None:
    name, tally = next(iter(campaign.statistics.items()))
    assert "does not take" not in outcome(campaign)
    tally.rejected.update({f"it has no form of aten.op{number}": 9 - number for number in range(8)})
    tally.discarded += tally.rejected.total()
    text = outcome(campaign)
    assert f"{name} does not take 44 of {tally.programs} programs:\n        9  it has no" in text
    assert "        9  for 3 other reasons\n" in text
    assert "8.6 % discarded (undefined in eager), 44 not for their target" in " ".join(text.split())


def test_a_rejection_is_counted_by_its_reason() -> None:
    rejected = Rejected("it has no form\n of aten.add")
    statistics = Statistics()
    for reason in (rejected, rejected, Undefined("writes what it reads")):
        statistics.count(
            Examination(Case.of(Program((), (), (), ())), TARGETS["identity"], {}, rejected=reason)
        )
    assert (statistics.discarded, statistics.undefined_rate) == (3, 1 / 3)
    assert statistics.rejected == {"it has no form of aten.add": 2}
