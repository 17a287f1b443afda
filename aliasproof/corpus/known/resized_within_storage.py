"""Functionalization forgets the storage of a tensor that `resize_` makes larger."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view
from aliasproof.ir.program import Program


def _resizes(program: Program) -> bool:
    return calls(program, "resize_", "resize_as_")


BUG = KnownBug(
    "resized-within-storage",
    "resize_ to more elements, which the storage has, loses the offset and the added elements",
    "",
    program_of(
        """
        aten.resize_.default(x0, [3])
        return (x0,)
        """,
        view(2, offset=1),
        bytes_of={0: 16},
    ),
    ("functionalize", "aot", "aot-epilogue"),
    ("2.13", "2.15"),
    # The functional `resize` is a clone of the tensor, resized: the rest is new memory. Where the
    # tensor is a view, functionalization raises. A smaller size becomes an `as_strided`, as it is
    # in eager, but functionalization makes no such view beyond what the tensor has.
    # A view of a tensor that was resized raises too.
    mark=Mark(
        ("values", "inputs", "metadata", "errors"),
        r"^(?!raises)|to a storage on different device \"meta\"",
        _resizes,
        reduced=True,
    ),
    plausible=_resizes,
    rank=920,
)
