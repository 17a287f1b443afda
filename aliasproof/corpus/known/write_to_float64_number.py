"""Dynamo drops a write to an input that is one number of dtype float64."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import torch

from aliasproof.corpus.known_bug import KnownBug, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """No node is removed from the graph because it is taken for a Python float.

    Torch represents such a float as a tensor like this one. It removes each node with that tensor
    and without users, and an in-place call returns the tensor that it wrote.
    """
    from torch._dynamo.output_graph import OutputGraph  # noqa: PLC0415 - takes two seconds

    name = "remove_tensorify_specialized_graphargs"
    with mock.patch.object(OutputGraph, name):
        yield


BUG = KnownBug(
    "write-to-float64-number",
    "Dynamo removes a write to an input without dimensions of dtype float64",
    "",
    written(
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
        each.sizes == () and each.dtype is torch.float64 for each in program.inputs
    ),
)
