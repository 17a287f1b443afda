"""Modules with state: attention caches, recurrent cells, normalizations and embeddings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.sharing.shared_arguments import (
    bools,
    floats,
    group,
    ints,
    layouts,
    program,
    separate,
    series,
)


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h[:, 0] *= 2
        return self.second(F.relu(h, inplace=True))


@program(layouts(floats(5, 3)), "x", factory=True)
def two_linear_layers() -> nn.Module:
    return TwoLayers()


@program(layouts(floats(4, 3, 2)), "x", factory=True)
def batch_norm_training() -> nn.Module:
    return nn.BatchNorm1d(3)


@program(series((floats(4, 3),), (floats(2, 3),), (floats(6, 3),)), "x", factory=True)
def batch_norm_changing_batch() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True))


@program(separate(floats(2, 3, 4, 4)), "x", factory=True)
def convolution_block() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4, momentum=None),
        nn.ReLU6(inplace=True),
        nn.Dropout(p=0.0, inplace=True),
        nn.MaxPool2d(2),
    )


@program(separate(floats(2, 4, 4)), "x", factory=True)
def instance_norm_with_statistics() -> nn.Module:
    return nn.InstanceNorm1d(4, affine=True, track_running_stats=True)


class PreNormResidual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x += self.linear(self.norm(x.clone()))
        x[:, 0] += 1
        return self.norm(x.clone())


@program(layouts(floats(3, 4)), "x", factory=True)
def residual_added_to_input() -> nn.Module:
    return PreNormResidual()


class GruOverTime(nn.Module):
    state: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)
        self.register_buffer("state", torch.zeros(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        h = self.state.clone()
        out = x.new_zeros(2, x.shape[1], 4)
        for k in range(x.shape[1]):
            h = self.cell(x[:, k], h)
            out[:, k] = h
        self.state.copy_(h.detach())
        return out


@program(layouts(floats(2, 3, 3), kinds="whole offset strided"), "x", factory=True)
def gru_cell_with_state() -> nn.Module:
    return GruOverTime()


class LstmStep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 2)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
        new_h, new_c = self.cell(x, (h.clone(), c.clone()))
        h.copy_(new_h)
        c.copy_(new_c)
        return new_h * 2


@program(separate(floats(4, 3), floats(4, 2), floats(4, 2)), "xnn", factory=True)
def lstm_state_written() -> nn.Module:
    return LstmStep()


def rotate_half(x: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return torch.cat([-right, left], dim=-1)


@program(separate(floats(2, 3, 4), floats(2, 3, 4)), "xx")
def rotary_embedding_in_place(q: Tensor, k: Tensor) -> Tensor:
    angle = torch.arange(3.0)[:, None] * torch.tensor([1.0, 0.1, 1.0, 0.1])
    cos, sin = angle.cos(), angle.sin()
    for t in (q, k):
        turned = rotate_half(t) * sin
        t.mul_(cos).add_(turned)
    return q @ k.mT


@program(group(floats(2, 3, 4), kinds="separate same overlap disjoint"), "nn")
def rotary_pairs_in_place(q: Tensor, k: Tensor) -> Tensor:
    even, odd = q[..., 0::2], q[..., 1::2]
    old = even.clone()
    even.mul_(0.8).sub_(odd, alpha=0.6)
    odd.mul_(0.8).add_(old, alpha=0.6)
    return (q * k).sum(-1)


class CachedAttention(nn.Module):
    """Attention over a cache that is filled in place, one token in each call."""

    keys: Tensor
    values: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)
        self.register_buffer("keys", torch.zeros(2, 6, 4))
        self.register_buffer("values", torch.zeros(2, 6, 4))

    def forward(self, x: Tensor, position: int) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        end = position + x.shape[1]
        self.keys[:, position:end] = k.detach()
        self.values[:, position:end] = v.detach()
        scores = q @ self.keys[:, :end].clone().mT / 2
        return scores.softmax(-1) @ self.values[:, :end].clone()


@program(
    series((floats(2, 3, 4), 0), (floats(2, 1, 4), 3), (floats(2, 1, 4), 4), (floats(2, 1, 4), 5)),
    "x",
    factory=True,
)
def attention_with_cache() -> nn.Module:
    return CachedAttention()


@program(separate(floats(2, 6, 4), floats(2, 4), ints(1, high=6), count=3), "nx")
def cache_update_by_position(cache: Tensor, new: Tensor, position: Tensor) -> Tensor:
    cache.index_copy_(1, position, new.detach()[:, None])
    mask = torch.arange(6) > position
    scores = (cache @ new[:, :, None]).squeeze(-1)
    scores.masked_fill_(mask, float("-inf"))
    return scores.softmax(-1)


@program(group(floats(2, 5, 4), kinds="separate same disjoint overlap"), "nn")
def caches_of_one_allocation(keys: Tensor, values: Tensor) -> Tensor:
    keys[:, 2] = 1.0
    values[:, 2] = 2.0
    return F.scaled_dot_product_attention(keys[:, :3], keys[:, :3], values[:, :3])


class PagedCache(nn.Module):
    pages: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pages", torch.zeros(4, 2, 3))

    def forward(self, x: Tensor, slots: Tensor) -> Tensor:
        flat = self.pages.view(8, 3)
        flat[slots] = x.detach()
        return self.pages.sum(1) + x[0]


@program(separate(floats(2, 3), ints(2, high=8), count=3), "x", factory=True)
def paged_cache_slots() -> nn.Module:
    return PagedCache()


class TiedEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 3, padding_idx=0)
        self.head = nn.Linear(3, 6, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.embed(tokens)
        h[:, 0].add_(1)
        h.tanh_()
        return self.head(h)


@program(separate(ints(2, 4, high=6), count=3), factory=True)
def tied_embedding_head() -> nn.Module:
    return TiedEmbedding()


class TiedEmbeddingWritten(TiedEmbedding):
    def forward(self, tokens: Tensor) -> Tensor:
        with torch.no_grad():
            self.embed.weight[0] = 0
            self.head.weight.mul_(0.9)
        return super().forward(tokens)


@program(separate(ints(2, 4, high=6), count=3), factory=True)
def tied_embedding_written() -> nn.Module:
    return TiedEmbeddingWritten()


@program(separate(ints(2, 4, high=6), count=3), factory=True)
def embedding_with_max_norm() -> nn.Module:
    return nn.Embedding(6, 3, max_norm=0.5)


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


@program(separate(floats(4), count=3), "x", factory=True)
def overlapping_buffers() -> nn.Module:
    return BufferViews()


class FlatParameterViews(nn.Module):
    """Weights are views of one flat parameter, made again in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.Parameter(torch.randn(15))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.flat[12:].clamp_(-0.1, 0.1)
        w, b = self.flat[:12].view(4, 3), self.flat[12:]
        return x @ w + b


@program(layouts(floats(2, 4)), "x", factory=True)
def flat_parameter_views() -> nn.Module:
    return FlatParameterViews()


class WindowAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = x @ x.mT
        scores += self.bias
        scores.diagonal(dim1=-2, dim2=-1).sub_(1)
        scores[:, mask] = -1e4
        return scores.softmax(-1) @ x


@program(separate(floats(2, 3, 4), bools(3, 3)), "x", factory=True)
def window_attention_bias() -> nn.Module:
    return WindowAttention()


@program(separate(floats(2, 4, 4)), "x", factory=True)
def transformer_encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)


@program(separate(floats(2, 3, 2)), "x", factory=True)
def gru_sequence() -> nn.Module:
    return nn.GRU(2, 3, batch_first=True)
