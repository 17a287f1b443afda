"""`Noted`: the metadata that a graph has of a tensor, beside the tensor's location in a run.

Each of the functions at the end compares one property. It returns the property as noted and as in
the run, if the two differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import fx

from aliasproof.ir.eager_call import tensors_in
from aliasproof.oracles.location import Location
from aliasproof.oracles.stage_run import StageRun

Difference: TypeAlias = tuple[object, object]
Differs: TypeAlias = Callable[[torch.Tensor, Location], Difference | None]


class Noted(NamedTuple):
    """A tensor of a node: the metadata of it, and its location in the run.

    `knows_storage` says whether the metadata comes from one run on fakes, so that its offset and
    storage mean something. A trace on real tensors notes each value on a fake in a mode of its own
    (`extract_val` in `torch/fx/experimental/proxy_tensor.py`), with size, strides and dtype only.
    """

    node: fx.Node
    meta: torch.Tensor
    location: Location
    knows_storage: bool


def noted_tensors(run: StageRun) -> list[Noted]:
    """All tensors that the graph has metadata of; lists and tuples are read in order.

    A node whose metadata has another number of tensors than its value is left out.
    """
    triples = []
    for node in run.nodes:
        metas = list(tensors_in(node.node.meta.get("val"))) if node.node.op != "output" else []
        if len(metas) == len(node.locations):
            pairs = zip(metas, node.locations, strict=True)
            triples += [(node.node, meta, location) for meta, location in pairs]
    # If two fakes have the same mode, a run on fakes made all of them.
    modes = [id(getattr(meta, "fake_mode", None)) for _, meta, _ in triples]
    knows_storage = len(set(modes)) < len(modes)
    return [Noted(node, meta, location, knows_storage) for node, meta, location in triples]


def dtype(meta: torch.Tensor, location: Location) -> Difference | None:
    return None if meta.dtype == location.dtype else (str(meta.dtype), str(location.dtype))


def sizes(meta: torch.Tensor, location: Location) -> Difference | None:
    return _lists(meta.shape, location.sizes)


def strides(meta: torch.Tensor, location: Location) -> Difference | None:
    """Compared where the sizes agree, and only for dims of size 2 or more."""
    if 0 in location.sizes or sizes(meta, location) is not None:
        return None
    # An index along a dim of size 1 is always 0, so its stride is never used.
    used = [dim for dim, size in enumerate(location.sizes) if size != 1]
    ours, theirs = meta.stride(), location.strides
    differ = _lists([ours[dim] for dim in used], [theirs[dim] for dim in used])
    return differ and _lists(ours, theirs)


def offset(meta: torch.Tensor, location: Location) -> Difference | None:
    """The offset in the storage, of tensors with elements."""
    if 0 in location.sizes:
        return None
    # An offset may be symbolic, as sizes and strides may.
    differ = _lists([meta.storage_offset()], [location.offset])
    return differ and (meta.storage_offset(), location.offset)


def lazy_bits(meta: torch.Tensor, location: Location) -> Difference | None:
    """Whether a read conjugates or negates the values."""
    ours = meta.is_conj(), meta.is_neg()
    theirs = location.conj, location.neg
    return None if ours == theirs else (list(ours), list(theirs))


def _lists(noted: Sequence[Any], real: Sequence[int]) -> Difference | None:
    """Both lists, if they differ. A symbol equals any number."""
    if len(noted) == len(real) and all(
        one == other for one, other in zip(noted, real, strict=True) if isinstance(one, int)
    ):
        return None
    return [note if isinstance(note, int) else str(note) for note in noted], list(real)
