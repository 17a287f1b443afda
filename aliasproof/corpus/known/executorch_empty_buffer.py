"""The runtime does not load a program whose only buffer with contents is empty."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view

BUG = KnownBug(
    "executorch-empty-buffer",
    "a mutable buffer without elements ends in 'No segments in program'",
    "",
    program_of(
        """
        v0 = aten.neg_.default(x0)
        return (v0,)
        """,
        view(0),
    ),
    ("executorch:buffers",),
    ("2.13",),
    mark=Mark(("errors",), "No segments in program"),
    rank=2200,
)
