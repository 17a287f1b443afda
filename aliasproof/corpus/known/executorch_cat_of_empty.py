"""ExecuTorch leaves out empty operands of cat, and with them their dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends_outside


@mends_outside(
    "executorch.exir.passes.prune_empty_tensors_pass:"
    "PruneEmptyTensorsPass.remove_empty_tensors_from_cat"
)
def mended(original: Callable[..., None], made: Any, graph: Any, call: Any) -> None:
    """An empty operand counts for the dtype of the result."""
    dtypes = {operand.meta["val"].dtype for operand in call.args[0]}
    if len(dtypes) == 1:
        original(made, graph, call)


BUG = KnownBug(
    "executorch-cat-of-empty",
    "cat with an empty tensor of a wider dtype keeps the narrow dtype in ExecuTorch",
    "",
    program_of(
        """
        v0 = aten.cat.default([x0, x1])
        return (v0,)
        """,
        view(0, dtype=torch.float64),
        view(2),
    ),
    ("executorch",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "cat", "concat", "concatenate"),
    rank=2160,
)
