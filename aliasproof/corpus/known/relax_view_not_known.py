"""IsViewMemoryOp of TVM lists some operators; RewriteDataflowReshape makes views of others, too.

So it does of `x * 1`, whose kernel copies `x` once TIR is simplified.
"""

from __future__ import annotations

import functools

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.ir.relax_spelling import spelled

BUG = KnownBug(
    "relax-view-not-known",
    "Relax puts a call in place that writes into a view, since the operator is not listed as one",
    "",
    program_of(
        """
        v0 = aten.mul.Tensor(x0, x0)
        v1 = aten.repeat.default(v0, [1])
        v2 = aten.add.Tensor(v1, 1)
        return (v0, v2)
        """,
        view(2),
    ),
    ("relax", "relax-vm"),
    ("2.13", "2.15"),
    functools.partial(spelled, "known_views"),
    rank=1140,
)
