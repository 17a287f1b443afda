"""The decomposition of `channel_shuffle` returns its operand where there is one group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import DECOMPOSITIONS, mends

aten = torch.ops.aten


@mends(*DECOMPOSITIONS, keys=(aten.channel_shuffle.default,))
def mended(original: Callable[..., Any], operand: Any, groups: int) -> Any:
    """The result is new. Torch views, transposes and views again: with one group, all are views."""
    return original(operand, groups).clone()


BUG = KnownBug(
    "one-group-shuffled",
    "channel_shuffle with one group sees a later write to its operand",
    "",
    program_of(
        """
        v0 = aten.channel_shuffle.default(x0, 1)
        aten.zero_.default(x0)
        return (v0,)
        """,
        view(1, 1, 1),
    ),
    ("aot:decompose", "inductor-fx"),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "channel_shuffle"),
    rank=895,
)
