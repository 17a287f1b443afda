"""Modules of torch, in inference and in training mode, with buffers that they write."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

torch.manual_seed(0)


class ConvBlock(nn.Module):
    """In training mode, so that the running statistics are written."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outer)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(self.conv(x)))


conv_block = ConvBlock(3, 4).train()


class SpectralLinear(nn.Module):
    """A linear layer whose weight is divided by its largest singular value."""

    u: Tensor

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner))
        self.register_buffer("u", F.normalize(torch.randn(outer), dim=0))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            v = F.normalize(self.weight.t() @ self.u, dim=0)
            self.u.copy_(F.normalize(self.weight @ v, dim=0))
        sigma = self.u @ self.weight @ v
        return x @ (self.weight / sigma).t()


spectral_linear = SpectralLinear(5, 3)


class VectorQuantizer(nn.Module):
    """The nearest codes, and their moving averages (van den Oord et al., 2017)."""

    codes: Tensor
    sizes: Tensor
    sums: Tensor

    def __init__(self, count: int, width: int, decay: float = 0.9) -> None:
        super().__init__()
        self.decay = decay
        codes = torch.randn(count, width)
        self.register_buffer("codes", codes)
        self.register_buffer("sizes", torch.ones(count))
        self.register_buffer("sums", codes.clone())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        chosen = torch.cdist(x, self.codes).argmin(dim=1)
        quantized = self.codes[chosen]
        if self.training:
            used = torch.zeros_like(self.sizes).index_add_(0, chosen, x.new_ones(x.shape[0]))
            added = torch.zeros_like(self.sums).index_add_(0, chosen, x)
            self.sizes.mul_(self.decay).add_(used, alpha=1 - self.decay)
            self.sums.mul_(self.decay).add_(added, alpha=1 - self.decay)
            self.codes.copy_(self.sums / self.sizes.clamp(min=1e-5).unsqueeze(1))
        return quantized, chosen


vector_quantizer = VectorQuantizer(5, 3)


class BoundedEmbedding(nn.Module):
    """`max_norm` makes the lookup write the weight."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4, padding_idx=0, max_norm=1.0)
        self.register_buffer("seen", torch.zeros(10, dtype=torch.long))

    def forward(self, ids: Tensor) -> Tensor:
        self.seen.index_put_((ids.flatten(),), torch.ones_like(ids.flatten()), accumulate=True)
        return self.words(ids).mean(dim=1)


bounded_embedding = BoundedEmbedding()


class LowRankLinear(nn.Module):
    """An adapter beside a frozen weight; `merge` adds it to the weight in place."""

    def __init__(self, inner: int, outer: int, rank: int = 2) -> None:
        super().__init__()
        self.base = nn.Linear(inner, outer).requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, inner))
        self.b = nn.Parameter(torch.randn(outer, rank))
        self.scale = 0.5

    def forward(self, x: Tensor, merge: bool = False) -> Tensor:
        before = self.base(x) + (x @ self.a.t() @ self.b.t()) * self.scale
        if not merge:
            return before
        with torch.no_grad():
            self.base.weight += self.b @ self.a * self.scale
        return before - self.base(x)


low_rank_linear = LowRankLinear(4, 3)


class TiedEmbedding(nn.Module):
    """One parameter under two names; a row of it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 3, padding_idx=0)
        self.head = nn.Linear(3, 6, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            self.embed.weight[0] = 0
            self.head.weight.mul_(0.9)
        return self.head(self.embed(ids).tanh_())


tied_embedding = TiedEmbedding()


class BufferViews(nn.Module):
    """Two buffers that are overlapping views of one tensor."""

    head: Tensor
    tail: Tensor

    def __init__(self) -> None:
        super().__init__()
        flat = torch.randn(6)
        self.register_buffer("head", flat[:4])
        self.register_buffer("tail", flat[2:])

    def forward(self, x: Tensor) -> Tensor:
        self.head.mul_(0.5)
        self.tail.add_(x.detach())
        return self.head * x


buffer_views = BufferViews()


class FlatParameter(nn.Module):
    """Weights are views of one flat parameter, made again in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.Parameter(torch.randn(15))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.flat[12:].clamp_(-0.1, 0.1)
        w, b = self.flat[:12].view(4, 3), self.flat[12:]
        return x @ w + b


flat_parameter = FlatParameter()


class MemoryQueue(nn.Module):
    """A queue of keys with a pointer that is a number, as in contrastive learning."""

    queue: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("queue", F.normalize(torch.randn(3, 8), dim=0))
        self.pointer = 0

    def forward(self, q: Tensor) -> Tensor:
        logits = q @ self.queue.clone().detach()
        with torch.no_grad():
            self.queue[:, self.pointer : self.pointer + 2] = q.detach().t()
        self.pointer = (self.pointer + 2) % 8
        return logits.logsumexp(1)


memory_queue = MemoryQueue()


INPUTS = {
    "conv_block": lambda: torch.randn(2, 3, 6, 6),
    "spectral_linear": lambda: torch.randn(4, 5),
    "vector_quantizer": lambda: torch.randn(8, 3),
    "bounded_embedding": lambda: torch.tensor([[1, 2, 0], [3, 2, 9]]),
    "low_rank_linear": lambda: ((torch.randn(2, 4),), {"merge": True}),
    "tied_embedding": lambda: torch.tensor([[1, 0, 4], [2, 2, 5]]),
    "buffer_views": lambda: torch.randn(4),
    "flat_parameter": lambda: torch.randn(2, 4),
    "memory_queue": lambda: torch.randn(2, 3),
}
