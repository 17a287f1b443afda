"""Ops that work on lists of tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aliasproof.generators import arguments as lists
from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.draft import Drawer
from aliasproof.generators.operator import (
    Operator,
    any_dtype,
    floating,
    group,
    inexact,
    line,
    not_bool,
    real,
)


def _lines(
    names: str, overload: str, dtypes: Callable[[torch.dtype], bool], **drawers: Drawer
) -> tuple[Operator, ...]:
    """A line for each of these in-place ops, whose `self` is a list of tensors."""
    drawers = {"self": lists.tensors_to_write, **drawers}
    return tuple(line(f"_foreach_{name}_.{overload}", dtypes, **drawers) for name in names.split())


def _addends(**last: Drawer) -> dict[str, Drawer]:
    """The operands of `addcmul` and `addcdiv`."""
    return {"tensor1": lists.operand_per_item, "tensor2": lists.operand_per_item, **last}


_LIMITS = "clamp_max clamp_min maximum minimum"

FOREACH = group(
    "foreach",
    *_lines("copy", "default", any_dtype, src=lists.source_per_item),
    *_lines("zero", "default", any_dtype),
    *_lines("neg", "default", not_bool),
    *_lines("abs ceil floor round trunc sign", "default", real),
    *_lines("frac erf erfc lgamma", "default", floating),
    *_lines(
        "acos asin atan cos cosh exp expm1 log log10 log1p log2 reciprocal rsqrt sigmoid sin sinh"
        " sqrt tan tanh",
        "default",
        inexact,
    ),
    # With a tensor per item, a number per item, one number for all, and one tensor for all.
    *_lines("add", "List", any_dtype, other=lists.operand_per_item),
    *_lines("sub", "List", not_bool, other=lists.operand_per_item, alpha=numbers.number),
    *_lines("mul", "List", any_dtype, other=lists.operand_per_item),
    *_lines("div", "List", inexact, other=lists.operand_per_item),
    *_lines(_LIMITS, "List", real, other=lists.operand_per_item),
    *_lines("pow", "List", not_bool, exponent=lists.operand_per_item),
    *_lines("add sub mul", "ScalarList", not_bool, scalars=lists.number_per_item),
    *_lines("div", "ScalarList", inexact, scalars=lists.number_per_item),
    *_lines(_LIMITS, "ScalarList", real, scalars=lists.number_per_item),
    *_lines("pow", "ScalarList", not_bool, exponent=lists.number_per_item),
    *_lines("add sub mul", "Scalar", not_bool),
    *_lines("div", "Scalar", inexact),
    *_lines(f"{_LIMITS}", "Scalar", real),
    *_lines("pow", "Scalar", not_bool),
    *_lines("add mul", "Tensor", any_dtype, other=tensors.scalar_tensor),
    *_lines("div", "Tensor", inexact, other=tensors.scalar_tensor),
    # With more than one list of operands.
    *_lines("addcmul", "Scalar", not_bool, **_addends(value=numbers.number)),
    *_lines("addcmul", "ScalarList", not_bool, **_addends(scalars=lists.number_per_item)),
    *_lines("addcdiv", "Scalar", inexact, **_addends(value=numbers.number)),
    *_lines("addcdiv", "ScalarList", inexact, **_addends(scalars=lists.number_per_item)),
    *_lines(
        "lerp", "List", inexact, tensors1=lists.operand_per_item, weights=lists.operand_per_item
    ),
    *_lines("lerp", "Scalar", inexact, tensors1=lists.operand_per_item),
    *_lines(
        "lerp", "ScalarList", inexact, tensors1=lists.operand_per_item, weight=lists.number_per_item
    ),
)
