"""How the arguments of random ops are drawn.

Every drawer takes the `Draft` of the call so far and gives one argument, or raises `NoChoice`.
"""

from __future__ import annotations

import torch

from aliasproof.eager.rounding import readable
from aliasproof.generators.draft import Draft
from aliasproof.generators.tensor_arguments import broadcasts, tensor_like
from aliasproof.ir.program import Argument


def training(draft: Draft) -> Argument:
    """Whether random numbers are drawn at all; mostly they are."""
    return not draft.pick.chance(20)


def inner_probability(draft: Draft) -> Argument:
    """A probability other than 0 and 1."""
    return draft.pick.one((0.5, 0.25))


def limit(draft: Draft) -> Argument:
    """What the integers drawn stay below; few, so that they can be indices."""
    return draft.pick.one((2, 3, 10, 100))


def probabilities(draft: Draft) -> Argument:
    """A tensor of probabilities that broadcasts to the first tensor's shape."""
    shape = draft.self.shape

    def fits(tensor: torch.Tensor) -> bool:
        if not tensor.is_floating_point() or not broadcasts(tensor.shape, shape):
            return False
        values = readable(tensor)
        return bool(((values >= 0) & (values <= 1)).all())

    return tensor_like(draft, fits)


def noise(draft: Draft) -> Argument:
    """A tensor like the first one, to write the noise into."""
    shape, dtype = draft.self.shape, draft.self.dtype
    return tensor_like(draft, lambda t: t.dtype == dtype and t.shape == shape)
