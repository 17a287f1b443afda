"""OpenVINO's trace leaves guards that Dynamo cannot write, where a tensor has gaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._guards import tracing

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends_outside


# `fx_openvino` in openvino/frontend/pytorch/torchdynamo/backend.py calls `make_fx` with
# `tracing_mode="fake"` while Dynamo compiles. A question about the strides of a tensor with gaps is
# a guard then, on symbols that have no source in Dynamo. `x[1:, ::2]` is enough.
@mends_outside("openvino.frontend.pytorch.torchdynamo.backend:make_fx")
def mended(original: Callable[..., Any], graph: Any, **options: Any) -> Any:
    """The trace has symbols of its own, and leaves no guards."""
    trace = original(graph, **options)

    def apart(*inputs: Any) -> Any:
        with tracing(None):
            return trace(*inputs)

    return apart


BUG = KnownBug(
    "openvino-gap-guards",
    'torch.compile(backend="openvino") raises AssertionError or IndexError for tensors with gaps',
    "",
    program_of(
        """
        v0 = aten.mul.Tensor(x0, x0)
        v1 = aten.add.Tensor(v0, x0)
        return (v1,)
        """,
        view(2, 2, strides=(3, 1)),
    ),
    ("openvino",),
    ("2.13",),
    mended,
    rank=1260,
)
