"""Functions of training that `torch.compile` gets right, beside those of `tests/samples`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(sgd, 1, 0.5)
running = torch.zeros(3)

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


@right(lambda: x().requires_grad_())
def written_result(x: Tensor) -> Tensor:
    out = x * 2
    out[1:].mul_(3)
    out[0] = 0
    return out


@right(lambda: numbers() * 1)
def written_input(h: Tensor) -> Tensor:
    h.mul_(2)
    return h.sum()


@right(lambda: torch.randn(3))
def running_sum(x: Tensor) -> Tensor:
    running.add_(x)
    return running * 2


class Counter:
    calls = 0


@right(numbers)
def counted(x: Tensor) -> Tensor:
    Counter.calls += 1
    return x * Counter.calls


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
