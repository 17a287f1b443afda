"""Two returned views of one new tensor become copies under Inductor."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Program
from aliasproof.ir.regions import dense_strides


def _odd_stride(program: Program) -> bool:
    """Whether a dimension of one element has another stride than in a dense tensor."""
    return any(
        size == 1 and stride != dense
        for tensor in program.inputs
        for size, stride, dense in zip(
            tensor.sizes, tensor.strides, dense_strides(tensor.sizes), strict=True
        )
    )


BUG = KnownBug(
    "views-copied-apart",
    "two returned views of a new tensor share no memory if a dimension of one element has a stride"
    " that fits no order",
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 1)
        v1 = aten.select.int(v0, 0, 0)
        v2 = aten.select.int(v0, 0, 0)
        return v2, v1
        """,
        view(1, 2, 2, strides=(1, 1, 2)),
    ),
    ("inductor",),
    ("2.13",),
    # The order of strides that outputs must have is not the one of the buffer that they view.
    mark=Mark(("aliasing",), r"lost alias|no longer", _odd_stride, reduced=True),
    rank=855,
)
