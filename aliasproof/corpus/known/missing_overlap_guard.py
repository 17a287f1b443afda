"""A graph that was compiled for separate inputs runs on inputs that overlap, or the reverse."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view, writes
from aliasproof.ir.program import Program


def _writes_one_of_several(program: Program) -> bool:
    return writes(program) and len(program.inputs) > 1


BUG = KnownBug(
    "missing-overlap-guard",
    "a compiled function is not compiled again when its inputs begin or cease to overlap",
    "https://github.com/pytorch/pytorch/issues/139789",
    program_of(
        """
        aten.add_.Scalar(x1, 1)
        v0 = aten.mul.Scalar(x0, 1)
        return (v0,)
        """,
        view(2, storage=0),
        view(2, storage=0),
    ),
    ("aot-eager:second-call", "aot-eager:feed-back"),
    ("2.13", "2.15"),
    # What the first call shows is attributed to `aot-eager`. What is left is that the graph of the
    # first call was used for the second one.
    mark=Mark(("values", "inputs", "aliasing", "objects", "errors"), "", _writes_one_of_several),
    plausible=_writes_one_of_several,
    rank=350,
)
