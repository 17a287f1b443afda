"""The layouts that `out=` tensors have after a call. Fake kernels have some of them wrong."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import facts, functional_call, functional_form
from aliasproof.reference_pass.calls.regions import Size
from aliasproof.reference_pass.eager.fake_corrections import true_result
from aliasproof.reference_pass.eager.real_runs import with_layout_of_run


@dataclass(frozen=True, slots=True)
class OutLayout:
    """The sizes and strides that an `out=` tensor has after a call."""

    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]


def out_layouts(op: OpOverload, given: dict[str, Any]) -> list[OutLayout] | None:
    """The layout of each `out=` tensor after a call, from its arguments before the call.

    None if the op has no functional form. Fake `out=` kernels are wrong: some restride what they
    should leave alone, and some give another layout to what they resize. In eager, a tensor of the
    right size stays as it is. What strides another one gets depends on the kernel.
    """
    form = functional_form(op)
    if form is None:
        return None
    outs = tensors_in([given[name] for name in facts(op).outs])
    args, kwargs = functional_call(op, form, given)
    results = tensors_in(true_result(form, args, kwargs, form(*args, **kwargs)))
    pairs = list(zip(outs, results, strict=True))
    if any(tuple(out.shape) != tuple(result.shape) for out, result in pairs):
        results = _resized(op, given, results)
    return [
        OutLayout(tuple(result.shape), (out if out.shape == result.shape else result).stride())
        for out, result in zip(outs, results, strict=True)
    ]


def _resized(
    op: OpOverload, given: dict[str, Any], results: list[torch.Tensor]
) -> list[torch.Tensor]:
    """The functional results with the strides of `out=` tensors that the kernel resizes."""
    # A generated kernel resizes to the size alone, and then copies the result.
    if torch.Tag.generated in op.tags or not op._schema.returns:
        return [result.new_empty(result.shape) for result in results]
    # Many others do the same, or resize as the kernel of `cat` or of an iteration does.
    with contextlib.suppress(RuntimeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it resizes
        several = len(results) > 1
        resized = with_layout_of_run(op, given, tuple(results) if several else results[0], fill=0)
        return list(resized) if several else [resized]
    return results  # the run has needed other data
