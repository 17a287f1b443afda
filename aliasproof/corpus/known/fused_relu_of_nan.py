"""With freezing, what oneDNN computes behind a convolution takes a nan for a small number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view
from aliasproof.corpus.mends import mends
from aliasproof.programs.program import Storage

aten = torch.ops.aten
_CLAMPS = {aten.relu.default, aten.clamp_min.default, aten.clamp_max.default}


@mends("torch._inductor.pattern_matcher:LoweringPatternEntry.apply")
def mended(
    original: Callable[..., Any], entry: Any, match: Any, graph: fx.Graph, node: fx.Node
) -> Any:
    """Nothing that clamps is fused into the call before it."""
    if any(matched.target in _CLAMPS for matched in match.nodes):
        return None
    return original(entry, match, graph, node)


PROGRAM = program_of(
    """
    v0 = aten.convolution.default(x0, x1, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    v1 = aten.relu.default(v0)
    return (v1,)
    """,
    view(1, 1, 1, 1),
    view(1, 1, 1, 1),
)

BUG = KnownBug(
    "fused-relu-of-nan",
    "relu(conv2d(x)) of nan is 0 with a frozen weight, hardtanh and hardsigmoid likewise",
    "",
    replace(PROGRAM, storages=(Storage(torch.float32, 1, ("nan",)), PROGRAM.storages[1])),
    ("inductor:freezing",),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "convolution", "conv2d", "conv3d", "mm", "addmm"),
    rank=1010,
)
