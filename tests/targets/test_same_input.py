"""Variant *same-input*: two inputs are one tensor object, in eager too."""

from __future__ import annotations

import pytest

from aliasproof.ir.errors import Rejected
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.targets.registry import target as target_named
from tests.short_programs import program_of, view

WRITTEN = program_of(
    """
    aten.add_.Tensor(x0, x1)
    v0 = aten.mul.Tensor(x1, x2)
    return (v0, x1)
    """,
    view(2, 3),
    view(2, 3),
    view(3),
)


@pytest.mark.parametrize("name", ["identity", "aot", "inductor-fx", "reference"])
def test_a_tensor_that_is_passed_twice_is_one_object(name: str) -> None:
    target = target_named(f"{name}:same-input")
    case = Case.of(WRITTEN).under(target)
    x0, x1, x2 = case.fresh_inputs()
    assert x0 is x1 is not x2
    examination = examine(case, target)
    assert not examination.failed
    assert examination.trial is not None
    eager = examination.trial.eager
    assert eager.outputs[1] is eager.inputs[1]


def test_inputs_of_other_sizes_or_dtypes_are_not_merged() -> None:
    apart = program_of("return (x0, x1)", view(2), view(3))
    with pytest.raises(Rejected, match="no two inputs have equal sizes"):
        Case.of(apart).under(target_named("aot:same-input")).fresh_inputs()
