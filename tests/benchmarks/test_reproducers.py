"""The benchmark asks a finding again: its program, its script, the control, and its issue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aliasproof.campaigns.failure.failure import ReducedFailure
from aliasproof.campaigns.failure.signature import signature
from aliasproof.campaigns.publish.confirmation import confirmed
from aliasproof.campaigns.publish.issue_text import issue_text
from aliasproof.campaigns.publish.user_level import Reproduced, of_target
from aliasproof.campaigns.store.finding import Finding
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.corpus.known_bugs import KNOWN_BUGS
from aliasproof.targets.registry import target
from aliasproof.trials.attribution import Symptom
from aliasproof.trials.trial import Case, run_trial
from benchmarks.reproducers import AllShown, measure, quotes

PROGRAM = KNOWN_BUGS["expand-inverse"].program


def found() -> Finding:
    violation = run_trial(Case.of(PROGRAM), target("functionalize")).judgement.violations[0]
    symptom = Symptom("functionalize", violation.oracle, violation.kind)
    return Finding.of(ReducedFailure(signature(symptom, PROGRAM), violation, PROGRAM, PROGRAM, 0))


def test_a_finding_is_asked_again(tmp_path: Path) -> None:
    finding, folder = found(), RunFolder.create(tmp_path / "run")
    folder.prepare()
    reproducer = of_target(finding)
    confirmation = confirmed(reproducer)
    assert confirmation.shown, confirmation.output
    issue = issue_text(finding, Reproduced(reproducer.script, confirmation.output))
    folder.write_confirmed(finding, reproducer.script, issue)

    def answers() -> tuple[bool, bool, bool]:
        figures = measure([str(folder.folder)])
        assert isinstance(figures, AllShown)
        [shown] = figures.findings
        return shown.same_evidence, shown.silent_control, shown.quoted

    assert answers() == (True, True, True)
    # An issue with numbers that the script does not print.
    actual = str(finding.evidence["target"])
    folder.write_confirmed(finding, reproducer.script, issue.replace(actual, "777.0"))
    assert answers() == (True, True, False)
    other = reproducer.script.replace("torch.tensor(1.0)", "torch.tensor(2.0)")
    assert other != reproducer.script
    folder.write_confirmed(finding, other, issue)
    assert answers() == (False, False, False)


def test_an_issue_quotes_the_first_line_of_a_long_message() -> None:
    printed = "expected: no error\nactual:   RuntimeError: no\n\nmore of it\nBUG: it"
    finding = replace(
        found(), oracle="errors", kind="raises RuntimeError: no", evidence={"message": "no"}
    )
    issue = issue_text(finding, Reproduced("import torch", printed))
    assert quotes(issue, "import torch", printed, silent=False)
    assert not quotes(issue, "import torch", printed.replace("no", "yes"), silent=False)
