"""Inductor's lowering of `aten.sub.Scalar` takes no third operand, and the operator has one."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

BUG = KnownBug(
    "scalar-difference-alpha",
    "aten.sub.Scalar with a factor for its number cannot be compiled",
    "",
    program_of(
        """
        v0 = aten.sub.Scalar(x0, 1.0, 2.0)
        return (v0,)
        """,
        view(4),
    ),
    ("inductor",),
    ("2.13",),
    mark=Mark(
        ("errors",), r"TypeError: sub\(\) takes", lambda program: calls(program, "sub", "sub_")
    ),
    plausible=lambda program: calls(program, "sub", "sub_"),
    rank=916,
)
