"""What fake tensors get wrong, by operator, and how to tell the true result.

A fake kernel must give the sizes, strides and sharing of eager. Some do not, and what goes by
strides (`reshape`, a view as another dtype) is then another thing in the graph than in eager.
`TRUE` is asked in two places: where a graph is run on fakes, and while a function is traced. For
other operators that costs one look into a dictionary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import _disable_current_modes

from reference_pass.operator_forms import (
    COPIES_STORAGE,
    aten,
    bind,
    facts,
    functional_call,
    functional_form,
    leaves_in,
    tensors_in,
)
from reference_pass.regions import Size, known

# From an op, its arguments by name, and its fake result to a true one.
Correction = Callable[[OpOverload, dict[str, Any], Any], Any]


def true_result(op: object, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Any:
    """What a call gives on fakes, as eager lays it out: `value` itself if the fake kernel of the op is true."""
    correction = TRUE.get(op)
    if correction is None:
        return value
    assert isinstance(op, OpOverload)
    return correction(op, bind(op, args, kwargs), value)


def _by_a_run(op: OpOverload, given: dict[str, Any], value: Any, fill: int = 0) -> Any:
    """The result with the strides that the op itself gives, on CPU tensors of the same sizes and strides, full of `fill`.

    Only where an operand is not contiguous, since fakes are true for others, and all sizes are
    numbers.
    """
    if all(known(each.is_contiguous()) for each in tensors_in(given)) or not _is_fixed(
        leaves_in(given)
    ):
        return value
    with _disable_current_modes():
        real = map_aggregate(
            given, lambda leaf: _real(leaf, fill) if isinstance(leaf, torch.Tensor) else leaf
        )
        told = op(**real)
    return _laid_out(value, told)


def _is_fixed(leaves: Sequence[object]) -> bool:
    """True if all sizes and strides among the arguments of a call are numbers, and it is on the CPU."""
    if any(isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)) for leaf in leaves):
        return False
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    sizes = [size for each in tensors for size in (*each.shape, *each.stride())]
    return all(each.device.type == "cpu" for each in tensors) and all(
        isinstance(size, int) for size in sizes
    )


def _real(fake: torch.Tensor, fill: int) -> torch.Tensor:
    """A CPU tensor of the same sizes, strides and dtype. A stride of zero is no hindrance."""
    real = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)
    count = real.untyped_storage().nbytes() // real.element_size()
    real.as_strided((count,), (1,)).fill_(fill)
    return real


def _laid_out(value: Any, told: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (
            value
            if value.stride() == told.stride()
            else value.new_empty_strided(told.shape, told.stride())
        )
    return tuple(_laid_out(one, other) for one, other in zip(value, told, strict=True))


def _indexed(op: OpOverload, given: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
    """The result of `index`, whose strides go by those of the indices, too, and on fakes they do not."""
    operand, indices = given["self"], [each for each in given["indices"] if each is not None]
    if known(operand.numel() == 0):
        return value
    if all(known(each.is_contiguous()) for each in indices) or any(
        each.dtype == torch.bool for each in indices
    ):
        return value
    result: torch.Tensor = _by_a_run(op, given, value)
    return result


def _copy_of_storage(op: OpOverload, given: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
    """The result of an op that copies all of its operand's storage, at its place in a storage of that size.

    torch's cache of fake results forgets the offset and the size of the storage, which
    `clone_preserve_strides` (aten/src/ATen/native/TensorShape.cpp) keeps unless the operand repeats
    an element.
    """
    operand: torch.Tensor = given["self"]
    nbytes = operand.untyped_storage().nbytes()
    repeats = any(
        known(s == 0) and not known(n == 1)
        for n, s in zip(operand.shape, operand.stride(), strict=True)
    )
    if repeats:
        return value
    if op is aten.copy.default and known(
        nbytes == 0
    ):  # it asks for a new tensor then (aten/src/ATen/native/Copy.cpp)
        return operand.new_empty_strided(operand.shape, operand.stride())
    whole = operand.new_empty(nbytes // operand.element_size())
    return whole.as_strided(operand.shape, operand.stride(), operand.storage_offset())


def _dropped_out(op: OpOverload, given: dict[str, Any], value: Any) -> Any:
    """The result of `native_dropout`, which is new; where it drops nothing, fakes hand the operand back.

    Without elements eager hands it back, too.
    """
    result, mask = value
    if (
        known(result.numel() == 0)
        or result.untyped_storage()._cdata != given["input"].untyped_storage()._cdata
    ):
        return value
    return result.clone(), mask


def _contiguous(op: OpOverload, given: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
    return value.new_empty(value.shape)


def _clone(op: OpOverload, given: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
    copy: torch.Tensor = given["self"].clone()
    return copy


TRUE: dict[object, Correction] = {
    # Contiguous in eager, to the last stride. On fakes a stride that places nothing may be another,
    # and a view as another dtype goes by it; `normal` keeps the order of the strides of its
    # operands.
    **dict.fromkeys((aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.normal.Tensor_Tensor), _contiguous),
    # In eager a clone that is filled, which keeps the order of strides; fakes are contiguous.
    **dict.fromkeys((aten.index_fill.int_Scalar, aten.index_fill.int_Tensor), _clone),
    aten.index.Tensor: _indexed,
    aten.native_dropout.default: _dropped_out,
    **dict.fromkeys(COPIES_STORAGE, _copy_of_storage),
    # By the strides of all operands in eager; fakes leave out some, or scalar operands take a part.
    **dict.fromkeys(
        (
            aten.copysign.Tensor, aten.logaddexp.default, aten.logaddexp2.default, aten.heaviside.default,
            aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default,
            aten.ldexp.Tensor, aten.native_dropout_backward.default, aten.max_unpool2d.default,
            aten.channel_shuffle.default, aten.native_channel_shuffle.default,
            # By the suggested memory format in eager
            aten.native_batch_norm.default, aten._native_batch_norm_legit.default, aten._native_batch_norm_legit.no_stats,
            aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit_no_training.default,
            aten._batch_norm_with_update.default, aten._batch_norm_with_update_functional.default,
            aten._batch_norm_no_update.default,
        ),
        _by_a_run,
    ),
    # The same; these divide, and an integer zero is no divisor.
    **dict.fromkeys(
        (
            aten.floor_divide.default, aten.div.Tensor_mode, aten.lcm.default, aten.gcd.default,
        ),
        functools.partial(_by_a_run, fill=1),
    ),
}  # fmt: skip


# --- out= -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutLayout:
    """The sizes and strides that an `out=` tensor has after a call."""

    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]


def outs_after(op: OpOverload, given: dict[str, Any]) -> list[OutLayout] | None:
    """How each `out=` tensor lies after a call, from the arguments before it; None if the op has no functional form.

    Fake `out=` kernels are not true: some restride what they should leave, some lay out what they
    resize otherwise than eager. In eager a tensor of the right size stays as it is, another gets
    the size and strides of the functional result.
    """
    form = functional_form(op)
    if form is None:
        return None
    outs = tensors_in([given[name] for name in facts(op).outs])
    args, kwargs = functional_call(op, form, given)
    results = tensors_in(true_result(form, args, kwargs, form(*args, **kwargs)))
    return [_after(op, given, *each) for each in zip(outs, results, strict=True)]


def _after(
    op: OpOverload, given: dict[str, Any], out: torch.Tensor, result: torch.Tensor
) -> OutLayout:
    sizes = tuple(result.shape)
    if tuple(out.shape) == sizes:
        return OutLayout(sizes, out.stride())
    if (
        torch.Tag.generated in op.tags or not op._schema.returns
    ):  # its kernel gives the size alone, and copies the result
        return OutLayout(sizes, result.new_empty(sizes).stride())
    if op in _LAID_OUT_BY_INDEX:
        return OutLayout(sizes, torch.empty_like(given["index"]).stride())
    return OutLayout(sizes, result.stride())


# Their `out=` is an operand of an iteration over the index, and resized by it; the functional form
# is contiguous.
_LAID_OUT_BY_INDEX = {aten.take.out}
