"""Arguments and results that are trees: dictionaries, named tuples, dataclasses, keywords."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


class Particles(NamedTuple):
    position: Tensor
    velocity: Tensor
    mass: Tensor


def leapfrog(particles: Particles, dt: float) -> tuple[Particles, Tensor]:
    """Kick, drift, kick: a named tuple whose tensors are written."""

    def acceleration() -> Tensor:
        apart = particles.position.unsqueeze(0) - particles.position.unsqueeze(1)
        distance = (apart.square().sum(-1) + 0.1).pow(1.5)
        return (apart * (particles.mass / distance).unsqueeze(-1)).sum(dim=1)

    particles.velocity.add_(acceleration(), alpha=dt / 2)
    particles.position.add_(particles.velocity, alpha=dt)
    particles.velocity.add_(acceleration(), alpha=dt / 2)
    energy = (particles.mass * particles.velocity.square().sum(-1)).sum() / 2
    return Particles(particles.position, particles.velocity * 1, particles.mass), energy


def interpolate_weights(one: Any, other: Any, amount: float) -> Any:
    """Two trees of weights of one structure: the first moves to the second."""
    pytree.tree_map_(lambda a, b: a.lerp_(b, amount), one, other)
    return pytree.tree_map(lambda a, b: (a - b).abs().max(), one, other)


def interpolate_weights_inputs() -> tuple[Any, Any, float]:
    def weights() -> dict[str, Any]:
        layers = [{"w": torch.randn(2, 2), "b": torch.randn(2)} for _ in range(2)]
        return {"layers": layers, "scale": torch.rand(1)}

    return weights(), weights(), 0.25


def masked_loss(
    logits: Tensor,
    labels: Tensor,
    /,
    mask: Tensor | None = None,
    *,
    smoothing: float = 0.0,
    return_parts: bool = False,
) -> dict[str, Tensor]:
    """Positional, keyword and default arguments; which entries there are depends on them."""
    scores = logits.log_softmax(-1)
    loss = -scores.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    parts = {"plain": loss.clone()} if return_parts else {}
    if smoothing:
        loss.mul_(1 - smoothing).sub_(scores.mean(-1), alpha=smoothing)
    if mask is not None:
        loss.masked_fill_(~mask, 0.0)
        loss /= mask.sum()
    return {"loss": loss.sum(), "right": (logits.argmax(-1) == labels).float(), **parts}


def masked_loss_inputs() -> tuple[tuple[Tensor, Tensor], dict[str, Any]]:
    mask = torch.tensor([True, True, False, True])
    given = {"mask": mask, "smoothing": 0.1, "return_parts": True}
    return (torch.randn(4, 3), torch.tensor([0, 2, 1, 1])), given


class Episode:
    """Observations with advantages that are computed in place, from the last to the first."""

    def __init__(self, rewards: Tensor, values: Tensor) -> None:
        self.rewards = rewards
        self.values = values
        self.advantages = torch.zeros_like(rewards)

    def advantage(self, gamma: float, decay: float) -> Tensor:
        last = torch.zeros_like(self.rewards[0])
        for time in reversed(range(self.rewards.shape[0])):
            delta = self.rewards[time] + gamma * self.values[time + 1] - self.values[time]
            last = delta + gamma * decay * last
            self.advantages[time] = last
        return self.advantages + self.values[:-1]


def generalized_advantage(episode: Episode) -> tuple[Tensor, Tensor]:
    returns = episode.advantage(0.99, 0.95)
    episode.advantages -= episode.advantages.mean()
    episode.advantages /= episode.advantages.std() + 1e-8
    return returns, episode.advantages.max()


INPUTS = {
    "leapfrog": lambda: (Particles(torch.randn(3, 2), torch.zeros(3, 2), torch.ones(3)), 0.1),
    "interpolate_weights": interpolate_weights_inputs,
    "masked_loss": masked_loss_inputs,
    "generalized_advantage": lambda: Episode(torch.randn(4, 2), torch.randn(5, 2)),
}
