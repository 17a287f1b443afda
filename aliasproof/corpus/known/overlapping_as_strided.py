"""A write through `as_strided` with a stride of 0 is refused by its inverse."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view
from aliasproof.ir.program import Program


def _as_strided(program: Program) -> bool:
    return calls(program, "as_strided", "as_strided_")


BUG = KnownBug(
    "overlapping-as-strided",
    "a write through as_strided with a stride of 0 raises in as_strided_scatter",
    # Maintainers make other overlapping writes through `as_strided` raise, too.
    "https://github.com/pytorch/pytorch/issues/174371",
    program_of(
        """
        v0 = aten.as_strided.default(x0, [2], [0])
        aten.zero_.default(v0)
        return ()
        """,
        view(),
    ),
    # The contract of `functionalize` and `fx-reinplace` excludes such views.
    ("aot", "aot-epilogue"),
    ("2.13", "2.15"),
    # The inverse copies the new contents into the same view of a new base, as no op may in eager.
    mark=Mark(
        ("errors",),
        "more than one element of the written-to tensor refers to a single memory location",
        _as_strided,
    ),
    plausible=_as_strided,
    rank=230,
)
