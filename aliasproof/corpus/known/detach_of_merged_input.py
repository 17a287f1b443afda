"""An input that is merged with others becomes a view, and views cannot be detached in place."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, inputs_share, program_of, view
from aliasproof.ir.program import Program


def _detaches_shared(program: Program) -> bool:
    return inputs_share(program) and calls(program, "detach_")


BUG = KnownBug(
    "detach-of-merged-input",
    "x.detach_() raises 'Can't detach views in-place' if AOTAutograd merges x with another input",
    "",
    program_of(
        """
        aten.detach_.default(x1)
        aten.add_.Scalar(x0, 1)
        return ()
        """,
        view(storage=0),
        view(storage=0),
    ),
    ("aot", "aot-epilogue"),
    ("2.13", "2.15"),
    # A program has no views among its inputs, so eager detaches them all.
    mark=Mark(("errors",), "Can't detach views in-place", _detaches_shared),
    plausible=_detaches_shared,
    rank=270,
)
