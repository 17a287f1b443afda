"""Inductor adds a complex number without dimensions as if it had one, so the dtype changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import DECOMPOSITIONS, mends
from aliasproof.ir.program import Program

aten = torch.ops.aten


@mends(*DECOMPOSITIONS, keys=(aten.add.Tensor,))
def mended(original: Callable[..., Any], x: Any, y: Any, **kwargs: Any) -> Any:
    """The operator is not decomposed where the rules of promotion ask for another dtype.

    Inductor takes `promote_types` of the dtypes, which ignores dimensions.
    """
    tensors = isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
    if tensors and torch.result_type(x, y) != torch.promote_types(x.dtype, y.dtype):
        return NotImplemented
    return original(x, y, **kwargs)


def _complex(program: Program) -> bool:
    dtypes = [tensor.dtype for tensor in program.inputs]
    return any(dtype.is_complex for dtype in dtypes)


BUG = KnownBug(
    "complex-numbers",
    "Inductor's sum of complex64 and a complex128 number is complex128",
    "",
    program_of(
        """
        v0 = aten.add.Tensor(x0, x1)
        return (v0,)
        """,
        view(1, dtype=torch.complex64),
        view(dtype=torch.complex128),
    ),
    ("aot:decompose", "inductor-fx"),
    ("2.13", "2.15"),
    mended,
    plausible=_complex,
    rank=390,
)
