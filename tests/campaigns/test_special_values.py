"""Failures that only special values show: found, attributed, reduced to one value, reproduced."""

from dataclasses import replace

import pytest

from aliasproof.campaigns.failure import reduction
from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.failure.reduction import reduce_failure
from aliasproof.campaigns.publish.confirmation import run_text
from aliasproof.campaigns.publish.reproducer import render
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.values import OTHER_ZERO
from aliasproof.oracles.verdict import Violation
from aliasproof.targets.registry import TARGETS
from tests.campaigns.test_recognition import symptom_of
from tests.scripts_here import confirm_here

COPY = """
    v0 = aten.expand.default(x0, [1, 4])
    v1 = aten.add.Scalar(x1, 1)
    aten.copy_.default(v0, v1)
    return x0, v1
"""


def test_the_inverse_of_expand_fails_for_infinity(program, monkeypatch):
    """Torch writes `base + (new - base)`, which is NaN. No overlap is needed."""
    plain, target = program(COPY, (4,), (1, 4)), TARGETS["functionalize"]
    assert not examine(Case.of(plain), target).failed
    special = replace(plain, fill="special")
    failure = Failure.of(symptom_of(special, "functionalize"), special, 0, past_known=False)
    assert failure.known == "expand-inverse"
    # Otherwise the finding would be the minimal program of the known bug.
    monkeypatch.setattr(reduction, "_minimal", lambda failure, bug: None)
    reduced = reduce_failure(failure)
    assert reduced is not None
    assert reduced.program.fill == "plain"
    assert [len(storage.values) for storage in reduced.program.storages] == [1]
    text = render(reduced.program, target, reduced.violation, exact=reduced.exact)
    assert run_text(text, confirm_here).shown


@pytest.mark.parametrize(
    ("oracle", "place", "wrong"),
    [("values", "output 0", True), ("inputs", "input 0", True), ("values", "output 0", False)],
)
def test_a_reproducer_sees_the_sign_of_a_zero(program, oracle, place, wrong):
    cleared = program("aten.zero_.default(x0)\nreturn (x0,)", (4,))
    returned = "lambda x: program(x).neg_()" if wrong else "program"
    recipe = f"def compiled(program, inputs):\n    return {returned}"
    target = replace(TARGETS["identity"], recipe=recipe)
    text = render(cleared, target, Violation(oracle, OTHER_ZERO, place), exact=True)
    assert run_text(text, confirm_here).shown == wrong
