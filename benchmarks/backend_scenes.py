"""The models and loops of `backend_cost`, each the smallest form that shows a cost.

None has pretrained parameters or needs a package beside torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

Compile: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
# Takes what compiles, and returns one call of what is measured.
Scene: TypeAlias = Callable[[Compile], Callable[[], Any]]


# --- scenes: peaks --------------------------------------------------------------------------------


class Block(nn.Module):
    """A transformer block as in GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then the two linear layers."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.attention(self.norms[0](x)).chunk(3, dim=-1)
        )
        scores = query @ key.transpose(-1, -2) / key.shape[-1] ** 0.5
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        mixed = (self.dropout(scores) @ value).transpose(1, 2).flatten(2)
        x = x + self.dropout(self.projection(mixed))
        wide = functional.gelu(self.widen(self.norms[1](x)), approximate="tanh")
        result: Tensor = x + self.dropout(self.narrow(wide))
        return result


class Transformer(nn.Module):
    """A small GPT-2."""

    def __init__(self, vocabulary: int = 512, width: int = 64, length: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(3))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The loss."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.tokens.weight.T
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def training(compiled: Compile) -> Callable[[], Any]:
    """Forward, loss and backward of a small GPT-2."""
    torch.manual_seed(0)
    model = Transformer()
    tokens = torch.randint(512, (4, 65))
    forward = compiled(model)

    def step() -> Any:
        forward(tokens[:, :-1], tokens[:, 1:]).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        return gradients

    return step


def inference(compiled: Compile) -> Callable[[], Any]:
    """The forward alone, without gradients."""
    torch.manual_seed(0)
    model = Transformer().eval()
    tokens = torch.randint(512, (4, 65))
    forward = compiled(model)

    def call() -> Any:
        with torch.no_grad():
            return forward(tokens[:, :-1], tokens[:, 1:])

    return call


def convolutions(compiled: Compile) -> Callable[[], Any]:
    """A training step of convolutions with batch norm and a residual."""
    torch.manual_seed(0)
    layers = [
        layer
        for _ in range(4)
        for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
    ]
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *layers)
    forward, images = compiled(model), torch.randn(4, 3, 32, 32)

    def step() -> Any:
        forward(images).square().mean().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        return gradients

    return step


def optimizer(*, foreach: bool, count: int = 20) -> Scene:
    """A step of AdamW on so many parameters."""

    def scene(compiled: Compile) -> Callable[[], Any]:
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.randn(64, 64)) for _ in range(count)]
        for parameter in parameters:
            parameter.grad = torch.randn(64, 64)
        adam = torch.optim.AdamW(parameters, lr=0.1, foreach=foreach)
        adam.step()  # makes the state
        return compiled(adam.step)

    return scene


def elimination(compiled: Compile) -> Callable[[], Any]:
    """Gauss elimination in place, on a copy of the matrix."""
    torch.manual_seed(0)
    matrix = torch.randn(12, 64, 64) + 20 * torch.eye(64)

    def eliminate(a: Tensor) -> Tensor:
        a = a.clone()
        for row in range(6):
            factors = a[:, row + 1 :, row] / a[:, row, row, None]
            a[:, row + 1 :, row:] -= factors[:, :, None] * a[:, row, None, row:]
        return a

    function = compiled(eliminate)
    return lambda: function(matrix)


def small_result(compiled: Compile) -> Callable[[], Any]:
    """A row of a large value, doubled and returned."""
    x = torch.ones(1000, 1000)
    function = compiled(lambda x: (x + 1)[:1] * 2)
    return lambda: function(x)


PEAKS: dict[str, Scene] = {
    "GPT-2, training": training,
    "GPT-2, inference": inference,
    "convolutions, training": convolutions,
    "AdamW": optimizer(foreach=False),
    "AdamW, foreach": optimizer(foreach=True),
    "Gauss elimination": elimination,
    "small result": small_result,
}


# --- scenes: loops --------------------------------------------------------------------------------


def slices(compiled: Compile) -> Callable[[], int]:
    """Convolutions on 15 slices of a data set."""
    data, model = torch.randn(15 * 2, 3, 16, 16), nn.Conv2d(3, 8, 3).eval()
    forward = compiled(lambda x: model(x).relu_())

    def calls() -> int:
        with torch.no_grad():
            for start in range(0, 30, 2):
                forward(data[start : start + 2])
        return 15

    return calls


def key_value_cache(compiled: Compile) -> Callable[[], int]:
    """A cache that is written at a position, which is an int."""
    cache = torch.zeros(2, 16, 8)

    def step(cache: Tensor, new: Tensor, position: int) -> Tensor:
        cache[:, position : position + 1] = new
        return (cache @ new.transpose(1, 2)).softmax(1)

    function = compiled(step)

    def calls() -> int:
        for position in range(12):
            function(cache, torch.ones(2, 1, 8), position)
        return 12

    return calls


LOOPS: dict[str, Callable[[Compile], Callable[[], int]]] = {
    "15 slices of a data set": slices,
    "cache with a position": key_value_cache,
}


# --- scenes: bits ---------------------------------------------------------------------------------


def folded_products(compiled: Compile) -> Callable[[], Any]:
    """`matmul` of a batch with a parameter: it folds the batch, or does not, by its gradient."""
    torch.manual_seed(0)
    weight, x = nn.Parameter(torch.randn(16, 24)), torch.randn(5, 24, 7)
    function = compiled(lambda x: (weight @ x).softmax(-1))

    def call() -> Any:
        with torch.no_grad():
            return function(x)

    return call


def state_space(compiled: Compile) -> Callable[[], Any]:
    """The scan of Mamba, by hand."""
    torch.manual_seed(0)
    width, states = 12, 6
    project = nn.Linear(width, 2 * states + 1, bias=False)
    decay = nn.Parameter(torch.rand(width, states))
    x = torch.randn(3, 9, width)

    def scan(x: Tensor) -> Tensor:
        step, into, out = project(x).split([1, states, states], dim=-1)
        rate = functional.softplus(step)[..., None] * decay
        state = torch.zeros(x.shape[0], width, states)
        seen = []
        for time_step in range(x.shape[1]):
            fed = x[:, time_step, :, None] * into[:, time_step, None]
            state = state * torch.exp(-rate[:, time_step]) + fed
            seen.append(torch.matmul(state, out[:, time_step, :, None])[..., 0])
        return torch.stack(seen, dim=1) @ decay

    function = compiled(scan)
    return lambda: function(x)


BITS: dict[str, Scene] = {"folded products": folded_products, "state space": state_space}
