"""Inductor replaces `x + 0.0` by x, but -0.0 + 0.0 is 0.0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import PASSES, mends


@mends(f"{PASSES}.joint_graph:remove_no_ops")
def mended(original: Callable[..., Any], module: fx.GraphModule, zeros: Any, ones: Any) -> None:
    """Only an integer 0 in sums of integers is neutral for the pass."""
    integers = {node for node in zeros if not any(map(_has_signed_zeros, (node, *node.users)))}
    original(module, integers, ones)


def _has_signed_zeros(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex()


BUG = KnownBug(
    "negative-zero",
    "Inductor replaces x + 0.0 by x, which gives -0.0 for -0.0",
    "https://github.com/pytorch/pytorch/issues/189799",
    program_of(
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
    rank=480,
)
