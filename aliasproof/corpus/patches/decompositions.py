"""Patches of decompositions of operators."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch._C import DispatchKey
from torch._prims_common import suggest_memory_format

from aliasproof.corpus.patching import DECOMPOSITIONS, Function, Patch, replaces

aten = torch.ops.aten


@replaces("torch._decomp:decomposition_table", keys=(aten.native_dropout.default,))
def mask_of_empty_dropout(original: Function, x: torch.Tensor, *args: Any) -> Any:
    """The mask of a tensor without elements has the dtype of the tensor, as in eager.

    The kernel for CPU returns `empty_like(input)`. The decomposition, which is the fake kernel,
    returns bools.
    """
    dropped, mask = original(x, *args)
    return dropped, mask.to(x.dtype) if x.numel() == 0 else mask


_DROPOUT_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)


@Patch
@contextlib.contextmanager
def dropout_of_nothing() -> Iterator[None]:
    """`dropout` with probability zero returns its operand, as in eager."""
    op = aten.dropout.default
    with mock.patch.dict(op.py_kernels, dict.fromkeys(_DROPOUT_KEYS, _dropout)):
        op._dispatch_cache.clear()
        yield
    op._dispatch_cache.clear()


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if train and p != 0:
        dropped: torch.Tensor = aten.native_dropout.default(x, p, train)[0]
        return dropped
    return x


@replaces(*DECOMPOSITIONS, keys=(aten.cat.default,))
def cat_of_empties(original: Function, tensors: Any, dim: int = 0) -> Any:
    """The result has the dtype to which all operands are promoted, including empty ones.

    Torch computes this dtype only if a single operand remains (pytorch/pytorch#152995).
    """
    result = original(tensors, dim)
    if result is NotImplemented:
        return result
    dtypes = [tensor.dtype for tensor in tensors]
    promoted = dtypes[0]
    for dtype in dtypes:
        promoted = torch.promote_types(promoted, dtype)
    return result if result.dtype == promoted else result.to(promoted)


@replaces(*DECOMPOSITIONS, keys=(aten.add.Tensor,))
def complex_numbers(original: Function, x: Any, y: Any, **kwargs: Any) -> Any:
    """The operator is not decomposed if the promotion rules give another dtype.

    Inductor uses `promote_types` of the dtypes, which ignores dimensions.
    """
    tensors = isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
    if tensors and torch.result_type(x, y) != torch.promote_types(x.dtype, y.dtype):
        return NotImplemented
    return original(x, y, **kwargs)


@replaces(*DECOMPOSITIONS, keys=(aten.add.Tensor,))
def complex_sum_of_nothing(original: Function, x: Any, y: Any, **kwargs: Any) -> Any:
    """The operator is not decomposed if an operand has no elements.

    Torch adds the parts as real numbers, and views the sum as complex numbers. The strides of an
    empty tensor may not allow that.
    """
    if any(isinstance(operand, torch.Tensor) and operand.numel() == 0 for operand in (x, y)):
        return NotImplemented
    return original(x, y, **kwargs)


@replaces(*DECOMPOSITIONS, keys=(aten.round.decimals,))
def rounded_by_reciprocal(original: Function, x: Any, *, decimals: int) -> Any:
    """Divide by 1000, as the kernel does; do not multiply by 0.001, which is not exact."""
    del original
    power = 10.0 ** abs(decimals)
    if decimals < 0:
        return aten.round(x / power) * power
    return aten.round(x * power) / power


@replaces(*DECOMPOSITIONS, keys=(aten.cat.default,))
def cat_of_one(original: Function, tensors: Any, dim: int = 0) -> Any:
    """The result has the strides of eager: dense, or channels last.

    Torch clones a single tensor, and a clone keeps strides.
    """
    if len(tensors) == 1:
        return tensors[0].clone(memory_format=suggest_memory_format(tensors[0]))
    return original(tensors, dim)


@replaces(*DECOMPOSITIONS, keys=(aten.channel_shuffle.default,))
def one_group_shuffled(original: Function, operand: Any, groups: int) -> Any:
    """The result is new. For one group, torch returns a view, since it only makes views."""
    return original(operand, groups).clone()
