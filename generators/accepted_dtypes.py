"""Which dtypes eager's kernels for an op accept: eager itself is asked, once per op and dtype."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable
from typing import Any

import torch

from aliasproof.generators.scene import EAGER_ERRORS
from aliasproof.ir.schemas import Kind, facts, resolve

# If eager refuses all of these, it refuses the small arguments and not the dtype.
_COMMON = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64)


@functools.cache
def accepts(op: str, drawn: tuple[str, ...], dtype: torch.dtype) -> bool:
    """Whether eager runs an op on small tensors of a dtype, or refuses them for another reason.

    `drawn` are the names of the arguments that the call gives, beside those without a default.
    """
    return _runs(op, drawn, dtype) or not any(_runs(op, drawn, common) for common in _COMMON)


@functools.cache
def _runs(op: str, drawn: tuple[str, ...], dtype: torch.dtype) -> bool:
    try:
        given = dict(_small_arguments(op, drawn, dtype))
        # Without its `out=` arguments, torch chooses the functional form of an op.
        buffers = facts(resolve(op)).kind is Kind.OUT
        function = resolve(op).overloadpacket if buffers else resolve(op)
        # Eager warns about some arguments, and about them only.
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**given)
    except (*EAGER_ERRORS, KeyError):
        return False
    return True


def _small_arguments(
    op: str, drawn: tuple[str, ...], dtype: torch.dtype
) -> Iterable[tuple[str, Any]]:
    """An argument of each type. Raises `KeyError` for other types."""
    for argument in resolve(op)._schema.arguments:
        name = argument.name
        if argument.is_out or (name != "self" and name not in drawn):
            continue
        if name in ("mask", "condition"):
            yield name, torch.ones(1, 1, dtype=torch.bool)
        elif name == "index":
            # As many dimensions as `self` has, for these.
            sizes = (1, 1) if op.startswith(("aten.scatter", "aten.gather")) else (1,)
            yield name, torch.zeros(sizes, dtype=torch.int64)
        elif name in _TEXTS:
            yield name, _TEXTS[name]
        elif name == "value" and str(argument.type) == "Tensor":
            yield name, torch.ones(()).to(dtype)
        else:
            yield (
                name,
                _SMALL[str(argument.type).removeprefix("Optional[").removesuffix("]")](dtype),
            )


_TEXTS = {"rounding_mode": "trunc", "approximate": "none", "reduce": "amax"}

# By the type in the schema.
_SMALL: dict[str, Any] = {
    "Tensor": lambda dtype: torch.ones(1, 1).to(dtype),
    "number": lambda dtype: True if dtype == torch.bool else 2,
    "float": lambda dtype: 1.0,
    "int": lambda dtype: 1,
    "bool": lambda dtype: False,
    # A list of one item.
    "List[Tensor]": lambda dtype: [torch.ones(1, 1).to(dtype)],
    "List[number]": lambda dtype: [True if dtype == torch.bool else 2],
}
