"""The decompositions of sums with a number take no factor by its place."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

BUG = KnownBug(
    "scalar-with-alpha",
    "aten.add.Scalar(x, 1, 2) raises TypeError: add() takes 2 positional arguments",
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x0, 1, 2)
        return (v0,)
        """,
        view(1),
    ),
    ("aot:decompose", "inductor-fx"),
    ("2.13",),
    mark=Mark(("errors",), r"TypeError: (add|sub)\(\) takes"),
    plausible=lambda program: calls(program, "add", "add_", "sub", "sub_"),
    rank=865,
)
