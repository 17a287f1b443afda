"""Variant *freezing*: buffers become constants; a write through another tensor is documented."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from aliasproof.ir.lifting import lift_program
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import target
from aliasproof.targets.target import Build, Function
from tests.targets.conftest import stages_of, trial_of, vector

FREEZING = target("inductor-fx:freezing")


def examined(function: Function, inputs: Sequence[Tensor]) -> Examination:
    case = Case.of(lift_program(function, inputs).program)
    return examine(case, FREEZING, attribute=False)


def test_what_is_computed_from_buffers_is_folded() -> None:
    found = examined(lambda x, weight: x + weight.neg(), [vector(), vector()])
    assert found.violations == []
    assert "aten.neg" not in stages_of(trial_of(found))[0].graph.code


@pytest.mark.parametrize(
    ("inputs", "verdict"),
    [([vector(), vector()], Verdict.HOLDS), ([(x := vector()), x[1:]], Verdict.DOCUMENTED)],
)
def test_only_a_write_through_another_tensor_is_documented(inputs, verdict):
    """In the second case, the buffer is a view of the input, and keeps its first contents."""

    def program(x: Tensor, weight: Tensor) -> Tensor:
        x.add_(1)
        return weight * 2

    assert examined(program, inputs).reports["values"].verdict is verdict


def test_a_written_buffer_keeps_the_write() -> None:
    assert examined(lambda x, weight: weight.add_(x), [vector(), vector()]).violations == []

    def forgets(function: Function, inputs: Sequence[Tensor]) -> Build:
        right = FREEZING.build(function, inputs).function

        def run(x: Any, weight: Any) -> object:
            return right(x, weight.clone())

        return Build(run, [], "planted")

    case = Case.of(
        lift_program(lambda x, weight: (weight.add_(x), None)[1], [vector(), vector()]).program
    )
    planted = replace(FREEZING, build=forgets)
    assert examine(case, planted, attribute=False).violations[0].oracle == "inputs"
