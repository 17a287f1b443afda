"""Inductor's 15th attention pattern takes `mask != 0` for `mask == 1`."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, view
from aliasproof.corpus.masked_attention import masked_attention
from aliasproof.corpus.mends import attends_if


@attends_if
def mended(match: Any) -> bool:
    """A mask that compares numbers with 0 is left as it is: there may be others than 0 and 1."""
    compares = [node for node in match.nodes if node.target is torch.ops.aten.eq.Scalar]
    return all(node.args[0].meta["val"].dtype == torch.bool for node in compares)


BUG = KnownBug(
    "attention-mask-of-numbers",
    "a mask that hides where it is 0 becomes one that keeps where it is 1: a 2 is hidden, too",
    "",
    masked_attention(view(2, 2), 'float("-inf")'),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "eq") and calls(program, "bmm"),
    rank=553,
)
