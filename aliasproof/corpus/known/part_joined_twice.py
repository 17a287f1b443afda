"""The passes on functions of torch fail at a `cat` that has a part twice."""

from __future__ import annotations

from aliasproof.corpus.known.parts_joined_as_view import ON_FUNCTIONS, joins_parts
from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view

# `unbind_cat_to_view` in torch/_inductor/fx_passes/split_cat.py erases its node once for each use.
BUG = KnownBug(
    "part-joined-twice",
    "with pre_grad_fusion_options, AttributeError at a cat that has a part of an unbind twice",
    "",
    program_of(
        """
        v0, v1 = aten.unbind.int(x0)
        v2 = aten.cat.default([v0, v1, v1])
        return (v2,)
        """,
        view(2, 1),
    ),
    (ON_FUNCTIONS,),
    ("2.13",),
    mark=Mark(
        ("errors",), "'NoneType' object has no attribute 'users'|already erased", joins_parts
    ),
    plausible=joins_parts,
    rank=1110,
)
