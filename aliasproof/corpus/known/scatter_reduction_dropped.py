"""The optimizer of ONNX Script takes a ScatterND that adds for one that assigns."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view

PUTS = ("index_put", "index_put_", "_index_put_impl", "_index_put_impl_", "_unsafe_index_put")

# `ScatterAllStatic` in onnxscript/rewriter/rules/common/_redundant_scatter_nd.py does not ask for
# the attribute `reduction`; `ScatterAllDynamic` beside it does.
BUG = KnownBug(
    "scatter-reduction-dropped",
    "index_put with accumulate=True at all constant indices returns the values, and adds nothing",
    "https://github.com/microsoft/onnxscript/pull/3049",
    program_of(
        """
        v0 = aten.arange.default(2)
        v1 = aten.index_put.default(x0, [v0], x1, True)
        return (v1,)
        """,
        view(2),
        view(2),
    ),
    ("onnx-folded",),
    ("2.13",),
    mark=Mark(
        ("values", "inputs"),
        "wrong value|input ends wrong",
        lambda program: calls(program, *PUTS),
    ),
    plausible=lambda program: calls(program, *PUTS),
    rank=2213,
)
