"""The backend of OpenVINO for `torch.compile` keeps writes inside of its partitions."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view, writes

# `fx_openvino` in openvino/frontend/pytorch/torchdynamo/backend.py traces with `make_fx`, which
# functionalizes nothing, and `OperatorSupport` beside it lists `add_`, `copy_`, `mul_` and more. A
# partition writes values of its own, and its views are copies. With the option `aot_autograd`, the
# graph has no writes.
BUG = KnownBug(
    "openvino-writes-lost",
    'torch.compile(backend="openvino") loses in-place writes to inputs, and through views',
    "",
    program_of(
        """
        aten.add_.Tensor(x0, x0)
        v0 = aten.mul.Tensor(x0, x0)
        return (v0,)
        """,
        view(2),
    ),
    ("openvino",),
    ("2.13",),
    mark=Mark(("inputs", "values"), "input ends wrong|wrong value", writes),
    plausible=writes,
    rank=1170,
)
