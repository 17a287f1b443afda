"""A write by a mask through a permuted view of a view cannot be functionalized."""

from __future__ import annotations

import torch

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

BUG = KnownBug(
    "permuted-view-filled",
    "masked_fill_ through a permuted view of a view raises: Cannot view a tensor",
    "https://github.com/pytorch/pytorch/pull/172830",
    program_of(
        """
        v0 = aten.view.default(x0, [2, 2, 2])
        v1 = aten.permute.default(v0, [0, 2, 1])
        aten.masked_fill_.Scalar(v1, x1, 0)
        return ()
        """,
        view(4, 2),
        view(dtype=torch.bool),
    ),
    ("aot",),
    ("2.13",),
    mark=Mark(
        ("errors",),
        r"ValueError: Cannot view a tensor with shape",
        lambda program: calls(program, "masked_fill_") and calls(program, "permute", "transpose"),
    ),
    plausible=lambda program: calls(program, "masked_fill_"),
    rank=35,
)
