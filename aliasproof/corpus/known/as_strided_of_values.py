"""The ONNX exporter takes each operand of `as_strided` for a contiguous one."""

from __future__ import annotations

from aliasproof.corpus.computed_calls import ComputedCall, computes
from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view


def _takes_part(made: ComputedCall) -> bool:
    """Whether the operand is not all of its storage, in the order of its elements."""
    return any(
        not x.is_contiguous() or x.numel() * x.element_size() < x.untyped_storage().nbytes()
        for x in made.operands.values()
    )


STRIDED = ("as_strided", "as_strided_copy", "as_strided_")

# "non-contiguous views remain unsupported", says a comment of `aten_as_strided` in
# onnxscript/function_libs/torch_lib/ops/core.py. There is no error.
BUG = KnownBug(
    "as-strided-of-values",
    "ONNX: as_strided of a transposed tensor reads it in the order of its elements",
    "",
    program_of(
        """
        v0 = aten.as_strided.default(x0, [4], [1])
        return (v0,)
        """,
        view(2, 2, strides=(1, 2)),
    ),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(
        ("values", "inputs", "errors"),
        "wrong value|input ends wrong|raises InvalidArgument",
        computes(_takes_part, *STRIDED),
        reduced=True,
    ),
    plausible=lambda program: calls(program, *STRIDED),
    rank=1230,
)
