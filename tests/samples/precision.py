"""Mixed precision, quantization, and complex numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

torch.manual_seed(0)


class MixedBlock(nn.Module):
    """Under autocast: matrix products in bfloat16, the normalization in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = self.proj(x)
            hidden = self.norm(hidden.float()).to(hidden.dtype)
            return hidden @ hidden.t()


mixed_block = MixedBlock().eval()


def master_weights(
    low: list[Tensor], master: list[Tensor], grads: list[Tensor], rate: float
) -> Tensor:
    """The step is done in float32 copies, and the weights in bfloat16 follow."""
    squares = []
    for weight, copy, grad in zip(low, master, grads, strict=True):
        full = grad.float()
        squares.append(full.square().sum())
        copy.add_(full, alpha=-rate)
        weight.copy_(copy)
    return torch.stack(squares).sum().sqrt()


def master_weights_inputs() -> tuple[list[Tensor], list[Tensor], list[Tensor], float]:
    master = [torch.randn(3, 2), torch.randn(4)]
    low = [weight.bfloat16() for weight in master]
    return low, master, [torch.randn_like(weight) for weight in low], 0.125


def quantize_weight(weight: Tensor, packed: Tensor, scales: Tensor) -> Tensor:
    """Four bits per weight, two weights per byte, a scale per row."""
    scales.copy_(weight.abs().amax(dim=1, keepdim=True) / 7)
    levels = (weight / scales).round().clamp_(-8, 7).to(torch.int8).add_(8).to(torch.uint8)
    packed.copy_(levels[:, ::2])
    packed |= levels[:, 1::2] << 4
    low, high = (packed & 15).to(torch.int8) - 8, (packed >> 4).to(torch.int8) - 8
    restored = torch.stack([low, high], dim=-1).flatten(1)
    return restored * scales


def low_pass(signal: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """A filter in the frequency domain: the spectrum is complex, and cut in place."""
    spectrum = torch.fft.rfft(signal)
    spectrum[..., keep:] = 0
    spectrum[..., 0] *= 0.5
    filtered = torch.fft.irfft(spectrum, n=signal.shape[-1])
    signal -= filtered
    return filtered, spectrum.abs()


def rotate_complex(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary positions as complex numbers: a view of pairs, written in place."""
    pairs = torch.view_as_complex(x.view(*x.shape[:-1], -1, 2))
    pairs.mul_(torch.polar(torch.ones_like(angles), angles))
    return x.flip(-1)


INPUTS = {
    "mixed_block": lambda: torch.randn(3, 8),
    "master_weights": master_weights_inputs,
    "quantize_weight": lambda: (
        torch.randn(3, 4),
        torch.zeros(3, 2, dtype=torch.uint8),
        torch.zeros(3, 1),
    ),
    "low_pass": lambda: (torch.randn(2, 8), 3),
    "rotate_complex": lambda: (torch.randn(3, 4), torch.linspace(0, 1, 6).reshape(3, 2)),
}
