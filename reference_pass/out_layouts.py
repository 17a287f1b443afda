"""The layouts that `out=` tensors have after a call. Fake kernels have some of them wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from reference_pass.fake_corrections import true_result
from reference_pass.nested import tensors_in
from reference_pass.operator_forms import aten, facts, functional_call, functional_form
from reference_pass.regions import Size


@dataclass(frozen=True, slots=True)
class OutLayout:
    """The sizes and strides that an `out=` tensor has after a call."""

    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]


def out_layouts(op: OpOverload, given: dict[str, Any]) -> list[OutLayout] | None:
    """The layout of each `out=` tensor after a call, from its arguments before the call.

    None if the op has no functional form. Fake `out=` kernels are wrong: some restride what they
    should leave alone, and some give another layout to what they resize. In eager, a tensor of the
    right size stays as it is; another one gets the sizes and strides of the functional result.
    """
    form = functional_form(op)
    if form is None:
        return None
    outs = tensors_in([given[name] for name in facts(op).outs])
    args, kwargs = functional_call(op, form, given)
    results = tensors_in(true_result(form, args, kwargs, form(*args, **kwargs)))
    return [
        _layout_after(op, given, out, result) for out, result in zip(outs, results, strict=True)
    ]


def _layout_after(
    op: OpOverload, given: dict[str, Any], out: torch.Tensor, result: torch.Tensor
) -> OutLayout:
    sizes = tuple(result.shape)
    if tuple(out.shape) == sizes:
        return OutLayout(sizes, out.stride())
    # A generated kernel resizes to the size alone, and then copies the result.
    if torch.Tag.generated in op.tags or not op._schema.returns:
        return OutLayout(sizes, result.new_empty(sizes).stride())
    if op in _RESIZED_BY_INDEX:
        return OutLayout(sizes, torch.empty_like(given["index"]).stride())
    return OutLayout(sizes, result.stride())


# Their `out=` is an operand of an iteration over the index, which resizes it. The functional form
# is contiguous.
_RESIZED_BY_INDEX = {aten.take.out}
