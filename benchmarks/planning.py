"""What planning memory saves: bytes and allocations of some graphs, beside other planners.

A row has the bytes that are live at the peak, and the allocations, of the functional graph, of
`reinplace`, of `torch.fx.passes.reinplace.reinplace`, and of `plan_memory`.
`tests/reference_pass/test_near_bound.py` checks how far plans are from a bound for all plans.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx.passes import reinplace as torch_reinplace
from torch.nn import functional

from aliasproof.ir.errors import UserError
from aliasproof.reference_pass.memory_plan import plan_memory
from aliasproof.reference_pass.pipeline import (
    functionalize,
    reinplace,
    remove_noops,
    update_metadata,
)
from aliasproof.reference_pass.planning.timeline import Footprint, footprint
from benchmarks.tables import Table

Subject: TypeAlias = tuple[Callable[..., Any], tuple[Tensor, ...]]

WIDTH, LENGTH, HEADS = 64, 32, 4


def adamw() -> Subject:
    """A step of AdamW on four parameters."""

    def step(*tensors: Tensor) -> None:
        for at in range(0, len(tensors), 4):
            parameter, gradient, mean, square = tensors[at : at + 4]
            parameter.mul_(1 - 1e-3 * 1e-2)
            mean.lerp_(gradient, 0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            denominator = (square.sqrt() / 0.03).add_(1e-8)
            parameter.addcdiv_(mean, denominator, value=-1e-2)

    return step, tuple(torch.rand(WIDTH, WIDTH) for _ in range(16))


def rows() -> Subject:
    """Updates of the rows of a table, one after the other."""

    def update(table: Tensor, change: Tensor) -> Tensor:
        for row in range(8):
            table[row].mul_(0.9).add_(change[row].exp() * 2)
        return table.sum()

    return update, (torch.rand(8, 256), torch.rand(8, 256))


def swap() -> Subject:
    """Exchange two tensors."""

    def exchange(one: Tensor, other: Tensor) -> None:
        old = one.clone()
        one.copy_(other)
        other.copy_(old)

    return exchange, (torch.rand(WIDTH, WIDTH), torch.rand(WIDTH, WIDTH))


def gauss() -> Subject:
    """Gaussian elimination, in place."""

    def eliminate(matrix: Tensor) -> Tensor:
        for row in range(matrix.shape[0] - 1):
            factor = matrix[row + 1 :, row] / matrix[row, row]
            matrix[row + 1 :] -= factor[:, None] * matrix[row]
        return matrix.diagonal().prod()

    return eliminate, (torch.rand(16, 16) + 16 * torch.eye(16),)


def kv_cache() -> Subject:
    """Attention of one new token to a cache, after its key and value are stored there."""

    def attend(token: Tensor, weights: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        query, key, value = (token @ weights).view(HEADS, 1, 3, WIDTH // HEADS).unbind(2)
        keys[:, 7:8] = key
        values[:, 7:8] = value
        scores = (query @ keys.transpose(1, 2)) / (WIDTH // HEADS) ** 0.5
        return torch.softmax(scores, -1) @ values

    cache = (HEADS, LENGTH, WIDTH // HEADS)
    inputs = torch.rand(1, WIDTH), torch.rand(WIDTH, 3 * WIDTH), torch.rand(cache)
    return attend, (*inputs, torch.rand(cache))


def _normalized(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cosine + turned * sine


def llama_block() -> Subject:
    """RMSNorm, rotary attention, and a gated feed-forward layer."""

    def block(x: Tensor, cosine: Tensor, sine: Tensor, *weights: Tensor) -> Tensor:
        norm, qkv, out, norm_2, gate, up, down = weights
        parts = (_normalized(x, norm) @ qkv).view(LENGTH, 3, HEADS, -1).permute(1, 2, 0, 3)
        query, key = (_rotated(part, cosine, sine) for part in parts[:2])
        scores = (query @ key.transpose(-1, -2)) / (WIDTH // HEADS) ** 0.5
        mask = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)
        mixed = torch.softmax(scores + mask, -1) @ parts[2]
        x = x + mixed.transpose(0, 1).reshape(LENGTH, WIDTH) @ out
        inner = _normalized(x, norm_2)
        return x + (functional.silu(inner @ gate) * (inner @ up)) @ down

    rotary = (LENGTH, WIDTH // HEADS)
    shapes = [(WIDTH,), (WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH,)]
    shapes += [(WIDTH, 2 * WIDTH), (WIDTH, 2 * WIDTH), (2 * WIDTH, WIDTH)]
    x = torch.rand(LENGTH, WIDTH)
    return block, (x, torch.rand(rotary), torch.rand(rotary), *map(torch.rand, shapes))


def resnet_block() -> Subject:
    """Two convolutions with batch norm in training, and a residual connection."""

    def block(x: Tensor, *state: Tensor) -> Tensor:
        first, second, *norms = state
        y = functional.conv2d(x, first, padding=1)
        y = functional.batch_norm(y, norms[0], norms[1], norms[2], norms[3], training=True)
        y = functional.conv2d(functional.relu(y, inplace=True), second, padding=1)
        y = functional.batch_norm(y, norms[4], norms[5], norms[6], norms[7], training=True)
        y += x
        return functional.relu(y, inplace=True)

    kernels = torch.rand(16, 16, 3, 3), torch.rand(16, 16, 3, 3)
    return block, (torch.rand(2, 16, 16, 16), *kernels, *(torch.rand(16) for _ in range(8)))


def scan() -> Subject:
    """A selective scan, as in Mamba: a state that is updated per step, and its outputs stacked."""

    def run(x: Tensor, delta: Tensor, decay: Tensor, into: Tensor, out: Tensor) -> Tensor:
        state = torch.zeros(WIDTH, 8)
        outputs = []
        for step in range(8):
            state = torch.exp(delta[step][:, None] * decay) * state
            state = state + (delta[step] * x[step])[:, None] * into[step]
            outputs.append((state * out[step]).sum(-1))
        return functional.silu(torch.stack(outputs))

    inputs = torch.rand(8, WIDTH), torch.rand(8, WIDTH), -torch.rand(WIDTH, 8)
    return run, (*inputs, torch.rand(8, 8), torch.rand(8, 8))


def t5_layer() -> Subject:
    """Attention with a relative position bias as in T5, and a feed-forward layer."""

    def layer(x: Tensor, table: Tensor, buckets: Tensor, *weights: Tensor) -> Tensor:
        norm, query, key, value, out, norm_2, inner, outer = weights
        normal = _normalized(x, norm)
        parts = [(normal @ w).view(LENGTH, HEADS, -1).transpose(0, 1) for w in (query, key, value)]
        scores = parts[0] @ parts[1].transpose(1, 2)
        scores += table[buckets].permute(2, 0, 1)
        mixed = torch.softmax(scores, -1) @ parts[2]
        x = x + mixed.transpose(0, 1).reshape(LENGTH, WIDTH) @ out
        return x + torch.relu(_normalized(x, norm_2) @ inner) @ outer

    square = (WIDTH, WIDTH)
    shapes: list[tuple[int, ...]] = [(WIDTH,), square, square, square, square, (WIDTH,)]
    shapes += [(WIDTH, 2 * WIDTH), (2 * WIDTH, WIDTH)]
    buckets = torch.randint(8, (LENGTH, LENGTH))
    x = torch.rand(LENGTH, WIDTH)
    return layer, (x, torch.rand(8, HEADS), buckets, *map(torch.rand, shapes))


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "AdamW step": adamw,
    "row updates": rows,
    "swap": swap,
    "Gaussian elimination": gauss,
    "KV cache step": kv_cache,
    "Llama block": llama_block,
    "ResNet block": resnet_block,
    "Mamba scan": scan,
    "T5 layer": t5_layer,
}


PLANNERS = ("functional", "reinplace", "torch", "plan_memory")


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """The footprints of one graph, by planner."""

    graph: str
    footprints: dict[str, Footprint]

    def row(self) -> tuple[str, ...]:
        """The row of its table."""
        sizes = [self.footprints[planner] for planner in PLANNERS]
        return (self.graph, *(f"{size.peak:,} / {size.calls}" for size in sizes))


@dataclass(frozen=True, slots=True)
class Planning:
    """All figures."""

    graphs: Sequence[GraphPlan]

    def tables(self) -> list[Table]:
        """One row per graph."""
        rows = [plan.row() for plan in self.graphs]
        return [Table("planning: bytes at the peak / allocations", ("graph", *PLANNERS), rows)]


def measure(names: Sequence[str] = ()) -> Planning:
    """Measure the graphs with these names; all of them, if none is given. Raises `UserError`."""
    for name in names:
        if name not in SUBJECTS:
            raise UserError(f"unknown graph '{name}'; graphs: {'; '.join(SUBJECTS)}")
    torch.manual_seed(0)
    chosen = {name: SUBJECTS[name]() for name in names or SUBJECTS}
    return Planning([graph_plan(name, *subject) for name, subject in chosen.items()])


def graph_plan(name: str, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> GraphPlan:
    """The footprints of one graph under each planner."""
    functional = remove_noops(functionalize(function, *inputs))
    theirs = torch_reinplace.reinplace(copy.deepcopy(functional), *inputs)
    update_metadata(theirs, *inputs)
    modules = {
        "functional": functional,
        "reinplace": reinplace(copy.deepcopy(functional)),
        "torch": theirs,
        "plan_memory": plan_memory(copy.deepcopy(functional)),
    }
    footprints = {planner: footprint(module.graph) for planner, module in modules.items()}
    return GraphPlan(name, footprints)
