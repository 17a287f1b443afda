"""The ONNX exporter takes each batch norm for one of inference."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

NORMS = (
    "_batch_norm_with_update",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "batch_norm",
    "native_batch_norm",
)

# "This is a temporary fix": `aten__native_batch_norm_legit_functional` sets `training = False`
# (onnxscript/function_libs/torch_lib/ops/core.py).
BUG = KnownBug(
    "batch-norm-untrained",
    "torch.onnx.export: batch_norm with training=True uses and keeps the running statistics",
    "https://github.com/microsoft/onnxscript/issues/1791",
    program_of(
        """
        v0, v1, v2, v3 = aten._batch_norm_with_update.default(x0, x1, x1, x2, x3, 0.5, 1.0)
        return (v0,)
        """,
        view(2, 1),
        view(1),
        view(1),
        view(1),
    ),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(
        ("values", "inputs", "errors"),
        "wrong value|input ends wrong|raises (Fail|InvalidGraph)",
        lambda program: calls(program, *NORMS),
        reduced=True,
    ),
    plausible=lambda program: calls(program, *NORMS),
    rank=1160,
)
