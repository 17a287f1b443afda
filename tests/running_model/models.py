"""Models as people write them, which train or run for a few steps under a check.

Each takes `compile_`, which it calls as `torch.compile`, with a model or a function, and returns
what a user would look at: losses, tokens, buffers.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Compile: TypeAlias = Callable[[Any], Any]
Steps: TypeAlias = Callable[[Compile], list[float]]
STEPS = 4


# --- language models ------------------------------------------------------------------------------


class LlamaBlock(nn.Module):
    """With a length, attention is over a cache of keys and values that it writes in place."""

    def __init__(self, dim: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.length = heads, length
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.gate = nn.Linear(dim, 2 * dim, bias=False)
        self.up = nn.Linear(dim, 2 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)
        self.register_buffer("k", torch.zeros(1, heads, length, dim // heads))
        self.register_buffer("v", torch.zeros(1, heads, length, dim // heads))

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], positions: Tensor) -> Tensor:
        batch, length, dim = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        q, k = rotated(q, *angles), rotated(k, *angles)
        if self.length:
            self.k.index_copy_(2, positions, k)  # type: ignore[operator]
            self.v.index_copy_(2, positions, v)  # type: ignore[operator]
            mask = torch.arange(self.length) <= positions[:, None]
            y = F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask)  # type: ignore[arg-type]
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, dim))
        h = self.norm2(x)
        result: Tensor = x + self.down(F.silu(self.gate(h)) * self.up(h))
        return result


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Llama(nn.Module):
    def __init__(
        self, vocabulary: int = 64, dim: int = 32, heads: int = 4, cached: int = 0
    ) -> None:
        super().__init__()
        self.tokens, self.norm = nn.Embedding(vocabulary, dim), nn.RMSNorm(dim)
        self.blocks = nn.ModuleList(LlamaBlock(dim, heads, cached) for _ in range(2))
        self.head = nn.Linear(dim, vocabulary, bias=False)
        frequency = 1 / 10000 ** (torch.arange(0, dim // heads, 2) / (dim // heads))
        angles = torch.outer(torch.arange(16), frequency).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.tokens(tokens)
        angles = self.cos[positions], self.sin[positions]  # type: ignore[index]
        for block in self.blocks:
            x = block(x, angles, positions)
        logits: Tensor = self.head(self.norm(x))
        return logits


def llama_training(compile_: Compile) -> list[float]:
    """AdamW, gradient accumulation, gradient clipping, and an average of the weights."""
    model = Llama()
    average = Llama().requires_grad_(False)
    average.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compiled, losses = compile_(model), []

    def update(averages: list[Tensor], parameters: list[Tensor]) -> None:
        with torch.no_grad():
            torch._foreach_lerp_(averages, parameters, 0.1)

    update = compile_(update)
    for _ in range(STEPS):
        for _ in range(2):
            tokens = torch.randint(0, 64, (2, 17))
            logits = compiled(tokens[:, :-1], torch.arange(16)).flatten(0, 1)
            loss = F.cross_entropy(logits, tokens[:, 1:].flatten()) / 2
            loss.backward()
            losses.append(loss.item())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        update(list(average.parameters()), list(model.parameters()))
    return [*losses, *(float(p.detach().sum()) for p in average.parameters())]


def llama_generation(compile_: Compile) -> list[float]:
    """Tokens one by one, with a static cache, after a prompt of five."""
    model = compile_(Llama(cached=12).eval())
    tokens, made = torch.randint(0, 64, (1, 5)), []
    with torch.no_grad():
        token = model(tokens, torch.arange(5))[:, -1].argmax(-1, keepdim=True)
        for position in range(5, 5 + STEPS):
            made.append(float(token))
            token = model(token, torch.tensor([position]))[:, -1].argmax(-1, keepdim=True)
    return made


# --- images ---------------------------------------------------------------------------------------


class ResidualBlock(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential(
            nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        y += self.shortcut(x)
        result: Tensor = self.relu(y)
        return result


def resnet_training(compile_: Compile) -> list[float]:
    """BatchNorm updates its buffers in place; SGD with momentum."""
    model = nn.Sequential(
        ResidualBlock(3, 8, 1),
        ResidualBlock(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(16, 5),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    compiled, losses = compile_(model), []
    for _ in range(STEPS):
        loss = F.cross_entropy(compiled(torch.randn(4, 3, 12, 12)), torch.randint(0, 5, (4,)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        losses.append(loss.item())
    return [*losses, *(float(buffer.double().sum()) for buffer in model.buffers())]


# --- embeddings, optimizers -----------------------------------------------------------------------


def embedding_training(compile_: Compile) -> list[float]:
    """`max_norm` writes the weight in the forward pass."""
    model = nn.Sequential(nn.EmbeddingBag(20, 8, mode="mean"), nn.Linear(8, 3))
    limited = nn.Embedding(20, 8, max_norm=1.0)
    optimizer = torch.optim.Adagrad([*model.parameters(), *limited.parameters()])

    def forward(tokens: Tensor) -> Tensor:
        result: Tensor = model(tokens) + limited(tokens).sum(1)[:, :3]
        return result

    compiled, losses = compile_(forward), []
    for _ in range(STEPS):
        tokens = torch.randint(0, 20, (4, 5))
        loss = F.cross_entropy(compiled(tokens), torch.randint(0, 3, (4,)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return [*losses, float(limited.weight.detach().sum())]


def whole_step(compile_: Compile) -> list[float]:
    """Clipping and the optimizer are compiled, too; autocast and dropout in the model."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-2), capturable=False)
    compiled, losses = compile_(model), []

    def step() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()

    step = compile_(step)
    for _ in range(STEPS):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(compiled(torch.randn(4, 8)).float(), torch.randn(4, 4))
        loss.backward()
        step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


MODELS: dict[str, Steps] = {
    "Llama, training": llama_training,
    "Llama with a static cache": llama_generation,
    "ResNet, training": resnet_training,
    "embedding with max_norm": embedding_training,
    "clipping and AdamW compiled": whole_step,
}
