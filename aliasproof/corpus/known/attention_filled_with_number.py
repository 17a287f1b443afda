"""Inductor's 15th attention pattern hides with minus infinity what is filled with any number."""

from __future__ import annotations

import math
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, view
from aliasproof.corpus.masked_attention import masked_attention
from aliasproof.corpus.mends import attends_if


@attends_if
def mended(match: Any) -> bool:
    """Scores that are filled with another number than minus infinity are left as they are."""
    fulls = [node for node in match.nodes if node.target is torch.ops.aten.full.default]
    return all(node.args[1] == -math.inf for node in fulls)


BUG = KnownBug(
    "attention-filled-with-number",
    "scores that a mask fills with a number such as 0 are filled with minus infinity",
    "",
    masked_attention(view(2, 2, dtype=torch.bool), "999.0"),
    ("inductor-fx",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "eq") and calls(program, "bmm"),
    rank=549,
)
