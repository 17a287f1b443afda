"""With the passes on functions of torch, a `cat` of parts of a tensor becomes a view of it."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view
from aliasproof.ir.program import Program

# The variant in which such passes run.
ON_FUNCTIONS = "inductor-fx:as-written:pre_grad_fusion_options=all"


def joins_parts(program: Program) -> bool:
    """Whether parts of a tensor may be joined again."""
    apart = ("split", "split_with_sizes", "chunk", "unbind", "tensor_split", "unsafe_chunk")
    joined = ("cat", "concat", "concatenate", "stack", "hstack", "vstack")
    return calls(program, *apart) and calls(program, *joined)


# The passes of torch/_inductor/fx_passes/split_cat.py put a slice, a view or the tensor itself in
# place of the new tensor. None of them asks whether one of the two is written later, or returned.
BUG = KnownBug(
    "parts-joined-as-view",
    "with pre_grad_fusion_options, torch.cat of the parts of x is a view of x: it has later writes",
    "",
    program_of(
        """
        v0, v1 = aten.split.Tensor(x0, 1)
        v2 = aten.cat.default([v0, v1])
        aten.add_.Scalar(x0, 1)
        return (v2,)
        """,
        view(2),
    ),
    (ON_FUNCTIONS,),
    ("2.13",),
    mark=Mark(("values", "inputs", "aliasing", "objects", "metadata"), "", joins_parts),
    plausible=joins_parts,
    rank=1080,
)
