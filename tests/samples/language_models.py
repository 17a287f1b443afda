"""Parts of language models, in the manner of `transformers`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

torch.manual_seed(0)


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


INPUTS = {
    "routed_experts": lambda: torch.randn(2, 3, 4),
    "selective_scan": lambda: (torch.randn(2, 3, 4), torch.zeros(2, 4, 3)),
    "filter_logits": lambda: (torch.randn(2, 8), torch.tensor([[1, 4], [0, 7]]), 1.3, 5, 0.8),
    "accept_draft": accept_draft_inputs,
}
