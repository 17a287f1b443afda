"""With the passes on functions of torch, `x.split(n)` of n rows is x itself."""

from __future__ import annotations

from aliasproof.corpus.known.parts_joined_as_view import ON_FUNCTIONS
from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view
from aliasproof.ir.program import Program


def _splits(program: Program) -> bool:
    return calls(program, "split", "split_with_sizes", "chunk", "tensor_split")


# `remove_split_with_size_one` in torch/_inductor/fx_passes/split_cat.py.
BUG = KnownBug(
    "split-into-one",
    "with pre_grad_fusion_options, x.split(n)[0] is x itself and no view of it, if x has n rows",
    "",
    program_of(
        """
        (v0,) = aten.split.Tensor(x0, 1)
        return (v0,)
        """,
        view(1),
    ),
    (ON_FUNCTIONS,),
    ("2.13",),
    mark=Mark(("objects", "metadata"), "became|wrong|ends with another", _splits),
    plausible=_splits,
    rank=1090,
)
