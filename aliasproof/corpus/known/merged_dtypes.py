"""Inputs of several dtypes on one written storage are refused, also where they do not overlap."""

from __future__ import annotations

import torch

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Program


def _share_across_dtypes(program: Program) -> bool:
    return len({(tensor.storage, tensor.dtype) for tensor in program.inputs}) > len(
        {tensor.storage for tensor in program.inputs}
    )


BUG = KnownBug(
    "merged-dtypes",
    "inputs of several dtypes on one written storage are refused, even if these do not overlap",
    "https://github.com/pytorch/pytorch/issues/194747",
    program_of(
        """
        aten.add_.Scalar(x0, 1)
        return ()
        """,
        view(1, storage=0),
        view(1, storage=0),
        view(1, storage=0, offset=1, dtype=torch.int32),
    ),
    ("aot", "aot-epilogue"),
    ("2.13", "2.15"),
    # A fact of the trace tells whether they overlap, and then the refusal is documented.
    mark=Mark(
        ("errors",),
        "does not yet handle input mutations on views with different dtypes",
        _share_across_dtypes,
    ),
    plausible=_share_across_dtypes,
    rank=250,
)
