"""Functions and modules with all kinds of state, and some of `tests/samples`, with their inputs."""

import collections
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.samples import (
    autograd,
    caches,
    control_flow,
    optimizers,
    results_and_metadata,
    transforms,
)


def swap(x: Tensor, y: Tensor) -> Tensor:
    old = y.clone()
    y.add_(1)
    x.copy_(old)
    return y + 0


def keywords(x: Tensor, *rest: Tensor, scale: float = 1.0, **more: Tensor) -> dict[str, object]:
    total = more["b"] * scale
    for other in rest:
        total = total + other
    more["a"].add_(total)
    return {"total": total + x, "size": x.shape[0]}


class Average:
    count = 0
    shared = torch.zeros(3)

    def __init__(self) -> None:
        self.mean = torch.zeros(3)

    def update(self, x: Tensor, decay: float = 0.9) -> Tensor:
        self.count += 1
        Average.shared.add_(x)
        self.mean.mul_(decay).add_(x, alpha=1 - decay)
        return self.mean / self.count + Average.shared


class Delayed(nn.Module):
    previous: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("previous", torch.zeros(3))
        self.weight = nn.Parameter(torch.ones(3))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        old = x.clone()
        x.add_(1)
        self.previous.copy_(old)
        self.last = x * 2
        return x * self.weight


def closure() -> Callable[[Tensor], tuple[Tensor, int]]:
    total, calls = torch.zeros(3), 0

    def step(x: Tensor) -> tuple[Tensor, int]:
        nonlocal calls
        calls += 1
        y = x * 2
        total.mul_(0.5).add_(y)
        return total.clone(), calls

    return step


SEEN = torch.zeros(3)
WEIGHT = nn.Parameter(torch.arange(3.0))
CALLS = 0


def uses_globals(x: Tensor) -> Tensor:
    global CALLS  # noqa: PLW0603
    CALLS += 1
    y = x + CALLS
    SEEN.add_(y)
    return SEEN * y


def updates_a_parameter(x: Tensor) -> Tensor:
    with torch.no_grad():
        WEIGHT.sub_(x, alpha=0.1)
    return (WEIGHT * x).sum()


def defaults(x: Tensor, calls: list[int] = [], total: Tensor = torch.zeros(3)) -> Tensor:  # noqa: B006, B008
    calls.append(1)
    return total.add_(x) * len(calls)


def hidden() -> Callable[[Tensor], Tensor]:
    tensors = {"a": torch.zeros(3)}
    get = functools.lru_cache(tensors.__getitem__)
    return lambda x: get("a").add_(x) * 2


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout(0.5))


COUNTS: collections.Counter[str] = collections.Counter()
RECENT: collections.deque[Tensor] = collections.deque(maxlen=2)
NAMES: set[str] = set()
NUMBERS = np.zeros(3, dtype=np.float32)
GENERATOR = torch.Generator().manual_seed(3)
CONFIG = {"scale": 1.0, "inner": {"calls": 0}}


def counts(x: Tensor) -> Tensor:
    COUNTS["calls"] += 1
    return x * COUNTS["calls"]


def keeps_recent(x: Tensor) -> Tensor:
    RECENT.append(x * 2)
    return x + len(RECENT)


def keeps_names(x: Tensor) -> Tensor:
    NAMES.add(f"name {len(NAMES)}")
    return x + len(NAMES)


def keeps_numbers(x: Tensor) -> Tensor:
    y = x + torch.from_numpy(NUMBERS.copy())
    NUMBERS[0] += 1
    return y


def draws(x: Tensor) -> Tensor:
    return x + torch.rand(3, generator=GENERATOR)


def configured(x: Tensor) -> Tensor:
    CONFIG["inner"]["calls"] += 1  # type: ignore[index]
    CONFIG["scale"] *= 2.0  # type: ignore[operator]
    return x * CONFIG["scale"]  # type: ignore[operator]


@functools.lru_cache(maxsize=4)
def table(size: int) -> Any:
    return torch.arange(float(size))


def cached_table(x: Tensor) -> Any:
    return table(3).add_(x) * 2


def calls_itself(x: Tensor) -> Any:
    calls_itself.calls += 1  # type: ignore[attr-defined]
    return x * calls_itself.calls  # type: ignore[attr-defined]


calls_itself.calls = 0  # type: ignore[attr-defined]


class Node:
    """It refers to itself."""

    def __init__(self) -> None:
        self.total, self.calls, self.itself = torch.zeros(3), 0, self

    def add(self, x: Tensor) -> Tensor:
        self.itself.calls += 1
        self.itself.total.add_(x)
        return self.total * self.calls


class Slotted:
    __slots__ = ("calls", "total")

    def __init__(self) -> None:
        self.total, self.calls = torch.zeros(3), 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.total += x
        return self.total + self.calls


