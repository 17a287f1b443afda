"""Inductor folds `x * 0` to 0, also where x can be inf or nan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import PASSES, mends


@mends(f"{PASSES}.joint_graph:UniformValueConstantFolder._add_peephole_patterns")
def mended(original: Callable[..., Any], folder: Any) -> None:
    """The rule is left to integers, as in torch 2.15 (pytorch/pytorch#187580)."""
    original(folder)
    for node in list(folder.node_replacements):
        dtype = node.meta["val"].dtype
        if dtype.is_floating_point or dtype.is_complex:
            del folder.node_replacements[node]


BUG = KnownBug(
    "zero-times-input",
    "Inductor replaces x * 0 by 0, but inf * 0 is nan",
    "https://github.com/pytorch/pytorch/pull/187580",
    program_of(
        """
        v0 = aten.add.Scalar(x0, float("inf"))
        v1 = aten.mul.Scalar(v0, 0)
        return (v1,)
        """,
        view(),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    rank=560,
)
