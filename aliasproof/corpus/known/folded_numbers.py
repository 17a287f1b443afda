"""Inductor folds constants as if each had dimensions, so a number changes the dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import PASSES, mends


@mends(f"{PASSES}.joint_graph:UniformValueConstantFolder._deduce_value")
def mended(original: Callable[..., Any], folder: Any, node: fx.Node) -> Any:
    """Each folded value has the dtype that the graph notes for it.

    Torch folds each constant as a tensor of size [1]. A tensor without dimensions does not promote
    the dtype of others, and one of size [1] does.
    """
    folded, noted = original(folder, node), node.meta.get("val")
    if isinstance(folded, torch.Tensor) and isinstance(noted, torch.Tensor):
        return folded.to(noted.dtype)
    return folded


BUG = KnownBug(
    "folded-numbers",
    "Inductor folds full((2,), 100, dtype=int8) + full((), 100) in int64",
    "",
    program_of(
        """
        v0 = aten.full_like.default(x0, 100)
        v1 = aten.full_like.default(x1, 100)
        v2 = aten.add.Tensor(v0, v1)
        v3 = aten.gt.Scalar(v2, 0)
        return (v3,)
        """,
        view(2, dtype=torch.int8),
        view(dtype=torch.int64),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    rank=450,
)
