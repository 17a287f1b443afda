"""`as_strided` counts from the start of the storage, and a functional base has another storage."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view
from aliasproof.ir.program import Program


def _as_strided(program: Program) -> bool:
    # `fill_diagonal_` calls it at the offset of its tensor.
    return calls(program, "as_strided", "as_strided_", "as_strided_scatter", "fill_diagonal_")


BUG = KnownBug(
    "as-strided-of-new-base",
    "as_strided on a written tensor is applied to a new storage without offset and surroundings",
    "https://github.com/pytorch/pytorch/issues/120585",
    program_of(
        """
        aten.add_.Scalar(x0, 0)
        v0 = aten.as_strided.default(x0, [1], [0], 1)
        aten.add_.Scalar(v0, 1)
        return ()
        """,
        view(2, offset=1),
    ),
    ("functionalize", "aot", "aot-epilogue", "fx-reinplace"),
    ("2.13", "2.15"),
    # In a reduced program, `as_strided` is there because nothing simpler shows the violation.
    mark=Mark(
        ("values", "inputs", "metadata", "errors"),
        r"^wrong|^input ends|^bytes outside|setStorage|as_strided_scatter: sizes",
        _as_strided,
        reduced=True,
    ),
    rank=240,
)
