"""Functions of training as people write them, which `torch.compile` gets right."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
average = copy.deepcopy(model)
sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
adam = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(sgd, 1, 0.5)
normalized = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
attention = nn.MultiheadAttention(8, 2, batch_first=True)
lookup = nn.Embedding(10, 4)
running = torch.zeros(3)

RIGHT: list[tuple[Any, Callable[[], tuple[Any, ...]]]] = []


def x() -> Tensor:
    return torch.randn(5, 4)


def y() -> Tensor:
    return torch.randn(5, 2)


def numbers() -> Tensor:
    return torch.randn(3).requires_grad_()


def right(*inputs: Callable[[], Any]) -> Callable[[Any], Any]:
    """Add a function and what makes its inputs."""

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
def step_of_adam(x: Tensor, y: Tensor) -> Tensor:
    adam.zero_grad(set_to_none=False)
    loss = functional.mse_loss(model(x), y)
    loss.backward()
    adam.step()
    return loss


@right(x, y)
def step_of_scheduler(x: Tensor, y: Tensor) -> list[float]:
    step_of_sgd(x, y)
    scheduler.step()
    return scheduler.get_last_lr()  # type: ignore[return-value]


@right(x)
def batch_normalization(x: Tensor) -> Tensor:
    return normalized(x).sum()


@right(lambda: x().requires_grad_())
def dropout(x: Tensor) -> Tensor:
    torch.manual_seed(3)
    return functional.dropout(x * 2, 0.5)


@right(x, y)
def clipped(x: Tensor, y: Tensor) -> Tensor:
    sgd.zero_grad()
    functional.mse_loss(model(x), y).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    sgd.step()
    return norm


@right(x)
def moving_average(x: Tensor) -> Tensor:
    with torch.no_grad():
        for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
            mean.lerp_(parameter, 0.1)
    return average(x)


@right(x, y)
def accumulated(x: Tensor, y: Tensor) -> None:
    sgd.zero_grad()
    for scale in range(3):
        (functional.mse_loss(model(x * scale), y) / 3).backward()
    sgd.step()


@right(numbers)
def double_backward(x: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return (gradient**2).sum().detach()


@right(lambda: x().requires_grad_())
def checkpointed(x: Tensor) -> Tensor:
    return torch.utils.checkpoint.checkpoint(lambda v: model(v).sin(), x, use_reentrant=False)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.other.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.one(x).relu())


right(x)(Tied())


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * gradient


@right(numbers)
def custom(x: Tensor) -> Tensor:
    return Square.apply(x) + x


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


def closure() -> Callable[[Tensor], Tensor]:
    history: list[Tensor] = []
    calls = 0

    def call(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        history.append(x.detach().sum())
        return (x * calls).sum()

    return call


right(numbers)(closure())


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


@right(lambda: torch.randn(2, 5, 8))
def attended(x: Tensor) -> Tensor:
    return attention(x, x, x)[0]


@right(lambda: torch.tensor([1, 2, 2, 7]))
def looked_up(index: Tensor) -> Tensor:
    return lookup(index).pow(2).sum()


@right(x, y)
def mixed_precision(x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    return functional.mse_loss(out.float(), y)


@right(numbers)
def descent(weight: Tensor) -> Tensor:
    loss = (weight**2).sum()
    loss.backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad  # type: ignore[operator]
        weight.grad.zero_()  # type: ignore[union-attr]
    return loss


@right(lambda: x().requires_grad_())
def error_of_backward(x: Tensor) -> Tensor:
    out = x.exp()
    out.add_(1)
    return out
