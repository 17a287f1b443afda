"""The backward graph computes a value anew from an input that the forward graph has written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends

aten = torch.ops.aten


@mends("torch._functorch.partitioners:force_save_bw_mutation_src")
def mended(original: Callable[..., Any], joint: fx.GraphModule) -> Any:
    """What is computed from an input that the graph writes is saved for the backward graph.

    That is the correction of pytorch/pytorch#197039. Torch recomputes what is cheap, and takes
    each input to be the same in the backward pass.
    """
    from torch.utils.checkpoint import CheckpointPolicy  # noqa: PLC0415

    for write in joint.graph.find_nodes(op="call_function", target=aten.copy_.default):
        for reader in _readers(write.args[0]):
            reader.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return original(joint)


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """The calls that read the data of a tensor or of its views, and make a new tensor."""
    from torch.fx.passes.reinplace import _is_view_op  # noqa: PLC0415

    for use in node.users:
        if _is_view_op(use.target):
            yield from _readers(use)
        elif use.op == "call_function" and use.target is not aten.copy_.default:
            yield use


BUG = KnownBug(
    "recomputed-from-written",
    "gradients are computed from an input after the forward pass has written it",
    "https://github.com/pytorch/pytorch/pull/197039",
    program_of(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.mul.Tensor(v0, x1)
        aten.add_.Scalar(x0, 1)
        return (v1,)
        """,
        view(dtype=torch.int64),
        view(),
    ),
    ("inductor-fx:grad", "aot-eager:grad"),
    ("2.13", "2.15"),
    mended,
    rank=640,
)
