"""The size of a storage cannot be a symbol where inputs are merged into a base."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, inputs_share, program_of, view

BUG = KnownBug(
    "symbolic-storage-of-base",
    "AOTAutograd with symbolic sizes raises if it merges inputs that are no views in autograd",
    "",
    program_of(
        """
        aten.add_.Scalar(x0, 1)
        v0 = aten.add.Scalar(x1, 1)
        return (v0,)
        """,
        view(4, storage=0),
        view(4, storage=0),
    ),
    ("aot:symbolic", "aot-epilogue:symbolic"),
    ("2.13", "2.15"),
    mark=Mark(("errors",), "size_bytes_is_heap_allocated_", inputs_share),
    plausible=inputs_share,
    rank=330,
)
