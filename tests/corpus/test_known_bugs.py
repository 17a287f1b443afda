"""Known bugs: the minimal program shows each, and its mend removes it and nothing else."""

from __future__ import annotations

import pytest
import torch

from corpus.known_bug import KnownBug
from corpus.known_bugs import KNOWN_BUGS
from corpus.known_bugs import mended as mended_bugs
from oracles.verdict import Violation
from programs.serialization import dumps, loads
from targets.registry import TARGETS
from trials.trial import Case, Trial, run_eager, run_trial

BUGS = list(KNOWN_BUGS.values())
VERSION = ".".join(torch.__version__.split(".")[:2])


def tried(bug: KnownBug, target: str, *mends: KnownBug) -> Trial:
    """The minimal program of a bug through a target, with these bugs mended."""
    case = Case.of(bug.program)
    eager = run_eager(case)
    with mended_bugs(mends):
        return run_trial(case, TARGETS[target], eager=eager)


def differences(trial: Trial) -> list[Violation]:
    """What differs from eager, the main difference first; documented ones come last."""
    reports = trial.judgement.reports.values()
    documented = [found.difference for report in reports for found in report.documented]
    return [*trial.judgement.violations, *documented]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.identifier)
def test_the_program_shows_the_bug_in_the_versions_that_have_it(bug: KnownBug) -> None:
    shown = [bool(differences(tried(bug, target))) for target in bug.targets]
    assert shown == [VERSION in bug.versions] * len(shown)


@pytest.mark.parametrize(
    "bug", [bug for bug in BUGS if bug.mended is not None], ids=lambda bug: bug.identifier
)
def test_a_mend_removes_the_bug_and_is_undone(bug: KnownBug) -> None:
    if VERSION not in bug.versions:
        pytest.skip(f"torch {torch.__version__} does not have this bug")
    for target in bug.targets:
        main, *_ = differences(tried(bug, target))
        mended = tried(bug, target, bug)
        assert not mended.judgement.violations
        assert main not in differences(mended)
        assert main in differences(tried(bug, target)), "the mend outlives its context"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.identifier)
def test_the_mends_of_other_bugs_leave_the_bug(bug: KnownBug) -> None:
    if VERSION not in bug.versions:
        pytest.skip(f"torch {torch.__version__} does not have this bug")
    others = [other for other in BUGS if other is not bug]
    main, *_ = differences(tried(bug, bug.targets[0]))
    assert main in differences(tried(bug, bug.targets[0], *others))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.identifier)
def test_a_bug_can_be_mended_or_recognised(bug: KnownBug) -> None:
    assert bug.mended is not None or bug.mark is not None
    assert loads(dumps(bug.program), "the program") == bug.program
    assert bug.plausible(bug.program)
    assert set(bug.targets) <= set(TARGETS)


def test_bugs_that_are_mended_already_stay_mended() -> None:
    bug = KNOWN_BUGS["square-in-place"]
    main, *_ = differences(tried(bug, "functionalize"))
    with mended_bugs(BUGS):
        assert main not in differences(tried(bug, "functionalize", *BUGS))
        assert main not in differences(tried(bug, "functionalize"))
    assert main in differences(tried(bug, "functionalize"))
