"""Inductor makes `as_strided_scatter` a write into a clone, which has another storage."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from corpus.inductor_passes import replaced
from corpus.known_bug import KnownBug, calls, view, written

aten = torch.ops.aten


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The whole storage is cloned, so the strides and offset of the call mean the same.

    Torch clones the tensor: the clone starts at offset 0, without gaps.
    """
    with replaced("fx_passes.reinplace", "_decompose_scatter_mutating", _decompose):
        yield


def _decompose(original: Callable[..., Any], graph: fx.Graph, node: fx.Node) -> fx.Node:
    from torch._inductor.fx_passes import reinplace  # noqa: PLC0415

    base, *rest = node.args
    assert isinstance(base, fx.Node)
    views: Any = rest[1]
    if node.target is reinplace._generalized_scatter and any(
        each.target is aten.as_strided.default for each in views
    ):
        value = base.meta["val"]
        length = value.untyped_storage().nbytes() // value.itemsize
        call = reinplace.graph_call_function
        storage = call(graph, aten.as_strided.default, base, [length], [1], 0)
        copy = call(graph, aten.clone.default, storage)
        layout = (list(value.shape), list(value.stride()), value.storage_offset())
        node.update_arg(0, call(graph, aten.as_strided.default, copy, *layout))
        node.target = reinplace._inplace_generalized_scatter
    return original(graph, node)  # type: ignore[no-any-return]


BUG = KnownBug(
    "as-strided-scatter-of-clone",
    "Inductor applies the strides and offset of as_strided_scatter to a clone",
    "https://github.com/pytorch/pytorch/pull/186150",
    written(
        """
        v0 = aten.as_strided_scatter.default(x0, x1, [1], [1], 0)
        return (v0,)
        """,
        view(1, offset=1),
        view(1),
    ),
    ("inductor-reinplace", "inductor-fx"),
    ("2.13", "2.15"),
    mended,
    plausible=lambda program: calls(program, "as_strided_scatter", "as_strided", "as_strided_"),
)
