"""OpenVINO's trace leaves guards that Dynamo cannot write, where a tensor has gaps."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view

# `fx_openvino` in openvino/frontend/pytorch/torchdynamo/backend.py calls `make_fx` with
# `tracing_mode="fake"` while Dynamo compiles. A question about the strides of a tensor with gaps is
# a guard then, on symbols that have no source in Dynamo. `x[1:, ::2]` is enough.
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
    mark=Mark(("errors",), "raises (AssertionError: sources must not be empty|IndexError: list)"),
    rank=1260,
)
