"""Loops, branches and algorithms that go step by step, in Python and as operators of torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch._higher_order_ops import scan, while_loop


def clip_if_large(x: Tensor, history: list[float]) -> Tensor:
    """A branch on a number that is read from a tensor, as for gradient clipping."""
    norm = x.norm()
    history.append(norm.item())
    if norm > 2.0:
        x.mul_(2.0 / norm)
    elif norm < 0.5:
        x.zero_()
    return x.square().sum()


def gated_update(gate: Tensor, state: Tensor, x: Tensor) -> Tensor:
    """`torch.cond`: one of two branches, whose choice no compiler knows."""

    def accept(state: Tensor, x: Tensor) -> Tensor:
        return state * 0.9 + x

    def reject(state: Tensor, x: Tensor) -> Tensor:
        return state * 0.5 - x.abs()

    new = torch.cond(gate.sum() > 0, accept, reject, (state, x))
    state.copy_(new)
    return new.tanh()


def newton_root(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """`while_loop`: iterate until the square root is precise enough."""

    def unfinished(count: Tensor, guess: Tensor) -> Tensor:
        return (count < 20) & ((guess * guess - target).abs().max() > 1e-4)

    def improve(count: Tensor, guess: Tensor) -> tuple[Tensor, Tensor]:
        return count + 1, 0.5 * (guess + target / guess)

    count, root = while_loop(unfinished, improve, (torch.tensor(0), x))
    x.copy_(root)
    return count, root * root


def leaky_scan(inputs: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """`scan`: a recurrence over time."""

    def combine(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        new = carry * decay + x
        return new, new.relu()

    last, spikes = scan(combine, torch.zeros_like(inputs[0]), inputs)
    return last, spikes.flip(0)


def greedy_decode(table: Tensor, start: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Sequences that have ended are padded; the others go on. State is written in place."""
    batch, end = start.shape[0], 0
    output = torch.full((batch, length), -1, dtype=torch.long)
    finished = torch.zeros(batch, dtype=torch.bool)
    current = start
    for step in range(length):
        scores = table[current]
        scores[:, end] += step - 1
        current = torch.where(finished, torch.full_like(current, end), scores.argmax(dim=-1))
        output[:, step] = current
        finished |= current == end
    return output, finished


def suppress_overlapping(boxes: Tensor, scores: Tensor, most: float) -> Tensor:
    """Soft non-maximum suppression: scores of boxes that overlap a better one decay in place."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = torch.empty(boxes.shape[0], dtype=torch.long)
    alive = torch.ones_like(scores)
    for rank in range(boxes.shape[0]):
        best = (scores * alive).argmax()
        order[rank] = best
        alive[best] = 0
        corner = torch.maximum(boxes[:, :2], boxes[best, :2])
        other = torch.minimum(boxes[:, 2:], boxes[best, 2:])
        shared = (other - corner).clamp_(min=0).prod(dim=1)
        overlap = shared / (areas + areas[best] - shared)
        scores[overlap > most] *= 0.5
    return order


def suppress_overlapping_inputs() -> tuple[Tensor, Tensor, float]:
    corners = torch.tensor([[0.0, 0.0], [0.5, 0.5], [4.0, 4.0]])
    return torch.cat([corners, corners + 2], dim=1), torch.tensor([0.9, 0.8, 0.7]), 0.3


INPUTS: dict[str, Callable[[], object]] = {
    "clip_if_large": lambda: (torch.full((9,), 3.0), []),
    "gated_update": lambda: (torch.tensor([1.0, -0.5]), torch.randn(3), torch.randn(3)),
    "newton_root": lambda: (torch.ones(3), torch.tensor([2.0, 9.0, 0.5])),
    "leaky_scan": lambda: (torch.randn(4, 3), torch.rand(3)),
    "greedy_decode": lambda: (torch.randn(5, 5), torch.tensor([1, 3, 4]), 4),
    "suppress_overlapping": suppress_overlapping_inputs,
}
