"""In a training graph, an input that is returned takes the place of another input's contents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch._functorch._aot_autograd.schemas import OutputType

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._functorch._aot_autograd.graph_capture:create_functionalized_fn")
def mended(
    original: Callable[..., Any], *args: Any, meta: Any, trace_joint: bool, **options: Any
) -> Any:
    """The graph returns the new contents of an input, and not the input in their place.

    In `create_functionalized_fn`, torch stores the input at the index of the output. Before the
    outputs, a training graph returns the inputs that are written outside the graph.
    """
    if meta.num_mutated_inp_runtime_indices:
        meta = replace(meta, output_info=[_as_alias(info) for info in meta.output_info])
    return original(*args, meta=meta, trace_joint=trace_joint, **options)


def _as_alias(info: Any) -> Any:
    if info.output_type is OutputType.is_input:
        return replace(info, output_type=OutputType.alias_of_input)
    return info


BUG = KnownBug(
    "returned-write-beside-another",
    "in a training graph, a written input that is returned overwrites another written input",
    "",
    program_of(
        """
        aten.add_.Scalar(x0, 1)
        aten.add_.Scalar(x1, 1)
        return (x1,)
        """,
        view(2),
        view(2, dtype=torch.int64),
    ),
    ("aot:grad",),
    ("2.13",),
    mended,
    plausible=lambda program: any(tensor.name in program.outputs for tensor in program.inputs),
    rank=280,
)
