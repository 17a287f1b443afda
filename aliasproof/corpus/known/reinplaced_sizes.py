"""FX reinplacing takes the size of a tensor in a graph for a tensor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

import torch
from torch.fx.passes import reinplace
from torch.utils import _pytree

from aliasproof.corpus.known_bug import KnownBug, program_of, view


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The pass compares the layouts of tensors only.

    Torch asks each result of a call on a tensor for its number of elements, also an int.
    """

    def leaves(tree: object) -> list[object]:
        return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]

    pytree = SimpleNamespace(**{**vars(_pytree), "tree_leaves": leaves})
    with mock.patch.object(reinplace, "pytree", pytree):
        yield


BUG = KnownBug(
    "reinplaced-sizes",
    "FX reinplacing fails on a graph that reads the size of a tensor",
    "",
    program_of(
        """
        v0 = aten.flatten.using_ints(x0)
        return ()
        """,
        view(1, 4),
    ),
    ("fx-reinplace:symbolic",),
    ("2.13", "2.15"),
    mended,
    rank=340,
)
