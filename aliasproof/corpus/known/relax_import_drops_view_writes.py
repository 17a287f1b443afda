"""from_exported_program of TVM gives a written view a new value, and its base keeps the old one."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view, writes

BUG = KnownBug(
    "relax-import-drops-view-writes",
    "Relax's import of an exported program that is not decomposed drops writes through views",
    "",
    program_of(
        """
        v0 = aten.mul.Tensor(x0, 2)
        v1 = aten.select.int(v0, 0, 0)
        aten.add_.Tensor(v1, 5)
        return (v0,)
        """,
        view(2),
    ),
    ("relax-import-plain",),
    ("2.13", "2.15"),
    mark=Mark(("values",), "", writes),
    rank=2222,
)
