"""A new tensor that is set to the storage of an input becomes that input."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

BUG = KnownBug(
    "set-to-input",
    "y.set_(x) of a new tensor y is the input x itself, or a tensor that shares nothing with x",
    "",
    program_of(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.set_.source_Tensor(v0, x0)
        return (v1,)
        """,
        view(1),
    ),
    ("aot",),
    ("2.13",),
    mark=Mark(
        ("objects", "aliasing"),
        "became an input|lost alias",
        lambda program: calls(program, "set_"),
    ),
    plausible=lambda program: calls(program, "set_"),
    rank=945,
)
