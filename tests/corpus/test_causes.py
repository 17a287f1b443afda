"""Signatures of failing programs of earlier campaigns distinguish their causes.

`failing.json` has programs that a target got wrong. Campaigns reduced them before signatures
distinguished causes, so it contains each of these known bugs in several forms. The truth comes from
patching: a violation that vanishes while only one known bug of torch is patched is that bug.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from aliasproof.campaigns.failure.recognition import recognised
from aliasproof.campaigns.failure.signature import signature
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import from_json
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, run_trial
from aliasproof.targets.registry import target as target_named


@dataclass(frozen=True, slots=True)
class Violation:
    """The cause, the signature in a campaign, and the signature if the bug were unknown."""

    cause: str
    exact: bool
    signature: str
    unnamed: str


def violation_of(target: str, program: Program) -> Violation | None:
    case = Case.of(program)
    symptom = examine(case, target_named(target)).symptom
    if symptom is None:
        return None
    # The error of the target at fault may be another one.
    trial = run_trial(case, target_named(symptom.target))
    known = recognised(program, symptom, reduced=True)
    plain = signature(symptom, program, trial.target.error)
    named = replace(plain, known=known.known)
    return Violation(known.known or "unknown", known.exact, named.identifier, plain.identifier)


def signatures_per_cause(violations: list[Violation], name: str) -> float:
    signatures = defaultdict(set)
    for violation in violations:
        signatures[violation.cause].add(getattr(violation, name))
    return sum(map(len, signatures.values())) / len(signatures)


def test_a_cause_has_few_signatures_and_shares_none() -> None:
    failing = json.loads(Path(__file__).with_name("failing.json").read_text(encoding="utf-8"))
    candidates = [violation_of(entry["target"], from_json(entry["program"])) for entry in failing]
    violations = [violation for violation in candidates if violation is not None]
    causes = defaultdict(set)
    for violation in violations:
        for name in (violation.signature, violation.unnamed):
            causes[name].add(violation.cause)
    assert {name: of for name, of in causes.items() if len(of) > 1} == {}
    if torch.__version__.startswith("2.13"):
        assert "unknown" not in {violation.cause for violation in violations}
        assert len({violation.cause for violation in violations}) >= 10
    assert signatures_per_cause(violations, "signature") <= 1.3
    assert signatures_per_cause(violations, "unnamed") <= 1.6
    assert sum(violation.exact for violation in violations) >= 0.85 * len(violations)
