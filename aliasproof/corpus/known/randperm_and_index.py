"""Inductor's pattern of a tensor that is indexed by a permutation fails on what it matches."""

from __future__ import annotations

from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import narrows, together


def without_permutation(match: Any) -> bool:
    """The pattern is left out.

    The whole permutation is the index, so the example that torch traces has no slice, and its
    argument for the length of the slice is not found in the match.
    """
    return all(node.target is not torch.ops.aten.randperm.default for node in match.nodes)


BUG = KnownBug(
    "randperm-and-index",
    "index = torch.randperm(len(x)); return x[index], index: cannot be compiled",
    "",
    program_of(
        """
        v0 = aten.randperm.default(3, pin_memory=False)
        v1 = aten.index.Tensor(x0, [v0])
        return (v1, v0)
        """,
        view(3),
    ),
    ("inductor-fx",),
    ("2.13",),
    together(
        narrows("joint_graph", "")(without_permutation),
        narrows("post_grad", "")(without_permutation),
    ),
    plausible=lambda program: calls(program, "randperm"),
    rank=1060,
)
