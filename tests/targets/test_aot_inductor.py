"""Target *aot-inductor*: a package agrees with the function, and its bugs are distinguished."""

import torch
from torch import Tensor

from aliasproof.corpus.bug_files import known_bugs
from aliasproof.ir.lifting import lift_program
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.contract import Promise
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import target
from tests.short_programs import known_bug
from tests.targets.conftest import trial_of, vector

PACKAGE = target("aot-inductor")


def test_a_view_of_a_mutated_input_is_documented_to_be_a_copy() -> None:
    found = examine(
        Case.of_function(lambda x: x.add_(1)[1:], [vector(6)]), PACKAGE, attribute=False
    )
    assert found.violations == []
    assert (
        found.documented[0].limitation.name == f"does not promise '{Promise.KEEPS_ALIASES.value}'"
    )


def test_views_of_an_input_and_of_a_result_stay_views() -> None:
    case = Case.of_function(lambda x: (x[1:], (y := x + 1)[:2], y), [vector(6)])
    reports = run_trial(case, PACKAGE).judgement.reports
    assert {report.verdict for report in reports.values()} == {Verdict.HOLDS}


def test_the_outputs_of_a_package_outlive_its_next_call() -> None:
    case = Case.of_function(lambda x: (x.mul_(2), x + 1)[1], [vector(6)])
    found = examine(case, target("aot-inductor:kept-outputs"), attribute=False)
    assert found.violations == []
    assert found.reports["values"].verdict is Verdict.HOLDS


def test_a_package_keeps_what_a_call_writes_into_a_buffer() -> None:
    def counts(x: Tensor, n: Tensor) -> Tensor:
        n.add_(1)
        return x + n

    case = Case.of(lift_program(counts, [vector(6), vector(6)]).program)
    found = examine(case, target("aot-inductor:kept-buffers"))
    assert found.violations == []
    assert torch.equal(trial_of(found).target.inputs[1], vector(6) + 2)


@known_bug
def test_what_inductor_does_wrong_without_a_package_is_its_fault() -> None:
    found = examine(Case.of(known_bugs()["softmax-strides"].program), PACKAGE)
    assert found.symptom is not None
    assert (found.symptom.target, found.symptom.kind) == ("inductor", "wrong stride")
