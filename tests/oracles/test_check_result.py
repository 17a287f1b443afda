"""The verdict on a target, the exit status of a check, and the names of places."""

import pytest

from aliasproof.eager.trace import Trace
from aliasproof.oracles.check_result import Check, EagerResult, TargetResult
from aliasproof.oracles.judge import EVERY_ORACLE
from aliasproof.oracles.verdict import (
    HOLDS,
    Documented,
    Limitation,
    Report,
    Verdict,
    Violation,
    not_applicable,
    rename_report,
    with_differences,
)

FOUND = Violation("values", "wrong value", "output 0")
DOCUMENTED = with_differences([], [Documented(FOUND, Limitation("a clause", "a reason"))], [])
VIOLATED = with_differences([FOUND], [], [])
NOTED = with_differences([], [], [Violation("invariants", "metadata has another offset", "add")])
NOTHING = not_applicable("a reason")
UNKNOWN = Report(Verdict.UNKNOWN, reason="a reason")


def result(**reports: Report) -> TargetResult:
    return TargetResult("aot", None, dict.fromkeys(EVERY_ORACLE, HOLDS) | reports)


RAISES = result(**dict.fromkeys(EVERY_ORACLE[1:], NOTHING))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        pytest.param(result(), Verdict.HOLDS, id="equal"),
        pytest.param(result(values=VIOLATED), Verdict.VIOLATED, id="violated"),
        pytest.param(result(values=DOCUMENTED), Verdict.DOCUMENTED, id="documented"),
        pytest.param(result(values=DOCUMENTED, aliasing=VIOLATED), Verdict.VIOLATED, id="both"),
        pytest.param(result(clobbers=VIOLATED), Verdict.VIOLATED, id="in a graph"),
        pytest.param(result(invariants=NOTED), Verdict.HOLDS, id="a note"),
        pytest.param(result(equivalence=UNKNOWN), Verdict.HOLDS, id="a graph is unknown"),
        pytest.param(result(values=UNKNOWN), Verdict.UNKNOWN, id="values are unknown"),
        pytest.param(RAISES, Verdict.NOT_APPLICABLE, id="both raise"),
    ],
)
def test_the_verdict_on_a_target(found: TargetResult, verdict: Verdict) -> None:
    assert found.verdict is verdict
    assert found.judged == (verdict not in (Verdict.UNKNOWN, Verdict.NOT_APPLICABLE))


@pytest.mark.parametrize(
    ("results", "status", "strict"),
    [
        pytest.param([result()], 0, 0, id="equal"),
        pytest.param([result(), result(values=VIOLATED)], 1, 1, id="violated"),
        pytest.param([result(), result(values=DOCUMENTED)], 0, 0, id="documented"),
        pytest.param([result(invariants=NOTED)], 0, 1, id="a note"),
        pytest.param([RAISES, result(values=UNKNOWN)], 4, 4, id="nothing judged"),
        pytest.param([RAISES, result()], 0, 0, id="one judged"),
    ],
)
def test_exit_status(results: list[TargetResult], status: int, strict: int) -> None:
    by_name = {str(index): found for index, found in enumerate(results)}
    check = Check(EagerResult(None, Trace()), by_name)
    assert check.exit_status() == status
    assert check.exit_status(strict=True) == strict


# --- inputs and outputs are named as in the user's function, also in evidence ---------------------

NAMES = {"input 0": "input 'x'", "input 12": "input 'cache['k']'"}


def named(oracle: str, evidence: str) -> Violation:
    found = Violation(oracle, "wrong", "input 12", {"target": evidence, "elements": 3})
    report = Report(Verdict.VIOLATED, (found,), reason="of input 0")
    after = rename_report(report, NAMES)
    assert after.reason == "of input 'x'"
    (violation,) = after.violations
    assert (violation.place, violation.evidence["elements"]) == ("input 'cache['k']'", 3)
    return violation


def test_symbolic_values_name_the_tensors_of_the_user() -> None:
    found = named("equivalence", "add[other=1](x0[1, 2], x12, x1[0], max0(x00))")
    assert found.evidence["target"] == "add[other=1](x[1, 2], cache['k'], x1[0], max0(x00))"


def test_other_evidence_keeps_names_of_nodes() -> None:
    assert named("clobbers", "x0 of input 0").evidence["target"] == "x0 of input 'x'"


def test_a_check_has_no_truth_value() -> None:
    """So that `assert check(f, x)` does not pass for a wrong target."""
    outcome = Check(EagerResult(None, None), {"aot": result(values=VIOLATED)})
    assert outcome.violated
    with pytest.raises(TypeError, match="violated"):
        assert outcome
