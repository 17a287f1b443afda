"""A training script as a user has it: sharpness-aware minimization, whose steps are compiled."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SAM(torch.optim.Optimizer):
    """Uses the gradients at the worst place near the parameters."""

    def __init__(self, model: nn.Module, lr: float = 0.05, rho: float = 0.05) -> None:
        super().__init__(model.parameters(), {"lr": lr, "rho": rho})
        for p in self.param_groups[0]["params"]:
            self.state[p]["old"] = torch.zeros_like(p)

    @torch.no_grad()
    def climb(self) -> None:
        """Go to the worst place near by, and remember where we were."""
        group = self.param_groups[0]
        norm = torch.stack([p.grad.norm() for p in group["params"]]).norm()
        for p in group["params"]:
            old = p.clone()
            p.add_(p.grad * (group["rho"] / norm))
            self.state[p]["old"].copy_(old)

    @torch.no_grad()
    def descend(self) -> None:
        """Go back, and do the step with the gradients of the worst place."""
        group = self.param_groups[0]
        for p in group["params"]:
            p.copy_(self.state[p]["old"] - group["lr"] * p.grad)


def batch_of(size: int) -> tuple[Tensor, Tensor]:
    """Points, and whether they are within a circle."""
    points = torch.randn(size, 2)
    return points, (points.norm(dim=1) < 1).long()


def main(steps: int = 3) -> None:
    """Print the loss of each step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = SAM(model)
    climb = torch.compile(optimizer.climb)
    for _ in range(steps):
        points, labels = batch_of(32)
        loss = F.cross_entropy(model(points), labels)
        loss.backward()
        climb()
        optimizer.zero_grad()
        F.cross_entropy(model(points), labels).backward()
        optimizer.descend()
        optimizer.zero_grad()
        print(f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
