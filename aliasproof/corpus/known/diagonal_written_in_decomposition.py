"""With the decompositions of the ONNX exporter, `diagonal_scatter` writes a view."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

DIAGONALS = ("diagonal", "diagonal_scatter", "fill_diagonal_", "diag_embed", "linalg_diagonal")

# `create_onnx_friendly_decomposition_table` adds all of `torch._decomp.decomposition_table`. There,
# `diagonal_scatter` in torch/_refs/__init__.py calls `copy_to` on a diagonal.
BUG = KnownBug(
    "diagonal-written-in-decomposition",
    "torch.onnx.export raises for diagonal_scatter, and for a write to a diagonal",
    "",
    program_of(
        "v0 = aten.diagonal_scatter.default(x0, x1)\nreturn (v0,)",
        view(2, 2),
        view(2),
    ),
    ("onnx-translated",),
    ("2.13",),
    mark=Mark(
        ("errors",),
        "raises ConversionError: Failed to decompose",
        lambda program: calls(program, *DIAGONALS),
    ),
    plausible=lambda program: calls(program, *DIAGONALS),
    rank=1150,
)
