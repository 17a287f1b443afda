"""Parts of language models, in the manner of `transformers`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

torch.manual_seed(0)


@dataclass
class TinyConfig:
    vocabulary: int = 12
    width: int = 8
    heads: int = 2
    kv_heads: int = 1
    layers: int = 2
    length: int = 6


class RootMeanNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(dtype)


def rotate_half(x: Tensor) -> Tensor:
    one, other = x.chunk(2, dim=-1)
    return torch.cat((-other, one), dim=-1)


class GroupedAttention(nn.Module):
    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        self.head = config.width // config.heads
        self.groups = config.heads // config.kv_heads
        self.q = nn.Linear(config.width, config.heads * self.head, bias=False)
        self.k = nn.Linear(config.width, config.kv_heads * self.head, bias=False)
        self.v = nn.Linear(config.width, config.kv_heads * self.head, bias=False)
        self.o = nn.Linear(config.heads * self.head, config.width, bias=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, cache: tuple[Tensor, Tensor], where: Tensor
    ) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            project(x).view(batch, length, -1, self.head).transpose(1, 2)
            for project in (self.q, self.k, self.v)
        )
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        keys, values = cache
        keys.index_copy_(2, where, k)
        values.index_copy_(2, where, v)
        scores = q @ keys.repeat_interleave(self.groups, dim=1).transpose(2, 3)
        later = torch.arange(keys.shape[2]) > where.unsqueeze(1)
        scores = (scores / self.head**0.5).masked_fill(later, torch.finfo(scores.dtype).min)
        mixed = scores.softmax(-1) @ values.repeat_interleave(self.groups, dim=1)
        return self.o(mixed.transpose(1, 2).reshape(batch, length, -1))


class TinyLlama(nn.Module):
    inverse: Tensor

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocabulary, config.width)
        self.norms = nn.ModuleList(RootMeanNorm(config.width) for _ in range(2 * config.layers))
        self.attention = nn.ModuleList(GroupedAttention(config) for _ in range(config.layers))
        self.gate = nn.ModuleList(nn.Linear(config.width, 12) for _ in range(config.layers))
        self.down = nn.ModuleList(nn.Linear(12, config.width) for _ in range(config.layers))
        half = config.width // config.heads // 2
        inverse = 1.0 / 100 ** (torch.arange(half) / half)
        self.register_buffer("inverse", inverse, persistent=False)

    def forward(self, ids: Tensor, where: Tensor, caches: list[tuple[Tensor, Tensor]]) -> Tensor:
        x = self.embed(ids)
        angles = torch.outer(where.float(), self.inverse)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos(), angles.sin()
        for layer, cache in enumerate(caches):
            x = x + self.attention[layer](self.norms[2 * layer](x), cos, sin, cache, where)
            hidden = self.gate[layer](self.norms[2 * layer + 1](x))
            x = x + self.down[layer](F.silu(hidden, inplace=True))
        return x @ self.embed.weight.t()


tiny_llama = TinyLlama(TinyConfig()).eval()


def tiny_llama_inputs() -> tuple[object, ...]:
    """The second step of a generation: a static cache that has two positions filled."""
    caches = []
    for _ in range(2):
        keys, values = torch.zeros(1, 1, 6, 4), torch.zeros(1, 1, 6, 4)
        keys[:, :, :2].normal_()
        values[:, :, :2].normal_()
        caches.append((keys, values))
    return torch.tensor([[5, 7]]), torch.tensor([2, 3]), caches


class RoutedExperts(nn.Module):
    """Mixture of experts: each expert adds its part into the rows that chose it."""

    load: Tensor

    def __init__(self, width: int, experts: int, top: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))
        self.register_buffer("load", torch.zeros(experts))
        self.top = top

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.reshape(-1, x.shape[-1])
        weights, chosen = self.router(rows).softmax(-1).topk(self.top, dim=-1)
        weights /= weights.sum(-1, keepdim=True)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            share = torch.where(chosen == number, weights, 0.0).sum(-1, keepdim=True)
            out += F.gelu(expert(rows)) * share
            self.load[number] += (chosen == number).sum()
        return out.view_as(x), self.load / self.load.sum()


routed_experts = RoutedExperts(4, 3, 2)


def routed_experts_inputs() -> Tensor:
    return torch.randn(2, 3, 4)


class SelectiveScan(nn.Module):
    """A state space layer: a recurrence whose state lives in the caller's cache."""

    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        self.log_a = nn.Parameter(torch.rand(width, states).log())
        self.project = nn.Linear(width, 2 * states + 1)
        self.skip = nn.Parameter(torch.ones(width))
        self.states = states

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        delta, b, c = self.project(x).split([1, self.states, self.states], dim=-1)
        decay = torch.exp(-F.softplus(delta).unsqueeze(-1) * self.log_a.exp())
        outputs = []
        for time in range(x.shape[1]):
            entering = x[:, time].unsqueeze(-1) * b[:, time].unsqueeze(1)
            state.mul_(decay[:, time]).add_(entering)
            outputs.append((state * c[:, time].unsqueeze(1)).sum(-1))
        return torch.stack(outputs, dim=1) + x * self.skip


