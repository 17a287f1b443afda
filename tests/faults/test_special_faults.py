"""Faults that only special values show in results. The search finds values that show them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from aliasproof.faults.catalogue import FAULTS
from aliasproof.ir.program import Program
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.judge.value_search import Budget
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Target

SHOWING = {
    "new contents are a sum": ("aten.neg_.default(x0)\nreturn ()", "inf", "inputs"),
    "adding zero is dropped": ("v0 = aten.add.Scalar(x0, 0)\nreturn (v0,)", "-0.0", "values"),
}


def planted(name: str) -> Target:
    return replace(TARGETS["reference"], name="planted", build=FAULTS[name].make)


@pytest.mark.parametrize("name", SHOWING)
def test_special_values_show_it_and_plain_ones_do_not(program, name):
    text, value, oracle = SHOWING[name]
    plain = program(text, (4,))
    assert not examine(Case.of(plain), planted(name), attribute=False).failed
    storage = replace(plain.storages[0], values=(value,))
    special = replace(plain, storages=(storage,))
    (violation,) = examine(Case.of(special), planted(name), attribute=False).violations
    assert violation.oracle == oracle


@pytest.mark.parametrize("name", SHOWING)
def test_the_search_finds_values_that_show_it(program: Callable[..., Program], name: str) -> None:
    text, _, oracle = SHOWING[name]
    found = examine(Case.of(program(text, (4,))), planted(name), attribute=False, search=Budget())
    assert found.shown is not None
    assert found.shown.violations[0].oracle == oracle
