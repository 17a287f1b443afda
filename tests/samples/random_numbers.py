"""Random numbers: dropout, sampling, augmentation, Markov chains."""

from __future__ import annotations

import torch
from torch import Tensor, nn

torch.manual_seed(0)


class NoisyEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Linear(4, 3)
        self.spread = nn.Linear(4, 3)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.drop(x)
        mean, log_variance = self.mean(hidden), self.spread(hidden)
        noise = torch.randn_like(mean)
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1)
        return noise.mul_((0.5 * log_variance).exp()).add_(mean), divergence


noisy_encoder = NoisyEncoder().train()


def gumbel_sample(logits: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Two samples from one distribution: each has noise of its own."""
    samples = []
    for _ in range(2):
        noise = torch.rand_like(logits).clamp_(1e-6, 1 - 1e-6)
        noise.log_().neg_().log_().neg_()
        soft = ((logits + noise) / temperature).softmax(-1)
        hard = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0)
        samples.append(hard - soft + soft)
    return samples[0], samples[1]


def augment_images(images: Tensor, strength: float) -> Tensor:
    """Flip some, cut a hole into each, add noise: all in place, on the batch that is given."""
    flip = torch.rand(images.shape[0]) < 0.5
    images.copy_(torch.where(flip.view(-1, 1, 1, 1), images.flip(-1), images))
    column = torch.randint(0, images.shape[-1] - 1, (images.shape[0], 1, 1, 1))
    index = torch.arange(images.shape[-1])
    images.masked_fill_((index >= column) & (index < column + 2), 0.0)
    images += torch.randn_like(images) * strength
    return images.mean(dim=(1, 2, 3))


def initialize_layer(weight: Tensor, bias: Tensor, gain: float) -> Tensor:
    """Initializers write what they get; some rows are zero afterwards."""
    nn.init.normal_(weight, std=gain / weight.shape[1] ** 0.5)
    nn.init.uniform_(bias, -0.1, 0.1)
    weight[::2].mul_(torch.empty(weight.shape[1]).bernoulli_(0.5))
    with torch.no_grad():
        weight[-1].zero_()
    return weight @ weight.t()


INPUTS = {
    "noisy_encoder": lambda: torch.randn(2, 4),
    "gumbel_sample": lambda: (torch.randn(3, 4), 0.7),
    "augment_images": lambda: (torch.rand(3, 1, 4, 4), 0.1),
    "initialize_layer": lambda: (torch.zeros(3, 4), torch.zeros(3), 1.5),
}
