"""Inductor folds `x * 0` to 0, also where x can be inf or nan."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from corpus.inductor_passes import replaced
from corpus.known_bug import KnownBug, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """No product is replaced because one factor is 0. That is only right for integers.

    That is stricter than pytorch/pytorch#187580, which leaves the rule to integers.
    """

    def nothing(original: Callable[..., Any], folder: Any) -> None:
        del original, folder

    name = "UniformValueConstantFolder._add_peephole_patterns"
    with replaced("fx_passes.joint_graph", name, nothing):
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