selective_scan = SelectiveScan(4, 3)


def selective_scan_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 3, 4), torch.zeros(2, 4, 3)


class RelativeBias(nn.Module):
    """T5: the bias of a pair of positions by the bucket of their distance."""

    def __init__(self, buckets: int, heads: int) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.buckets = buckets

    def bucket(self, distance: Tensor) -> Tensor:
        half = self.buckets // 2
        result = (distance > 0).long() * half
        distance = distance.abs()
        exact = half // 2
        scaled = exact + (torch.log(distance.float() / exact) / 2 * (half - exact)).long()
        scaled = torch.minimum(scaled, torch.full_like(scaled, half - 1))
        result += torch.where(distance < exact, distance, scaled)
        return result

    def forward(self, scores: Tensor) -> Tensor:
        rows, columns = scores.shape[-2:]
        distance = torch.arange(columns)[None, :] - torch.arange(rows)[:, None]
        scores += self.table(self.bucket(distance)).permute(2, 0, 1).unsqueeze(0)
        return scores.softmax(-1)


relative_bias = RelativeBias(8, 2)


def relative_bias_inputs() -> Tensor:
    return torch.randn(1, 2, 3, 5)


def filter_logits(
    logits: Tensor, previous: Tensor, penalty: float, top: int, share: float
) -> Tensor:
    """What `generate` does to scores: a penalty for repetition, then top-k, then top-p."""
    score = torch.gather(logits, 1, previous)
    score = torch.where(score < 0, score * penalty, score / penalty)
    logits.scatter_(1, previous, score)
    kth = logits.topk(top, dim=-1).values[:, -1:]
    logits.masked_fill_(logits < kth, float("-inf"))
    ordered, order = logits.sort(dim=-1, descending=True)
    removed = ordered.softmax(-1).cumsum(-1) > share
    removed[:, 1:] = removed[:, :-1].clone()
    removed[:, 0] = False
    return logits.masked_fill(removed.scatter(1, order, removed), float("-inf")).softmax(-1)


def filter_logits_inputs() -> tuple[Tensor, Tensor, float, int, float]:
    return torch.randn(2, 8), torch.tensor([[1, 4], [0, 7]]), 1.3, 5, 0.8


class PatchEncoder(nn.Module):
    """A small vision transformer: patches, a class position, and torch's own encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, kernel_size=2, stride=2)
        self.first = nn.Parameter(torch.randn(1, 1, 8))
        self.positions = nn.Parameter(torch.randn(1, 5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], dim=1)
        x += self.positions
        x = self.layer(x)
        return {"logits": self.head(x[:, 0]), "hidden": x}


patch_encoder = PatchEncoder().train()


def patch_encoder_inputs() -> Tensor:
    return torch.randn(2, 3, 4, 4)


def accept_draft(
    draft: Tensor, draft_scores: Tensor, scores: Tensor, output: Tensor, filled: Tensor
) -> Tensor:
    """Speculative decoding: what the large model accepts is written behind what is there."""
    chosen = scores.gather(-1, draft.unsqueeze(-1)).squeeze(-1)
    ratio = chosen / draft_scores.gather(-1, draft.unsqueeze(-1)).squeeze(-1)
    accepted = (ratio >= 0.5).long().cumprod(dim=0)
    places = filled + torch.arange(draft.shape[0])
    output.index_copy_(0, places, torch.where(accepted.bool(), draft, output[places]))
    filled += accepted.sum()
    return accepted


def accept_draft_inputs() -> tuple[Tensor, ...]:
    scores = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.1, 0.1, 0.8]])
    draft_scores = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.3, 0.3], [0.7, 0.2, 0.1]])
    output = torch.full((6,), -1)
    return torch.tensor([1, 0, 0]), draft_scores, scores, output, torch.tensor([2])
