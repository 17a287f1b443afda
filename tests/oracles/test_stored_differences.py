"""Where the storage of an input differs: by the input and its element, or by the bytes around."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from aliasproof.eager.trace import Trace
from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.equivalence import judge, run_uninterpreted
from aliasproof.oracles.verdict import Violation


def difference(
    eager: Callable[..., object], target: Callable[..., object], inputs: Sequence[Tensor]
) -> Violation:
    """The only difference of a target from a function that writes to its inputs."""
    runs = [run_uninterpreted(each, clone_inputs(inputs), named=True) for each in (eager, target)]
    (violation,) = judge(Contract(), runs[0], runs[1], Trace()).violations
    return violation


def nothing(*inputs: Tensor) -> None:
    pass


BASE = torch.arange(8.0)
AROUND = [
    (BASE[2:4], 6, "bytes after input 1's view", 24),
    (BASE[2:4], 0, "bytes before input 1's view", 0),
    (BASE[1:6:2], 2, "bytes between the elements of input 1", 8),
]


@pytest.mark.parametrize(("view", "element", "place", "byte"), AROUND)
def test_bytes_around_an_input_are_named_by_it(view, element: int, place: str, byte: int) -> None:
    write = lambda x, y: y.as_strided((1,), (1,), element).zero_()  # noqa: E731
    found = difference(
        lambda x, y: None, lambda x, y: (write(x, y), None)[1], [BASE[:1].clone(), view]
    )
    assert found.place == place
    assert found.evidence == {"first wrong byte": byte, "wrong bytes": 4}


def test_an_element_of_an_input_is_named_with_both_expressions() -> None:
    def eager(x: Tensor, y: Tensor) -> None:
        y[1] = x[0] + 1

    def target(x: Tensor, y: Tensor) -> None:
        y[1] = (x[0] * 3).abs() + 1

    found = difference(eager, target, [BASE[:2].clone(), BASE[4:].view(2, 2)[:, 1]])
    assert found.place == "input 1"
    assert found.evidence == {
        "first wrong index": [1],
        "wrong elements": 1,
        "elements": 2,
        "eager": "add[other=1](x0[0])",
        "target": "add[other=1](abs(mul[other=3](x0[0])))",
        "eager never computes": "mul[other=3](x0[0])",
    }


def test_a_value_that_eager_computes_too_is_only_elsewhere() -> None:
    found = difference(
        lambda x: (x.copy_(x + 1), None)[1], lambda x: (x[:1].copy_(x[:1] + 1), None)[1], [BASE[:2]]
    )
    assert (found.place, found.evidence["first wrong index"]) == ("input 0", [1])
    assert found.evidence["target"] == "x0[1]"
    assert "eager never computes" not in found.evidence
