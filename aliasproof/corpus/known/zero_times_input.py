"""Inductor folds `x * 0` to 0, also where x can be inf or nan."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from aliasproof.corpus.inductor_passes import replaced
from aliasproof.corpus.known_bug import KnownBug, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The rule is left to integers, as in torch 2.15 (pytorch/pytorch#187580)."""

    def of_integers(original: Callable[..., Any], folder: Any) -> None:
        original(folder)
        for node in list(folder.node_replacements):
            dtype = node.meta["val"].dtype
            if dtype.is_floating_point or dtype.is_complex:
                del folder.node_replacements[node]

    name = "UniformValueConstantFolder._add_peephole_patterns"
    with replaced("fx_passes.joint_graph", name, of_integers):
        yield


BUG = KnownBug(
    "zero-times-input",
    "Inductor replaces x * 0 by 0, but inf * 0 is nan",
    "https://github.com/pytorch/pytorch/pull/187580",
    written(
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
)
