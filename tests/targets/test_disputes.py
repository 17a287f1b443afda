"""Only results of a write through `expand` are disputed, not the rest of the program."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aliasproof.judge.attribution import examine_graphs
from aliasproof.judge.trial import Case, run_trial
from aliasproof.targets.registry import target


def labels(function: Callable[..., Any], *inputs: Tensor) -> dict[str, str]:
    """The label of each violation of functionalize, by oracle and place."""
    case, tested = Case.of_function(function, inputs), target("functionalize")
    trial = run_trial(case, tested)
    found = [*trial.judgement.violations, *examine_graphs(case, tested, trial).violations]
    return {f"{each.oracle}, {each.place}": each.label for each in found}


def writes_through_both(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    x.expand(3, 4).zero_()
    y.unfold(0, 1, 2).add_(1)
    return x + 1, y + 1, x * y[0]


@pytest.mark.parametrize("oracle", ["values, output", "equivalence, output"])
def test_a_violation_is_disputed_by_where_its_data_come_from(oracle: str) -> None:
    found = labels(writes_through_both, torch.arange(4.0), torch.arange(3.0))
    assert [found[f"{oracle} {index}"] for index in range(3)] == ["disputed", "", "disputed"]
    assert [found[f"inputs, input {index}"] for index in range(2)] == ["disputed", ""]


def refuses_for_another_reason(x: Tensor, y: Tensor) -> None:
    x.expand(3, 4).zero_()
    y.square_()


@pytest.mark.parametrize(
    ("function", "dtype", "label"),
    [
        pytest.param(lambda x, y: x.expand(3, 4).zero_(), torch.bool, "disputed", id="bool"),
        pytest.param(lambda x, y: x.expand(3, 4).zero_(), torch.uint16, "disputed", id="uint16"),
        pytest.param(refuses_for_another_reason, torch.float32, "", id="square_"),
    ],
)
def test_an_error_is_disputed_if_the_inverse_of_expand_raises_it(function, dtype, label):
    found = labels(function, torch.ones(4, dtype=dtype), torch.ones(2))
    assert found == {"errors, call": label}
