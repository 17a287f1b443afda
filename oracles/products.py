"""Matrix products in uninterpreted execution: an element depends on one row and one column.

Composite operators call one product or another: `matmul` and `einsum` choose by sizes and strides,
`linear` also with a bias. All products count as one operator, so the choice makes no difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch._ops import OpOverload

from aliasproof.oracles.hashed_memory import HashedMemory
from aliasproof.oracles.value_hashes import Array, digests, hash_of, mixed

aten = torch.ops.aten

PRODUCTS = {aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default}
# A product and what is added to it. Arguments: the addend, then the two factors.
WITH_ADDEND: dict[OpOverload, OpOverload] = {
    aten.addmm.default: aten.mm.default,
    aten.baddbmm.default: aten.bmm.default,
    aten.addmv.default: aten.mv.default,
}


def product(memory: HashedMemory, left: torch.Tensor, right: torch.Tensor) -> Array:
    """The hash of each element of a product of matrices, batches of matrices or vectors."""
    rows, columns = memory.elements(left), memory.elements(right)
    # Of a vector, the only dim is the one that is summed over.
    if right.dim() > 1:
        columns = np.swapaxes(columns, -1, -2)
    start = hash_of("product", left.shape[-1], left.dtype, right.dtype)
    ours, theirs = digests(rows), digests(columns)
    # A sum, since the two factors of a term may be exchanged.
    both = ours + theirs if right.dim() == 1 else ours[..., :, None] + theirs[..., None, :]
    return mixed(np.asarray(start + both))


def is_plain_sum(given: dict[str, Any]) -> bool:
    """Whether neither the product nor the addend has a factor."""
    return bool(given.get("alpha", 1) == 1 and given.get("beta", 1) == 1)
