"""Target *aot-inductor*: a package does what the function does, and its bugs are distinguished."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aliasproof.corpus.bug_files import known_bugs
from aliasproof.ir.lifting import lift_program
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.contract import Promise
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import target

PACKAGE = target("aot-inductor")
KNOWN_BUG = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="a bug of torch 2.13"
)


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


def test_a_package_keeps_what_a_call_writes_into_a_buffer() -> None:
    def counts(x: Tensor, n: Tensor) -> Tensor:
        n.add_(1)
        return x + n

    case = Case.of(lift_program(counts, [base(), base()]).program)
    found = examine(case, target("aot-inductor:kept-buffers"))
    assert found.violations == []
    assert found.trial is not None
    assert torch.equal(found.trial.target.inputs[1], base() + 2)


@KNOWN_BUG
def test_what_inductor_does_wrong_without_a_package_is_its_fault() -> None:
    found = examine(Case.of(known_bugs()["softmax-strides"].program), PACKAGE)
    assert found.symptom is not None
    assert (found.symptom.target, found.symptom.kind) == ("inductor", "wrong stride")
