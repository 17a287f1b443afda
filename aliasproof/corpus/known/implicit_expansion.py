"""The lowering of `expand_copy` does not know an argument of its operator."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

BUG = KnownBug(
    "implicit-expansion",
    "expand_copy with implicit=True raises: the lowering takes no such argument",
    "",
    program_of(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.expand_copy.default(v0, [1, 1], implicit=True)
        return (v1,)
        """,
        view(1),
    ),
    ("inductor",),
    ("2.13",),
    mark=Mark(
        ("errors",),
        r"unexpected keyword argument",
        lambda program: calls(program, "expand_copy"),
    ),
    plausible=lambda program: calls(program, "expand_copy"),
    rank=887,
)
