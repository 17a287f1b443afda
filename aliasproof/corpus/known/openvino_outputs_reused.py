"""What a function returns that OpenVINO compiled is overwritten by the next call."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view

# `openvino_execute` in openvino/frontend/pytorch/torchdynamo/execute.py calls one infer request
# with `share_outputs=True`, and returns tensors over the memory of its outputs.
BUG = KnownBug(
    "openvino-outputs-reused",
    'torch.compile(backend="openvino") returns memory that its next call overwrites',
    "",
    program_of(
        """
        v0 = aten.mul.Tensor(x0, x0)
        v1 = aten.add.Tensor(v0, x0)
        return (v1,)
        """,
        view(2),
    ),
    ("openvino:kept-outputs", "openvino-aot:kept-outputs"),
    ("2.13",),
    mark=Mark(("aliasing", "values"), "new alias between output and output|wrong value"),
    rank=1180,
)
