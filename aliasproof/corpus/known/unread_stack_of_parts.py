"""The passes on functions of torch fail at a `stack` of parts that nothing reads."""

from __future__ import annotations

from aliasproof.corpus.known.parts_joined_as_view import ON_FUNCTIONS, joins_parts
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view

# A pass of torch/_inductor/fx_passes/split_cat.py simplifies an `unbind` by the readers of what
# its parts are joined to, and there are none.
BUG = KnownBug(
    "unread-stack-of-parts",
    "with pre_grad_fusion_options, IndexError at an unbind whose parts are stacked and not read",
    "",
    program_of(
        """
        v0, v1 = aten.unbind.int(x0)
        v2 = aten.stack.default([v0, v1])
        return (v0,)
        """,
        view(2),
    ),
    (ON_FUNCTIONS,),
    ("2.13",),
    mark=Mark(("errors",), "raises IndexError", joins_parts),
    plausible=joins_parts,
    rank=2211,
)
