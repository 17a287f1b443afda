"""Dynamo drops a write to an input that is one number of dtype float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._dynamo.output_graph:OutputGraph.remove_tensorify_specialized_graphargs")
def mended(original: Callable[..., None], graph: Any) -> None:
    """No node is removed from the graph because it is taken for a Python float.

    Torch represents such a float as a tensor like this one. It removes each node with that tensor
    and without users, and an in-place call returns the tensor that it wrote.
    """


BUG = KnownBug(
    "write-to-float64-number",
    "Dynamo removes a write to an input without dimensions of dtype float64",
    "",
    program_of(
        """
        aten.add_.Scalar(x0, 1)
        return ()
        """,
        view(dtype=torch.float64),
    ),
    ("aot-eager",),
    ("2.13",),
    mended,
    plausible=lambda program: any(
        tensor.sizes == () and tensor.dtype is torch.float64 for tensor in program.inputs
    ),
    rank=310,
)
