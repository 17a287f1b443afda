"""Optimizer steps as a user compiles them: all of `torch.optim`, clipping, and averages of weights.

Like `running_models`, each takes `compile`, and returns what a user would look at. The step is
compiled, and the model is not: so the graphs are those of the optimizer alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import swa_utils

from benchmarks.running_models import Compile, Steps

STEPS = 3
# What an optimizer needs beside its parameters. The others have defaults.
_OPTIONS: dict[str, dict[str, Any]] = {"SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True}}
_SPARSE = ("SparseAdam",)  # takes gradients of no other layout
_GENERAL = (torch.optim.Optimizer,)
_FORMS = ("foreach", "fused")


def optimizers() -> dict[str, Steps]:
    """A step of each optimizer: with `foreach`, `fused` or neither, as far as it takes these."""
    steps: dict[str, Steps] = {}
    for kind in _kinds():
        names = [name for name in _FORMS if name in kind.__init__.__code__.co_varnames]
        forms: list[dict[str, bool]] = [{name: False for name in names if name == "foreach"}]
        forms += [{name: True} for name in names]
        for form in forms:
            label = ", ".join(name for name, on in form.items() if on) or "plain"
            steps[f"{kind.__name__}, {label}"] = functools.partial(_optimized, kind, form)
    return steps


def _kinds() -> Iterator[Any]:
    for name in sorted(vars(torch.optim)):
        kind = getattr(torch.optim, name)
        if kind in _GENERAL or name in _SPARSE or not isinstance(kind, type):
            continue
        if issubclass(kind, torch.optim.Optimizer):
            yield kind


class _TwoLayers(nn.Module):
    """Two matrices alone, since Muon takes no other parameters."""

    def __init__(self, *, bias: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5, bias=bias), nn.Linear(5, 3, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(torch.tanh(self.first(x)))
        return result


def _loss(model: nn.Module) -> torch.Tensor:
    model.zero_grad()
    loss = F.mse_loss(model(torch.randn(4, 6)), torch.randn(4, 3))
    loss.backward()
    return loss


def _optimized(kind: Any, form: dict[str, bool], compile_: Compile) -> list[float]:
    model = _TwoLayers(bias=kind.__name__ != "Muon")
    optimizer = kind(model.parameters(), **_OPTIONS.get(kind.__name__, {}), **form)
    losses: list[float] = []
    if kind is torch.optim.LBFGS:  # it asks for the loss itself
        step = compile_(lambda: optimizer.step(lambda: _loss(model)))
        return [float(step()) for _ in range(STEPS)] + _sums(model)
    step = compile_(optimizer.step)
    for _ in range(STEPS):
        losses.append(_loss(model).item())
        step()
    return [*losses, *_sums(model)]


def _sums(model: nn.Module) -> list[float]:
    return [float(it.detach().double().sum()) for it in (*model.parameters(), *model.buffers())]


# --- clipping, averages, max_norm -----------------------------------------------------------------


def _clipped(compile_: Compile, *, clip: Callable[[nn.Module], object]) -> list[float]:
    model = _TwoLayers(bias=True)
    step, left = compile_(lambda: clip(model)), []
    for _ in range(STEPS):
        _loss(model)
        step()
        left += [float(it.grad.double().sum()) for it in model.parameters() if it.grad is not None]
    return left


def _averaged(compile_: Compile, *, multi: bool) -> list[float]:
    model = _TwoLayers(bias=True)
    form = (
        {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)}
        if multi
        else {"avg_fn": swa_utils.get_ema_avg_fn(0.9)}
    )
    average = swa_utils.AveragedModel(model, **form)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update = compile_(average.update_parameters)
    for _ in range(STEPS):
        _loss(model)
        optimizer.step()
        update(model)
    return _sums(average)


def _limited(compile_: Compile, *, table: Callable[[], nn.Module]) -> list[float]:
    model = table()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model(tokens).square().sum()
        return result

    compiled, losses = compile_(step), []
    for _ in range(STEPS):
        loss = compiled(torch.randint(0, 9, (4, 5)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return [*losses, *_sums(model)]


def _norm(model: nn.Module, *, foreach: bool, order: float = 2.0) -> object:
    return nn.utils.clip_grad_norm_(model.parameters(), 0.1, order, foreach=foreach)


def _value(model: nn.Module, *, foreach: bool) -> object:
    return nn.utils.clip_grad_value_(model.parameters(), 0.01, foreach=foreach)


def _table(**options: Any) -> nn.Module:
    return nn.Embedding(9, 4, max_norm=1.0, **options)


def _bag(**options: Any) -> nn.Module:
    return nn.EmbeddingBag(9, 4, max_norm=1.0, **options)


def _of(made: Callable[..., Any], **options: Any) -> Any:
    return functools.partial(made, **options)


OPTIMIZER_STEPS: dict[str, Steps] = {
    **optimizers(),
    "clip_grad_norm_, foreach": _of(_clipped, clip=_of(_norm, foreach=True)),
    "clip_grad_norm_, plain": _of(_clipped, clip=_of(_norm, foreach=False)),
    "clip_grad_norm_, maximum": _of(_clipped, clip=_of(_norm, foreach=True, order=float("inf"))),
    "clip_grad_value_, foreach": _of(_clipped, clip=_of(_value, foreach=True)),
    "clip_grad_value_, plain": _of(_clipped, clip=_of(_value, foreach=False)),
    "EMA, foreach": _of(_averaged, multi=True),
    "EMA, plain": _of(_averaged, multi=False),
    "embedding, max_norm": _of(_limited, table=_table),
    "embedding, max_norm and frequency": _of(_limited, table=_of(_table, scale_grad_by_freq=True)),
    "embedding, max_norm and padding": _of(_limited, table=_of(_table, padding_idx=0)),
    "embedding_bag, max_norm": _of(_limited, table=_of(_bag, mode="sum")),
    "embedding_bag, max_norm and maximum": _of(_limited, table=_of(_bag, mode="max")),
}
