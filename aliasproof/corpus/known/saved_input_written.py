"""Autograd finds an input written that the compiled function has saved for its backward graph."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view

BUG = KnownBug(
    "saved-input-written",
    "x.cos_() raises in the backward pass: x was saved, and then modified by an inplace operation",
    "https://github.com/pytorch/pytorch/issues/185497",
    program_of(
        """
        aten.cos_.default(x0)
        return ()
        """,
        view(),
    ),
    ("inductor-fx:grad",),
    ("2.13",),
    mark=Mark(("errors",), "needed for gradient computation has been modified by an inplace"),
    rank=810,
)
