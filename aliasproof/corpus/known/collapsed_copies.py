"""Inductor removes two copies of one tensor that are both returned."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import fx

from aliasproof.corpus.inductor_passes import replaced
from aliasproof.corpus.known_bug import KnownBug, view, written


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The pass runs once for each copy, so that it knows what is returned by then.

    Torch looks up which storages are returned before it removes anything. After the first copy is
    removed, the tensor itself is returned.
    """
    with replaced("fx_passes.post_grad", "remove_noop_ops", _one_by_one):
        yield


def _one_by_one(original: Callable[..., Any], graph: fx.Graph) -> None:
    from torch._inductor.fx_passes.post_grad import noop_registry  # noqa: PLC0415

    hidden = [
        (node, node.target)
        for node in graph.nodes
        if node.target in noop_registry and any(use.op == "output" for use in node.users)
    ]
    for node, _ in hidden:
        node.target = _not_a_noop
    original(graph)
    for node, target in hidden:
        node.target = target
        original(graph)


def _not_a_noop() -> None:
    raise AssertionError("only hides a node from the pass")


BUG = KnownBug(
    "collapsed-copies",
    "Inductor returns one tensor twice for two clones of it",
    "",
    written(
        """
        v0 = aten.add.Scalar(x0, 1)
        v1 = aten.clone.default(v0)
        v2 = aten.clone.default(v0)
        return v1, v2
        """,
        view(),
    ),
    ("inductor-fx",),
    ("2.13", "2.15"),
    mended,
)