class Counted:
    calls = 0

    @classmethod
    def times(cls, x: Tensor) -> Tensor:
        cls.calls += 1
        return x * cls.calls


def lbfgs_step() -> Callable[[Tensor], Any]:
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.LBFGS([weight], max_iter=2)

    def loss_of(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (weight - x).square().sum()
        loss.backward()
        return loss

    return lambda x: optimizer.step(functools.partial(loss_of, x))


class Lazy(nn.Module):
    """It makes its state in the first call."""

    total: Tensor

    def forward(self, x: Tensor) -> Any:
        if not hasattr(self, "total"):
            self.total = torch.zeros_like(x)
        self.total += x
        return self.total * 2


def assigns_data(x: Tensor, weight: nn.Parameter) -> Tensor:
    y = weight * x
    weight.data = weight.data + x
    return y


def removes(items: dict[str, Tensor]) -> Tensor:
    items["c"] = items.pop("a") + items["b"]
    return items["c"] * 2


def exchanges(pair: list[Tensor]) -> None:
    pair[0], pair[1] = pair[1] * 2, pair[0]
    pair.append(pair[0] + 1)


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()


def x3() -> Tensor:
    return torch.arange(3.0)


def rows() -> Tensor:
    return torch.arange(12.0).reshape(4, 3)


Given = tuple[Callable[[], Callable[..., object]], Callable[[], object]]


def sample(module: ModuleType, name: str) -> Given:
    """A function of `tests/samples`, and its inputs."""
    return lambda: getattr(module, name), module.INPUTS[name]


GIVEN: dict[str, Given] = {
    "swap": (lambda: swap, lambda: (torch.zeros(3), x3())),
    "shared memory": (lambda: swap, lambda: tuple(rows().view(-1).unfold(0, 6, 3)[:2])),
    "one tensor twice": (lambda: swap, lambda: (x3(),) * 2),
    "keywords": (
        lambda: keywords,
        lambda: ((x3(), x3()), {"scale": 2.0, "b": torch.ones(3), "a": torch.zeros(3)}),
    ),
    "tree": sample(caches, "memoized_statistics"),
    "dataclass": sample(caches, "attend_with_cache"),
    "method": (lambda: Average().update, lambda: ((x3(),), {"decay": 0.5})),
    "partial": (lambda: functools.partial(swap, torch.zeros(3)), x3),
    "closure": (closure, x3),
    "globals": (lambda: uses_globals, x3),
    "parameter": (lambda: updates_a_parameter, x3),
    "defaults": (lambda: defaults, x3),
    "hidden": (hidden, x3),
    "two graphs": sample(control_flow, "clip_if_large"),
    "module": (Delayed, x3),
    "module's method": (lambda: Delayed().forward, x3),
    "training": (lambda: network().train(), rows),
    "evaluation": (lambda: network().eval(), rows),
    "leaf": (lambda: lambda x: (x * 2).sin(), lambda: x3().requires_grad_()),
    "counter": (lambda: counts, x3),
    "deque": (lambda: keeps_recent, x3),
    "set": (lambda: keeps_names, x3),
    "array": (lambda: keeps_numbers, x3),
    "generator": (lambda: draws, x3),
    "configuration": (lambda: configured, x3),
    "cached result": (lambda: cached_table, x3),
    "attribute of a function": (lambda: calls_itself, x3),
    "cycle": (lambda: Node().add, x3),
    "callable with slots": (Slotted, x3),
    "class method": (lambda: Counted.times, x3),
    "training step": sample(optimizers, "train_classifier"),
    "lazy": (Lazy, x3),
    "own derivative": sample(autograd, "fake_quantize"),
    "vmap": sample(transforms, "batched_argument_is_written"),
    "data": (lambda: assigns_data, lambda: (x3(), nn.Parameter(torch.ones(3)))),
    "lbfgs": (lbfgs_step, x3),
    "removed key": (lambda: removes, lambda: ({"a": x3(), "b": torch.ones(3)},)),
    "exchanged": (lambda: exchanges, lambda: ([x3(), torch.ones(3)],)),
    "metadata": sample(results_and_metadata, "squeezed_in_place"),
}

# Torch gets these wrong. A new copy into an input reads later writes (`copy-of-written-input` in
# `aliasproof/corpus/bugs`); `0 + x` is x itself (`zero_plus_input`).
WRONG = {kind: {"inductor-fx"} for kind in ("module", "module's method", "lazy")}
if torch.__version__ < "2.15":
    WRONG["swap"] = {"inductor-fx"}
WRONG["data"] = {"aot"}  # without Dynamo, AOTAutograd loses what is assigned to `.data`
