"""How the operands of matrix products are drawn: by the name of the op, its drawers by argument.

The shape of an operand depends on the first tensor and on the operands drawn before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators.accepted_dtypes import accepts
from aliasproof.generators.draft import Draft, Drawer
from aliasproof.generators.tensor_arguments import of_shape


def multiplies(dtype: torch.dtype) -> bool:
    """True if eager multiplies matrices of that dtype."""
    return accepts("aten.mm.default", ("mat2",), dtype)


def _size(draft: Draft, dim: int) -> int:
    """A size of the first tensor."""
    return draft.self.shape[dim]


def _inner(draft: Draft, left: str) -> int:
    """The size over which a product sums: the columns of the left factor."""
    return draft.tensor(left).shape[-1]


def _any_size(draft: Draft) -> int:
    return draft.pick.integer(1, 3)


def _drawers(**shapes: Callable[[Draft], Sequence[int]]) -> dict[str, Drawer]:
    """A drawer per argument, for a tensor of that shape."""
    return {name: of_shape(shape) for name, shape in shapes.items()}


_FACTORS: dict[str, Drawer] = {
    "beta": numbers.one_of(1, 0, 2),
    "alpha": numbers.one_of(1, 2, -1),
}

MM = _drawers(mat2=lambda draft: (_size(draft, 1), _any_size(draft)))
BMM = _drawers(mat2=lambda draft: (_size(draft, 0), _size(draft, 2), _any_size(draft)))
MV = _drawers(vec=lambda draft: (_size(draft, 1),))
OUTER = _drawers(vec2=lambda draft: (_any_size(draft),))
ADDMM = _FACTORS | _drawers(
    mat1=lambda draft: (_size(draft, 0), _any_size(draft)),
    mat2=lambda draft: (_inner(draft, "mat1"), _size(draft, 1)),
)
ADDMV = _FACTORS | _drawers(
    mat=lambda draft: (_size(draft, 0), _any_size(draft)),
    vec=lambda draft: (_inner(draft, "mat"),),
)
ADDR = _FACTORS | _drawers(
    vec1=lambda draft: (_size(draft, 0),),
    vec2=lambda draft: (_size(draft, 1),),
)
BADDBMM = _FACTORS | _drawers(
    batch1=lambda draft: (_size(draft, 0), _size(draft, 1), _any_size(draft)),
    batch2=lambda draft: (_size(draft, 0), _inner(draft, "batch1"), _size(draft, 2)),
)
# A sum over the batch, whose result is a matrix.
ADDBMM = _FACTORS | _drawers(
    batch1=lambda draft: (_any_size(draft), _size(draft, 0), _any_size(draft)),
    batch2=lambda draft: (
        draft.tensor("batch1").shape[0],
        _inner(draft, "batch1"),
        _size(draft, 1),
    ),
)
