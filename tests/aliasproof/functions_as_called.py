"""Functions that `torch.compile` gets wrong, each with a similar one that it gets right.

The wrong ones are programs of `aliasproof/corpus/bugs` in the form in which a user has them;
`tests/corpus/test_python_bugs.py` shows all of them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from aliasproof.judge import python_case
from aliasproof.targets.target import Target


class Pairing(NamedTuple):
    """A wrong function with its layer and the oracle that reports it, a right one, and inputs."""

    layer: str
    oracle: str
    wrong: Callable[..., Any]
    right: Callable[..., Any]
    inputs: Callable[[], Sequence[Any]]


def leaf() -> Tensor:
    return torch.ones(2).requires_grad_()


def result() -> Tensor:
    return leaf() * 1


def compile_with(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Any], Any]) -> None:
    """Let `wrong` be the compiler of each target; eager is unchanged."""

    def compiler(target: Target) -> Callable[[Any], Any]:
        return in_eager(target) if target.name == python_case.EAGER else wrong

    in_eager = python_case.compiler
    monkeypatch.setattr(python_case, "compiler", compiler)


# --- Parameters, views ----------------------------------------------------------------------------


def parameter_of_data(p: Tensor) -> Tensor:
    q = torch.nn.Parameter(p.data)
    with torch.no_grad():
        q.mul_(2)
    return p * q


def parameter_written(p: Tensor) -> Tensor:
    with torch.no_grad():
        p.mul_(2)
    return p * p.detach()


def view_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x[0]


def copy_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x[0] * 1


def gradient_state_of_alias(x: Tensor, p: Tensor) -> Tensor:
    x[0].mul_(p)
    return x * x.requires_grad


def written_by_parameter(x: Tensor, p: Tensor) -> Tensor:
    x[0].mul_(p)
    return x * 2


# --- functions of autograd ------------------------------------------------------------------------


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x

    @staticmethod
    def backward(ctx: Any, one: Tensor, other: Tensor) -> Tensor:
        return one + other


class BothNew(Both):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x * 1


def function_returns_input(x: Tensor) -> Tensor:
    return Both.apply(x)


def function_returns_new(x: Tensor) -> Tensor:
    return BothNew.apply(x)


# --- state ----------------------------------------------------------------------------------------


def set_of_intermediate(x: Tensor, y: Tensor) -> Tensor:
    z = x * 1
    z.set_(y)  # type: ignore[call-overload]
    z.add_(1)
    return z


def written_and_returned(x: Tensor, y: Tensor) -> Tensor:
    y.add_(1)
    return y


# --- the table ------------------------------------------------------------------------------------

AOT = "aot-eager"


def parameter() -> Tensor:
    return torch.nn.Parameter(torch.ones(2))


def given(*inputs: Callable[[], Any]) -> Callable[[], Sequence[Any]]:
    return lambda: [make() for make in inputs]


def ones() -> Tensor:
    return torch.ones(2)


def number() -> Tensor:
    return torch.tensor(2.0).requires_grad_()


PAIRINGS = (
    Pairing(AOT, "errors", parameter_of_data, parameter_written, given(parameter)),
    Pairing(AOT, "structure", view_under_no_grad, copy_under_no_grad, given(leaf)),
    Pairing("dynamo", "values", gradient_state_of_alias, written_by_parameter, given(ones, number)),
    Pairing("dynamo", "objects", function_returns_input, function_returns_new, given(ones)),
    Pairing(AOT, "aliasing", set_of_intermediate, written_and_returned, given(ones, ones)),
)
