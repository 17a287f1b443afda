"""The decomposition of nearest upsampling reads behind the end of its operand."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Program


def _upsamples(program: Program) -> bool:
    """Whether the program names the scale of an upsampling."""
    return any(
        "upsample_nearest" in call.op and any(isinstance(it, float) for it in call.args)
        for call in program.instructions
    )


BUG = KnownBug(
    "nearest-beyond-end",
    "upsample_nearest with a scale that does not fit the sizes reads behind the end: any numbers",
    "",
    program_of(
        """
        v0 = aten.upsample_nearest2d.default(x0, [2, 2], 0.5, 0.5)
        return (v0,)
        """,
        view(1, 1, 2, 2),
    ),
    ("aot", "inductor"),
    ("2.13",),
    # Eager's kernel takes the last element. Where calls run in eager, `index` raises.
    mark=Mark(("errors", "values"), r"IndexError: index|^wrong value", _upsamples, reduced=True),
    plausible=_upsamples,
    rank=835,
)
