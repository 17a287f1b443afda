"""Inductor removes a copy of an input that is written before the copy is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aliasproof.corpus.inductor_passes import hidden_from_noops
from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import PASSES, mends

aten = torch.ops.aten


@mends(f"{PASSES}.post_grad:remove_noop_ops")
def mended(original: Callable[..., Any], graph: fx.Graph) -> None:
    """A copy of an input that the graph writes stays.

    The pass takes an op for a no-op if its result equals its operand. It does not ask how long.
    """
    from torch._inductor.fx_passes.post_grad import noop_registry  # noqa: PLC0415
    from torch._inductor.fx_utils import get_node_storage  # noqa: PLC0415

    writes = graph.find_nodes(op="call_function", target=aten.copy_.default)
    written_storages = {get_node_storage(call.args[0]) for call in writes}
    restores = []
    for node in graph.nodes:
        # `cat` has a function in place of an index, but one operand is no `cat` by now.
        _, index = noop_registry.get(node.target, (None, None))
        source = node.args[index] if isinstance(index, int) else None
        storage = get_node_storage(source) if isinstance(source, fx.Node) else None
        if storage in written_storages and storage != get_node_storage(node):
            restores.append(hidden_from_noops(node))
    original(graph)
    for restore in restores:
        restore()


BUG = KnownBug(
    "copy-of-written-input",
    "Inductor removes a clone of an input that is written before the clone is read",
    "https://github.com/pytorch/pytorch/issues/198131",
    program_of(
        """
        v0 = aten.clone.default(x0)
        aten.add_.Scalar(x0, 1)
        aten.copy_.default(x1, v0)
        return ()
        """,
        view(),
        view(),
    ),
    ("inductor-fx",),
    ("2.13",),
    mended,
    rank=410,
)
