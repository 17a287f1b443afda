"""Caches, buffers and histories that are written in place."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass

import torch
from torch import Tensor


def append_to_cache(cache: Tensor, new: Tensor, position: int) -> Tensor:
    """A key cache of fixed length: write one position, read all positions so far."""
    cache[:, :, position : position + 1] = new
    return cache[:, :, : position + 1].softmax(dim=-1)


def sliding_window(cache: Tensor, new: Tensor) -> Tensor:
    """The oldest entry leaves. Source and destination overlap, so the source is cloned."""
    cache[:, :-1] = cache[:, 1:].clone()
    cache[:, -1] = new
    return cache.mean(dim=1)


def ring_buffer(buffer: Tensor, head: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
    """Write a few items behind the head, which is a tensor, and wrap around."""
    count = items.shape[0]
    slots = (head + torch.arange(count)) % buffer.shape[0]
    buffer.index_copy_(0, slots, items)
    head.add_(count).remainder_(buffer.shape[0])
    ordered = torch.roll(buffer, 0).index_select(0, (head + torch.arange(5)) % 5)
    return ordered, slots


def paged_cache(
    pages: Tensor, table: Tensor, positions: Tensor, keys: Tensor
) -> tuple[Tensor, Tensor]:
    """Keys of a batch go to pages by a block table, and are gathered again."""
    size = pages.shape[1]
    batch = torch.arange(keys.shape[0])
    page = table[batch, positions // size]
    pages.index_put_((page, positions % size), keys)
    gathered = pages[table].flatten(1, 2)
    valid = torch.arange(gathered.shape[1]) <= positions.unsqueeze(1)
    return gathered.masked_fill(~valid.unsqueeze(-1), 0.0), page


def paged_cache_inputs() -> tuple[Tensor, ...]:
    table = torch.tensor([[4, 1], [0, 3]])
    return torch.randn(5, 2, 3), table, torch.tensor([2, 1]), torch.randn(2, 3)


@dataclass
class LayerCache:
    keys: Tensor
    values: Tensor
    length: int = 0

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        end = self.length + keys.shape[1]
        self.keys[:, self.length : end].copy_(keys)
        self.values[:, self.length : end].copy_(values)
        self.length = end
        return self.keys[:, :end], self.values[:, :end]


def attend_with_cache(q: Tensor, k: Tensor, v: Tensor, cache: LayerCache) -> Tensor:
    """Attention over what is cached. The cache counts its entries in a plain int."""
    keys, values = cache.update(k, v)
    weights = (q @ keys.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)
    return weights @ values


def attend_with_cache_inputs() -> tuple[object, ...]:
    cache = LayerCache(torch.randn(2, 8, 4), torch.randn(2, 8, 4), 3)
    return torch.randn(2, 1, 4), torch.randn(2, 1, 4), torch.randn(2, 1, 4), cache


class ReplayBuffer:
    """Transitions of an agent. The oldest are overwritten."""

    def __init__(self, capacity: int, width: int) -> None:
        self.states = torch.zeros(capacity, width)
        self.rewards = torch.zeros(capacity)
        self.next = 0
        self.full = False

    def add(self, state: Tensor, reward: Tensor) -> None:
        self.states[self.next] = state
        self.rewards[self.next] = reward
        self.next = (self.next + 1) % len(self.rewards)
        self.full = self.full or self.next == 0


def fill_replay_buffer(buffer: ReplayBuffer, states: Tensor, rewards: Tensor) -> Tensor:
    for state, reward in zip(states, rewards, strict=True):
        buffer.add(state, reward)
    filled = len(buffer.rewards) if buffer.full else buffer.next
    normalized = buffer.rewards[:filled] - buffer.rewards[:filled].mean()
    return normalized @ buffer.states[:filled]


def fill_replay_buffer_inputs() -> tuple[ReplayBuffer, Tensor, Tensor]:
    buffer = ReplayBuffer(3, 2)
    buffer.add(torch.ones(2), torch.tensor(1.0))
    return buffer, torch.randn(3, 2), torch.randn(3)


def confusion_matrix(counts: Tensor, predicted: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Count pairs in place; the scores are those of all batches so far."""
    classes = counts.shape[0]
    pairs = labels * classes + predicted
    counts.view(-1).scatter_add_(0, pairs, torch.ones_like(pairs))
    right = counts.diagonal()
    return {
        "accuracy": right.sum() / counts.sum(),
        "recall": right / counts.sum(dim=1).clamp(min=1),
        "precision": right / counts.sum(dim=0).clamp(min=1),
    }


def confusion_matrix_inputs() -> tuple[Tensor, Tensor, Tensor]:
    counts = torch.tensor([[3, 1, 0], [0, 2, 1], [1, 0, 4]])
    return counts, torch.tensor([0, 2, 1, 1]), torch.tensor([0, 2, 2, 1])


def swap_buffers(front: Tensor, back: Tensor, gain: Tensor) -> Tensor:
    """A double buffer: compute into the back, then exchange; what was in front fades."""
    torch.mul(front, gain, out=back)
    kept = front.clone()
    front.copy_(back)
    back.copy_(kept.mul_(0.5))
    return front - back


def memoized_statistics(memo: MutableMapping[str, Tensor], x: Tensor) -> Tensor:
    """A dictionary that gets new entries, and whose old ones are updated in place."""
    if "mean" in memo:
        memo["mean"].lerp_(x.mean(dim=0), 0.1)
    if "covariance" not in memo:
        centered = x - memo["mean"]
        memo["covariance"] = centered.t() @ centered / (x.shape[0] - 1)
    memo["count"] = memo["count"] + x.shape[0]
    return (x - memo["mean"]) @ memo["covariance"]


INPUTS = {
    "append_to_cache": lambda: (torch.zeros(1, 2, 6, 4), torch.randn(1, 2, 1, 4), 3),
    "sliding_window": lambda: (torch.arange(12.0).reshape(2, 6), torch.tensor([50.0, 60.0])),
    "ring_buffer": lambda: (torch.arange(10.0).reshape(5, 2), torch.tensor(3), -torch.ones(3, 2)),
    "paged_cache": paged_cache_inputs,
    "attend_with_cache": attend_with_cache_inputs,
    "fill_replay_buffer": fill_replay_buffer_inputs,
    "confusion_matrix": confusion_matrix_inputs,
    "swap_buffers": lambda: (torch.randn(3, 4), torch.zeros(3, 4), torch.tensor(2.0)),
    "memoized_statistics": lambda: (
        {"mean": torch.zeros(3), "count": torch.tensor(5)},
        torch.randn(4, 3),
    ),
}
