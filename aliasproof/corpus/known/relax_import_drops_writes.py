"""from_exported_program of TVM leaves out the new contents of mutated inputs and buffers."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view, writes

BUG = KnownBug(
    "relax-import-drops-writes",
    "Relax's import of an exported program drops its writes into inputs",
    "",
    program_of(
        """
        aten.add_.Tensor(x0, 1)
        v0 = aten.mul.Tensor(x0, 2)
        return (v0,)
        """,
        view(2),
    ),
    ("relax-import", "relax-import-plain"),
    ("2.13", "2.15"),
    mark=Mark(("inputs",), "", writes),
    rank=2221,
)
