"""Inductor rewrites `x / c - (x / c).amax()` to `(x - x.amax()) / c`, which wraps for uint8."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from aliasproof.corpus.inductor_passes import pattern_needs
from aliasproof.corpus.known_bug import KnownBug, calls, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The rewrite, which is made for softmax, is left to floating point numbers."""

    def floating(match: object) -> bool:
        value = match.kwargs["inp"].meta["val"]  # type: ignore[attr-defined]
        return bool(value.is_floating_point())

    handlers = ("div_softmax_pattern", "mul_softmax_pattern")
    with pattern_needs("joint_graph", handlers, floating):
        yield


BUG = KnownBug(
    "softmax-of-integers",
    "Inductor rewrites x / c - (x / c).amax() so that it subtracts in uint8",
    "",
    written(
        """
        v0 = aten.div.Tensor(x0, x1)
        v1 = aten.amax.default(v0, [0], True)
        v2 = aten.sub.Tensor(v0, v1)
        return (v2,)
        """,
        view(2, dtype=torch.uint8),
        view(),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "amax"),
)
