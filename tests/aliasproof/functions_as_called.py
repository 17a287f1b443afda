"""Functions that `torch.compile` gets wrong, each with a similar one that it gets right; training.

The wrong ones are programs of `aliasproof/corpus/bugs` in the form in which a user has them;
`tests/corpus/test_python_bugs.py` shows all of them. `torch.compile` gets the functions of training
right, as those of `tests/samples`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

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


# --- views ----------------------------------------------------------------------------------------


def view_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x[0]


def copy_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x[0] * 1


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


def given(*inputs: Callable[[], Any]) -> Callable[[], Sequence[Any]]:
    return lambda: [make() for make in inputs]


def ones() -> Tensor:
    return torch.ones(2)


PAIRINGS = (
    Pairing(AOT, "structure", view_under_no_grad, copy_under_no_grad, given(leaf)),
    Pairing("dynamo", "objects", function_returns_input, function_returns_new, given(ones)),
    Pairing(AOT, "aliasing", set_of_intermediate, written_and_returned, given(ones, ones)),
)


# --- training that is right -----------------------------------------------------------------------

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(sgd, 1, 0.5)

RIGHT: list[tuple[Any, Callable[[], tuple[Any, ...]]]] = []


def x() -> Tensor:
    return torch.randn(5, 4)


def y() -> Tensor:
    return torch.randn(5, 2)


def numbers() -> Tensor:
    return torch.randn(3).requires_grad_()


def right(*inputs: Callable[[], Any]) -> Callable[[Any], Any]:
    """Add a function and the makers of its inputs."""

    def added(function: Any) -> Any:
        RIGHT.append((function, lambda: tuple(make() for make in inputs)))
        return function

    return added


@right(x, y)
def step_of_sgd(x: Tensor, y: Tensor) -> Tensor:
    sgd.zero_grad()
    loss = functional.mse_loss(model(x), y)
    loss.backward()
    sgd.step()
    return loss.detach()


@right(x, y)
def step_of_scheduler(x: Tensor, y: Tensor) -> list[float]:
    step_of_sgd(x, y)
    scheduler.step()
    return scheduler.get_last_lr()  # type: ignore[return-value]


@right(lambda: x().requires_grad_())
def dropout(x: Tensor) -> Tensor:
    torch.manual_seed(3)
    return functional.dropout(x * 2, 0.5)


@right(numbers)
def double_backward(x: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return (gradient**2).sum().detach()


@right(lambda: numbers() * 1)
def written_input(h: Tensor) -> Tensor:
    h.mul_(2)
    return h.sum()


class Steps:
    """State that each call reads and writes."""

    number = 0
    total = torch.zeros(2)


@right(ones)
def counts_steps(x: Tensor) -> Tensor:
    Steps.number += 1
    Steps.total.add_(x.detach())
    return x * Steps.number + Steps.total


@right(numbers)
def in_two_frames(x: Tensor) -> tuple[Tensor, object]:
    out = x * 2
    view = out[1:]
    torch._dynamo.graph_break()
    view.add_(1)
    return out.sin(), object()


@right(lambda: torch.randn(4, 3).requires_grad_(), lambda: torch.randn(3, 5))
def returned_gradient(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    (gradient,) = torch.autograd.grad((x @ weight).t().sin().sum(), x)
    return gradient, gradient * 2


@right(lambda: torch.randn(4, 3).t().requires_grad_())
def gradient_of_another_layout(x: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(x.prod(1).sum(), x)
    return gradient


@right(x, y)
def mixed_precision(x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    return functional.mse_loss(out.float(), y)


@right(lambda: x().requires_grad_())
def error_of_backward(x: Tensor) -> Tensor:
    out = x.exp()
    out.add_(1)
    return out
