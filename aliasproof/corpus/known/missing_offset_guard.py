"""A graph that was compiled for overlapping inputs runs on inputs at another storage offset."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, inputs_share, program_of, view, writes
from aliasproof.ir.program import Program


def _writes_shared_inputs(program: Program) -> bool:
    return writes(program) and inputs_share(program)


BUG = KnownBug(
    "missing-offset-guard",
    "a compiled function is not compiled again when the storage offset of overlapping inputs"
    " changes",
    "https://github.com/pytorch/pytorch/pull/184481",
    program_of(
        """
        aten.add_.Scalar(x1, 1)
        v0 = aten.mul.Scalar(x0, 1)
        return (v0,)
        """,
        view(2, storage=0),
        view(2, storage=0),
        bytes_of={0: 64},
    ),
    ("aot-eager:second-layout",),
    ("2.13", "2.15"),
    # The inputs are made from a synthetic base, at the offsets that they had in the first call. If
    # the storage ends before, that raises.
    mark=Mark(
        ("values", "inputs", "aliasing", "objects", "errors"),
        r"^(?!raises)|setStorage",
        _writes_shared_inputs,
    ),
    plausible=_writes_shared_inputs,
    rank=360,
)
