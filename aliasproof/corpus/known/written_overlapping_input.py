"""A write into an input that overlaps itself raises in the epilogue."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Program


def _overlapping_input(program: Program) -> bool:
    return any(
        stride == 0 and size > 1
        for tensor in program.inputs
        for size, stride in zip(tensor.sizes, tensor.strides, strict=True)
    )


BUG = KnownBug(
    "written-overlapping-input",
    "a write into an input that overlaps itself raises when it is copied back",
    "https://github.com/pytorch/pytorch/issues/89301",
    program_of(
        """
        v0 = aten.select.int(x0, 0, 0)
        aten.add_.Scalar(v0, 0)
        return ()
        """,
        view(2, strides=(0,)),
    ),
    ("functionalize", "aot", "aot-epilogue", "fx-reinplace"),
    ("2.13", "2.15"),
    # The epilogue is a `copy_` into the input, which the documentation of `expand` refuses.
    mark=Mark(
        ("errors",),
        "more than one element of the written-to tensor refers to a single memory location",
        _overlapping_input,
    ),
    rank=220,
)
