"""Windows of one source: language model data, ring buffers, caches and signals."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.sharing.shared_arguments import custom, cut, floats, group, ints, program, separate


@program(group(ints(8, high=6), floats(6, 4), kinds="overlap separate shifted same"), "nnl")
def data_and_target_tokens(data: Tensor, target: Tensor, table: Tensor) -> Tensor:
    logits = table[data] @ table.t()
    target[0] = -100
    return F.cross_entropy(logits, target, ignore_index=-100)


@program(group(ints(8, high=6), kinds="overlap shifted reverse separate"), "")
def corrupt_data_keep_target(data: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    data[2:4] = 0
    hits = data == target
    return hits, target.clone()


@program(group(floats(8), kinds="overlap separate shifted apart"), "nn")
def normalize_window_predict_next(window: Tensor, target: Tensor) -> Tensor:
    window.sub_(window.mean())
    return (window - target).square().mean()


@program(group(floats(6), kinds="separate overlap shifted reverse"), "xx")
def window_scaled_target_read(window: Tensor, target: Tensor) -> Tensor:
    window.mul_(0.5)
    return F.mse_loss(window, target) + target[0]


class RingBuffer(nn.Module):
    ring: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ring", torch.zeros(5, 3))
        self.position = 0

    def forward(self, x: Tensor) -> Tensor:
        self.ring[self.position] = x.detach()
        self.position = (self.position + 1) % 5
        return self.ring.roll(-self.position, 0).mean(0) + x


@program(separate(floats(3), count=4), "x", factory=True)
def ring_buffer_module() -> nn.Module:
    return RingBuffer()


class TensorPositionRing(nn.Module):
    ring: Tensor
    position: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ring", torch.zeros(4, 2))
        self.register_buffer("position", torch.zeros(1, dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.ring.index_copy_(0, self.position, x.detach()[None])
        self.position.add_(1).remainder_(4)
        return self.ring.index_select(0, self.position) + x


@program(separate(floats(2), count=4), "x", factory=True)
def tensor_position_ring() -> nn.Module:
    return TensorPositionRing()


class SlidingState(nn.Module):
    """Keeps a view of its storage that moves at each step."""

    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.storage = torch.arange(12.0)
        self.register_buffer("window", self.storage[:4])
        self.start = 0

    def forward(self, x: Tensor) -> Tensor:
        self.window.add_(x.detach())
        return self.window * x + self.storage[:4]

    def advance(self) -> None:
        self.start += 2
        self.window = self.storage[self.start : self.start + 4]


class SlidingStep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = SlidingState()

    def forward(self, x: Tensor) -> Tensor:
        out = self.inner(x)
        self.inner.advance()
        return out


@program(separate(floats(4), count=4), "x", factory=True)
def sliding_state_window() -> nn.Module:
    return SlidingStep()


@program(
    custom(
        floats(12),
        (None, cut(0, 4)),
        (None, cut(2, 4)),
        (None, cut(4, 4)),
        (cut(0, 6), cut(6, 4)),
    ),
    "xx",
)
def state_and_moving_window(state: Tensor, window: Tensor) -> Tensor:
    window.add_(1)
    state[2:4].mul_(2)
    return state[:6] * 1


@program(
    custom(
        floats(12),
        (cut(0, 6), cut(6, 6)),
        (cut(0, 6), cut(3, 6)),
        (cut(3, 6), cut(0, 6)),
        (cut(0, 6), cut(0, 6)),
    ),
    "nn",
)
def overlap_add_frames(frame: Tensor, out: Tensor) -> Tensor:
    windowed = frame * torch.hann_window(6)
    out.add_(windowed)
    frame.zero_()
    return out.sum()


@program(separate(floats(4, 3), floats(3), count=3), "n")
def history_shifted_by_one(history: Tensor, new: Tensor) -> Tensor:
    history[:-1] = history[1:].clone()
    history[-1] = new
    return history.mean(0)


@program(separate(floats(4, 3), floats(3), count=3), "xx")
def history_rolled_and_set(history: Tensor, new: Tensor) -> Tensor:
    history.copy_(history.roll(-1, 0))
    history[-1].copy_(new)
    return history * new


@program(separate(floats(10)), "x")
def causal_filter_in_place(x: Tensor) -> Tensor:
    y = x.clone()
    for k in range(2, 10):
        y[k] += 0.5 * y[k - 1].clone() - 0.1 * y[k - 2].clone()
    return y


@program(group(floats(2, 6), kinds="separate overlap disjoint same"), "nn")
def delay_line_feedback(line: Tensor, x: Tensor) -> Tensor:
    out = line[:, 0] + x[:, 0]
    line[:, :-1] = line[:, 1:].clone()
    line[:, -1] = out
    return x * out[:, None]


@program(group(floats(4, 4), kinds="separate same overlap disjoint"), "nn")
def stencil_step_double_buffer(now: Tensor, after: Tensor) -> Tensor:
    inner = (now[:-2, 1:-1] + now[2:, 1:-1]) / 2
    after[1:-1, 1:-1].copy_(inner)
    after[0] = 0
    return now + after


@program(group(ints(6, high=5), ints(1, high=5), kinds="overlap separate reverse same"), "")
def append_token_and_shift(context: Tensor, other: Tensor, token: Tensor) -> Tensor:
    context.copy_(torch.cat([context[1:], token]))
    return other + context
