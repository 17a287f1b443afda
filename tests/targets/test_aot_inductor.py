"""Target *aot-inductor*: a package does what the function does, and its bugs are told apart."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aliasproof.corpus.known_bugs import KNOWN_BUGS
from aliasproof.oracles.contract import Promise
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import target
from aliasproof.trials.examination import examine
from aliasproof.trials.trial import Case, run_trial

PACKAGE = target("aot-inductor")


def base() -> Tensor:
    return torch.arange(6.0)


def test_a_view_of_a_mutated_input_is_documented_to_be_a_copy() -> None:
    found = examine(Case.of_function(lambda x: x.add_(1)[1:], [base()]), PACKAGE, attribute=False)
    assert found.violations == []
    assert (
        found.documented[0].limitation.name == f"does not promise '{Promise.KEEPS_ALIASES.value}'"
    )


def test_views_of_an_input_and_of_a_result_stay_views() -> None:
    case = Case.of_function(lambda x: (x[1:], (y := x + 1)[:2], y), [base()])
    reports = run_trial(case, PACKAGE).judgement.reports
    assert {report.verdict for report in reports.values()} == {Verdict.HOLDS}


def test_the_outputs_of_a_package_outlive_its_next_call() -> None:
    case = Case.of_function(lambda x: (x.mul_(2), x + 1)[1], [base()])
    found = examine(case, target("aot-inductor:kept-outputs"), attribute=False)
    assert found.violations == []
    assert found.reports["values"].verdict is Verdict.HOLDS


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="a bug of torch 2.13")
def test_what_inductor_does_wrong_without_a_package_is_its_fault() -> None:
    found = examine(Case.of(KNOWN_BUGS["softmax-strides"].program), PACKAGE)
    assert found.symptom is not None
    assert (found.symptom.target, found.symptom.kind) == ("inductor", "wrong stride")
