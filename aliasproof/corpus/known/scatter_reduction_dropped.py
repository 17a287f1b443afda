"""The optimizer of ONNX Script takes a ScatterND that adds for one that assigns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends_outside

RULES = "onnxscript.rewriter.rules.common._redundant_scatter_nd"


# `ScatterAllDynamic` beside it asks for the attribute `reduction` in its pattern.
@mends_outside(f"{RULES}:no_op_static_scatter_nd_rule._condition_function")
def mended(original: Callable[..., Any], context: Any, **values: Any) -> Any:
    """A ScatterND that adds is left as it is."""
    assigns = context.root.attributes.get_string("reduction", "none") == "none"
    return assigns and original(context, **values)


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
    mended,
    rank=2213,
)
