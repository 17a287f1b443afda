"""AOTInductor has no way to pass a complex number to an operator that it does not lower."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.printing import source
from aliasproof.ir.program import Program


def _has_complex_numbers(program: Program) -> bool:
    inputs = any(tensor.dtype.is_complex for tensor in program.inputs)
    return inputs or "torch.complex" in source(program)


BUG = KnownBug(
    "package-of-complex-number",
    "AOTInductor cannot make a package in which a complex number fills a tensor",
    "",
    program_of(
        """
        aten.zero_.default(x0)
        v0 = aten._to_copy.default(x0, dtype=torch.complex64)
        return (v0,)
        """,
        view(),
    ),
    ("aot-inductor",),
    ("2.13",),
    mark=Mark(("errors",), "^raises InductorError by AssertionError$", _has_complex_numbers),
    plausible=_has_complex_numbers,
    rank=914,
)
