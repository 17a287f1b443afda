"""Inductor writes in place into a tensor that overlaps itself."""

from __future__ import annotations

import torch
from torch import fx

from aliasproof.corpus.inductor_passes import copy_operand, reinplaceable
from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import before_reinplacing


@before_reinplacing
def mended(graph: fx.Graph) -> None:
    """A tensor that overlaps itself is copied, as the functional operator does.

    Torch 2.14 does not put such calls in place (pytorch/pytorch#184488).
    """
    for node, index in reinplaceable(graph):
        value = node.args[index].meta.get("val")
        if isinstance(value, torch.Tensor) and torch._debug_has_internal_overlap(value) == 1:
            copy_operand(node, index, memory_format=torch.contiguous_format)


BUG = KnownBug(
    "reinplaced-overlap",
    "Inductor puts index_put in place on an expanded tensor, so each write shows in all copies",
    "https://github.com/pytorch/pytorch/issues/183986",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 1)
        v1 = aten.expand.default(v0, [2, 2])
        v2 = aten.index_put.default(v1, [x1], x2)
        return (v2,)
        """,
        view(2),
        view(1, dtype=torch.int64),
        view(2),
    ),
    ("inductor-reinplace", "inductor-fx"),
    ("2.13",),
    mended,
    rank=500,
)
