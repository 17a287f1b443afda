"""Calls on fakes, with the results that they have in eager.

A fake kernel may have other strides than the kernel of eager, or refuse what eager accepts.
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from aliasproof.reference_pass.calls.copied_operands import on_copies, on_copies_by
from aliasproof.reference_pass.calls.nested import on_values, tensors_in
from aliasproof.reference_pass.calls.operator_forms import (
    aten,
    bind,
    facts,
    functional_call,
    functional_form,
    unbind,
    writes_outs_alone,
)
from aliasproof.reference_pass.calls.regions import Size, known
from aliasproof.reference_pass.calls.view_forms import copied_view
from aliasproof.reference_pass.eager.fake_corrections import fake_result, true_result
from aliasproof.reference_pass.eager.other_names import called_in_eager
from aliasproof.reference_pass.eager.real_runs import refused_by_fakes, with_layout_of_run
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.semantics import Values


def run(node: fx.Node, values: Values) -> Any:
    """The value of a call_function node. Raises `DataDependent` where fakes cannot give it."""
    op = node.target
    args, kwargs = on_values((node.args, node.kwargs), values)
    if writes_outs_alone(op):
        return run_out_call(op, bind(op, args, kwargs))
    if op is on_copies and writes_outs_alone(args[0]):
        return on_copies_by(run_out_call, *args, **kwargs)
    return run_call(node, values)


def run_call(node: fx.Node, values: Values) -> Any:
    """The value of a call_function node, for the given values of its operands."""
    args, kwargs = on_values((node.args, node.kwargs), values)
    if isinstance(node.target, OpOverload) and (view := copied_view(node.target)) is not None:
        # torch's fake view copies do not support symbols, and its fake view_as_real_copy does not
        # support a stride of zero. The copy of the view is the same tensor.
        fixed = all(isinstance(size, int) for size in (*args[0].shape, *args[0].stride()))
        if not fixed or view is aten.view_as_real.default:
            # `view_copy` also copies when no view is possible.
            shown = (aten.reshape.default if view is aten.view.default else view)(*args, **kwargs)
            return pytree.tree_map(  # a tensor; several of `unbind`
                lambda tensor: tensor.clone(memory_format=torch.contiguous_format), shown
            )
    assert callable(node.target)
    if node.target is aten.view.dtype:
        return _view_as(*args)
    # The fake kernel of a prim that eager calls on integers may give them another dtype.
    op = called_in_eager(node)
    with refused_by_fakes(op, args, kwargs):
        return true_result(op, args, kwargs, fake_result(op, args, kwargs))


def _view_as(operand: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A view as another dtype, whatever the strides of dimensions of size one or zero.

    Eager checks these strides, too, and fakes often have them wrong. So the view is taken here, and
    the run decides.
    """
    # The last stride must be one. For a larger dtype the others must be multiples of the ratio,
    # since that many elements become one.
    ratio = max(dtype.itemsize // operand.element_size(), 1)
    empty, last = known(operand.numel() == 0), operand.dim() - 1
    strides, taken = list(operand.stride()), True
    for dim, size in enumerate(operand.shape):
        fits = strides[dim] == 1 if dim == last else strides[dim] % ratio == 0
        if not known(fits) and (empty or known(size <= 1)):
            # No element is reached by this stride, so it can be replaced by one that fits.
            strides[dim], taken = 1 if dim == last else ratio, False
    if not taken:
        operand = operand.as_strided(operand.shape, strides, operand.storage_offset())
    shown: torch.Tensor = aten.view.dtype(operand, dtype)
    return shown


# --- out= calls -----------------------------------------------------------------------------------


def run_out_call(op: OpOverload, given: dict[str, Any]) -> Any:
    """The value of a call that writes only its `out=` arguments: these, resized as in eager.

    Raises what eager raises, and `Refused` if it is unknown how the call resizes them.
    """
    outs = tensors_in([given[name] for name in facts(op).outs])
    # Fake out= kernels give wrong layouts (see `out_layouts`). So the call itself runs on
    # substitutes, to raise what eager would raise, and the outs are resized after that.
    substitutes = [
        torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=out.device)
        for out in outs
    ]
    following = iter(substitutes)
    instead = {
        name: map_aggregate(given[name], lambda _: next(following)) for name in facts(op).outs
    }
    args, kwargs = unbind(op, given | instead)
    if op not in _REFUSED_BY_FAKES:
        op(*args, **kwargs)
    layouts = out_layouts(op, given)
    if layouts is not None:
        for out, layout in zip(outs, layouts, strict=True):
            if tuple(out.shape) != layout.sizes:
                layout.give(out)
    elif any(known(x.shape != y.shape) for x, y in zip(substitutes, outs, strict=True)):
        raise Refused(
            f"{op} resizes its out=, and it has no functional form that tells the new layout"
        )
    if not op._schema.returns:
        return ()
    return given[facts(op).outs[0]] if len(facts(op).outs) == 1 else tuple(outs)


# Eager stores the real result in a complex `out=`; its fake kernel raises.
_REFUSED_BY_FAKES = {aten.abs.out}


@dataclass(frozen=True, slots=True)
class OutLayout:
    """The sizes and strides that an `out=` tensor has after a call."""

    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]

    def give(self, out: torch.Tensor) -> None:
        """Give a tensor this layout, at the offset that it has."""
        out.resize_(self.sizes).as_strided_(self.sizes, self.strides, out.storage_offset())


def out_layouts(op: OpOverload, given: dict[str, Any]) -> list[OutLayout] | None:
    """The layout of each `out=` tensor after a call, from its arguments before the call.

    None if the op has no functional form. Fake `out=` kernels are wrong: some change strides that
    they should not, and some give another layout to a tensor that they resize. In eager, a tensor
    of the right size does not change. Which strides a resized tensor gets depends on the kernel.
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
    # A generated kernel resizes to the size only, and then copies the result.
    if torch.Tag.generated in op.tags or not op._schema.returns:
        return [result.new_empty(result.shape) for result in results]
    # Many others do the same, or resize as the kernel of `cat` or a TensorIterator does.
    with contextlib.suppress(RuntimeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the resize
        several = len(results) > 1
        resized = with_layout_of_run(op, given, tuple(results) if several else results[0], fill=0)
        return list(resized) if several else [resized]
    return results  # the run failed, since it needed other data
