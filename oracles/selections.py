"""`hashes_of_selection`: ops that give elements of their operands, constants, or sums of elements.

Which elements, the op itself says: it runs on positions in place of values. Where it adds elements,
it runs on their hashes. Indices must be constants: else tensor data decide what goes where.

In such a sum, a constant zero is left out. So the sign of a zero that is added to another is left
to *values*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch._ops import OpOverload

from aliasproof.ir.eager_call import tensors_in
from aliasproof.oracles.calls import BoundCall, torch_name
from aliasproof.oracles.hashed_memory import HashedMemory
from aliasproof.oracles.value_hashes import (
    Array,
    element_hashes,
    hash_of,
    mixed,
    of_constant,
    spread,
)

# These move all elements of their operands, and nothing else.
REORDERED = ("cat", "stack", "flip", "roll", "repeat")
# The operands that they take elements of. All other tensors are indices.
SELECTED_FROM: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("cat", "stack"), ("tensors",)),
    **dict.fromkeys(("flip", "roll", "repeat", "tril", "triu", "constant_pad_nd"), ("self",)),
    **dict.fromkeys(("index", "_unsafe_index", "gather", "take"), ("self",)),
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle", "channel_shuffle"), ("self",)),
    **dict.fromkeys((f"reflection_pad{dims}d" for dims in (1, 2, 3)), ("self",)),
    **dict.fromkeys((f"replication_pad{dims}d" for dims in (1, 2, 3)), ("self",)),
    **dict.fromkeys(("im2col", "col2im"), ("self",)),
    **dict.fromkeys(("select_backward", "slice_backward", "diagonal_backward"), ("grad_output",)),
    "unfold_backward": ("grad_in",),
    "embedding": ("weight",),
    "embedding_dense_backward": ("grad_output",),
    "value_selecting_reduction_backward": ("grad",),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), ("self", "values")),
    **dict.fromkeys(("index_add", "index_copy", "put"), ("self", "source")),
    **dict.fromkeys(("scatter", "scatter_add"), ("self", "src")),
}
# With other arguments they scale, or combine elements otherwise than by a sum.
_PLAIN: dict[str, tuple[object, ...]] = {
    "alpha": (1,),
    "reduce": (None,),
    "scale_grad_by_freq": (False,),
}
_PART = 16  # bits of a hash; float64 adds such numbers exactly

Numbers: TypeAlias = npt.NDArray[np.float64]


def hashes_of_selection(
    memory: HashedMemory, op: OpOverload, given: Mapping[str, Any], result: torch.Tensor
) -> Array | None:
    """The hashes of the result; None if it is no such call."""
    names = SELECTED_FROM.get(torch_name(op))
    if names is None or any(
        given.get(name, plain[0]) not in plain for name, plain in _PLAIN.items()
    ):
        return None
    others = [value for name, value in given.items() if name not in names]
    if not all(map(memory.is_constant, tensors_in(others))):
        return None
    operands = list(tensors_in([given[name] for name in names if name in given]))
    read = [memory.read_as(operand, result.dtype) for operand in operands]
    elements = np.concatenate([hashes.reshape(-1, result.element_size()) for hashes in read])
    run = _on_numbers(op, given, names)
    return _selected(memory, elements, run, result)


def _selected(
    memory: HashedMemory, elements: Array, run: Callable[[Numbers], Numbers], result: torch.Tensor
) -> Array:
    # Without elements, what remains are the constants that the op gives.
    constants = run(np.zeros(len(elements)))

    def share(numbers: Numbers) -> Numbers:
        with np.errstate(invalid="ignore"):  # a constant may be infinite
            return np.nan_to_num(run(numbers) - constants)

    counted = np.ones(len(elements))
    times = share(counted)
    if adds := bool((times > 1).any()):
        zero = of_constant(torch.zeros(1, dtype=result.dtype))
        counted = (elements != zero).any(axis=-1).astype(np.float64)
        times = share(counted)
    made = memory.constant(result).copy()
    at = share(counted * np.arange(len(elements))).astype(np.int64)
    made[times == 1] = elements[at[times == 1]]
    if adds:
        each = mixed(element_hashes(elements)) * counted.astype(np.uint64)
        totals = mixed(_sums(each, share) + hash_of("sum", result.dtype))
        made[times > 1] = spread(totals, result.element_size())[times > 1]
        if memory.symbols is not None:
            memory.symbols.note(element_hashes(made[times > 1]), lambda index: "sum of elements")
    return made


def _sums(hashes: Array, share: Callable[[Numbers], Numbers]) -> Array:
    """The sums of the hashes that the op adds, modulo 2^64."""
    total: Any = np.uint64(0)
    for start in range(0, 64, _PART):
        part = (hashes >> np.uint64(start)) & np.uint64((1 << _PART) - 1)
        total = total + (share(part.astype(np.float64)).astype(np.uint64) << np.uint64(start))
    return np.asarray(total)


def _on_numbers(
    op: OpOverload, given: Mapping[str, Any], names: Sequence[str]
) -> Callable[[Numbers], Numbers]:
    """The op with these numbers, in order, in place of the elements of its operands."""

    def run(numbers: Numbers) -> Numbers:
        rest = torch.from_numpy(numbers)

        def replaced(value: Any) -> Any:
            nonlocal rest
            if isinstance(value, (list, tuple)):
                return [replaced(member) for member in value]
            if not isinstance(value, torch.Tensor):
                return value
            mine, rest = rest[: value.numel()], rest[value.numel() :]
            return mine.view(value.shape).to(value.device)

        call = BoundCall(
            op, {**given, **{name: replaced(given[name]) for name in names if name in given}}
        )
        made: Numbers = call.run().cpu().numpy()
        return made

    return run
