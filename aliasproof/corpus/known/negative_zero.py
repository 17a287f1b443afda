"""Inductor replaces `x + 0.0` by x, but -0.0 + 0.0 is 0.0."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import fx

from aliasproof.corpus.inductor_passes import replaced
from aliasproof.corpus.known_bug import KnownBug, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """Only an integer 0 is neutral for the pass."""

    def of_integers(
        original: Callable[..., Any], module: fx.GraphModule, zeros: Any, ones: Any
    ) -> None:
        integers = {node for node in zeros if not node.meta["val"].is_floating_point()}
        original(module, integers, ones)

    with replaced("fx_passes.joint_graph", "remove_no_ops", of_integers):
        yield


BUG = KnownBug(
    "negative-zero",
    "Inductor replaces x + 0.0 by x, which gives -0.0 for -0.0",
    "https://github.com/pytorch/pytorch/issues/189799",
    written(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.mul.Scalar(v0, 0.0)
        v2 = aten.zeros_like.default(v1)
        v3 = aten.add.Tensor(v1, v2)
        v4 = aten.reciprocal.default(v3)
        return (v4,)
        """,
        view(),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
)
