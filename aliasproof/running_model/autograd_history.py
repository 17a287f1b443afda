"""What autograd knows of the tensors that a run leaves: leaves, results, results of before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch

from aliasproof.oracles.observation import Observation

# The node of autograd that computed a tensor, and which of its results that is. None: a leaf.
End: TypeAlias = tuple[torch.autograd.graph.Node, int] | None
LEAF, RESULT, FORBIDDEN = "leaf", "result of the run", "forbidden"


def end_of(tensor: torch.Tensor) -> End:
    """The node behind a tensor. Autograd may forbid to ask for it (`RuntimeError`)."""
    return None if tensor.grad_fn is None else (tensor.grad_fn, tensor.output_nr)


def histories(run: Observation, ends: Sequence[End]) -> dict[str, str]:
    """The histories of all tensors that require gradients after a run, by place.

    `ends` are those of the inputs before it.
    """
    known = {end: f"history of input {index}" for index, end in enumerate(ends) if end}
    named = {}
    for place, tensor in run.tensors().items():
        if tensor.requires_grad:
            try:
                end = end_of(tensor)
                named[place] = LEAF if end is None else known.get(end, RESULT)
            except RuntimeError:  # some views, after a write to their base
                named[place] = FORBIDDEN
    return named


def numbers_for(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gradients to start a backward pass from these tensors, with another number in each place."""
    numbers = {}
    for place, tensor in tensors.items():
        counted = torch.arange(tensor.numel()).remainder(5).add(1).reshape(tensor.shape)
        numbers[place] = counted.to(tensor)
    return numbers
