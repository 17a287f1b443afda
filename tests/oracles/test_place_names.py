"""Inputs and outputs have the names that a user's function gives them, also in evidence."""

from __future__ import annotations

from aliasproof.oracles.verdict import Report, Verdict, Violation, renamed_report

NAMES = {"input 0": "input 'x'", "input 12": "input 'cache['k']'"}


def named(oracle: str, evidence: str) -> Violation:
    found = Violation(oracle, "wrong", "input 12", {"target": evidence, "elements": 3})
    report = Report(Verdict.VIOLATED, (found,), reason="of input 0")
    after = renamed_report(report, NAMES)
    assert after.reason == "of input 'x'"
    (violation,) = after.violations
    assert (violation.place, violation.evidence["elements"]) == ("input 'cache['k']'", 3)
    return violation


def test_symbolic_values_name_the_tensors_of_the_user() -> None:
    found = named("equivalence", "add[other=1](x0[1, 2], x12, x1[0], max0(x00))")
    assert found.evidence["target"] == "add[other=1](x[1, 2], cache['k'], x1[0], max0(x00))"


def test_other_evidence_keeps_names_of_nodes() -> None:
    assert named("clobbers", "x0 of input 0").evidence["target"] == "x0 of input 'x'"
