"""Errors of fake kernels, by operator, and their corrections.

A fake kernel must give the sizes, strides and sharing of eager. Some do not. Then `reshape`, or a
view as another dtype, has another result in the graph than in eager, since it depends on strides.
`CORRECTIONS` is used in two places: where a graph is run on fakes, and while a function is traced.
For an operator without a correction, the cost is one dictionary lookup.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format
from torch.utils._python_dispatch import TorchDispatchMode

from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import aten, bind, is_pointwise
from aliasproof.reference_pass.calls.regions import (
    Size,
    contiguous_strides,
    equal,
    is_contiguous,
    known,
)
from aliasproof.reference_pass.eager.other_names import aten_of_prim
from aliasproof.reference_pass.eager.real_runs import (
    as_noted,
    is_noted,
    noted_layouts,
    with_layout_of_run,
)
from aliasproof.reference_pass.eager.strided_calls import COPIES_STORAGE

# (op, its arguments by name, the result of its fake kernel) -> the result as in eager
Correction = Callable[[OpOverload, dict[str, Any], Any], Any]


def fake_result(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of the fake kernel of a call, before it is corrected."""
    if copies_to_itself(op, args):
        return args[0]
    if has_no_fake_kernel(op, args):
        if not _is_nearest(op):
            return args[0].clone()
        # The fake kernel refuses an empty batch, but a batch of one has the same strides.
        return op(args[0].new_empty(1, *args[0].shape[1:]), *args[1:], **kwargs)[:0]
    if not isinstance(op, OpOverload) or not _is_composite(op):
        return op(*args, **kwargs)
    with _CorrectedCalls():
        return op(*args, **kwargs)


@functools.cache
def _is_nearest(op: object) -> bool:
    return re.fullmatch(r"aten\._?upsample_nearest(_exact)?\dd\.default", str(op)) is not None


@functools.cache
def _is_composite(op: OpOverload) -> bool:
    # `aten.size`, called in traces with symbols, has a schema, but no kernel of the dispatcher.
    return torch._C._dispatch_has_kernel(
        op.name()
    ) and torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


class _CorrectedCalls(TorchDispatchMode):
    """Corrects the results of the operators that a composite calls."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        # Within another such mode, a composite that arrives here would arrive a second time.
        again = _is_composite(func)
        value = func(*args, **named) if again else fake_result(func, args, named)
        return true_result(func, args, named, value)


def copies_to_itself(op: object, args: tuple[Any, ...]) -> bool:
    """True for `x.copy_(x)`, which does nothing; the fake kernel for symbols may refuse it."""
    return op is aten.copy_.default and args[0] is args[1]


def has_no_fake_kernel(op: object, args: tuple[Any, ...]) -> bool:
    """True if a fake kernel refuses arguments that eager accepts.

    The kernel of `as_strided_scatter` in Python, which a trace with symbols uses, must not store
    around its operand (`_as_strided_scatter_meta` in torch/_prims/__init__.py). Those of nearest
    neighbours read the size of an empty batch as a bool (pytorch/pytorch#195376).
    """
    if _is_nearest(op):
        return known(args[0].shape[0] == 0)
    if op is not aten.as_strided_scatter.default:
        return False
    in_python = torch._C._dispatch_tls_is_dispatch_key_included(DispatchKey.PythonDispatcher)
    return in_python or args[0]._has_symbolic_sizes_strides


def true_result(op: object, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Any:
    """The result of a call on fakes, with the layout that it has in eager.

    It is `value`, the result of the fake kernel, if that needs no correction.
    """
    correction = correction_of(op)
    if correction is None and not is_noted(op):
        return value
    assert isinstance(op, OpOverload)
    given = bind(op, args, kwargs)
    return as_noted(op, given, value if correction is None else correction(op, given, value))


def has_correction(op: object) -> bool:
    """True if the result of the fake kernel of an operator may be corrected."""
    return correction_of(op) is not None or is_noted(op)


@functools.cache
def correction_of(op: object) -> Correction | None:
    """The function that may change the result of the fake kernel of an operator, or None."""
    if op in CORRECTIONS or not isinstance(op, OpOverload):
        return CORRECTIONS.get(op)
    is_functional = not any(returned.alias_info for returned in op._schema.returns)
    return _BY_UNUSED_STRIDES if is_functional and is_pointwise(aten_of_prim(op)) else None


def may_be_corrected(op: OpOverload, given: dict[str, Any]) -> bool:
    """True if `true_result` may differ from the result of the fake kernel."""
    if noted_layouts(op, given) is not None:
        return True
    correction = correction_of(op)
    if isinstance(correction, (_ByARun, _View)):
        return not correction.fakes_are_right(given)
    return correction is not None


@dataclass(frozen=True, slots=True)
class _ByARun:
    """The result with the strides and dtypes of a real run, on CPU tensors full of `fill`.

    There is no run if all operands have contiguous strides, for which fakes are mostly right. With
    `by_dtypes`, fakes are right for them only if all have one dtype, float32 or float64. With
    `unused_alone`, only strides of dimensions of size one count: fakes are right about all others.
    """

    fill: int = 0
    by_dtypes: bool = False
    unused_alone: bool = False

    def __call__(self, op: OpOverload, given: dict[str, Any], value: Any) -> Any:
        right = self.fakes_are_right(given)
        return value if right else with_layout_of_run(op, given, value, self.fill)

    def fakes_are_right(self, given: dict[str, Any]) -> bool:
        """True if the fake kernel is known to be right for these arguments."""
        tensors = tensors_in(given)
        if self.unused_alone:
            return all(map(has_contiguous_unused_strides, tensors))
        # The stride of a dimension of size one locates no element, but kernels read it.
        if not all(map(is_contiguous, tensors)):
            return False
        dtypes = {tensor.dtype for tensor in tensors}
        return not self.by_dtypes or dtypes in ({torch.float32}, {torch.float64})


def _indexed(op: OpOverload, given: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
    """The result of `index`, with strides that depend on those of all operands in eager.

    Fakes ignore the strides of the indices, and those of dimensions of size one.
    """
    operand, indices = given["self"], [index for index in given["indices"] if index is not None]
    if known(operand.numel() == 0):  # a run would raise: every index is out of range
        return value
    # The size of a mask's selection is data-dependent, so a run on zeros cannot give it.
    if any(index.dtype == torch.bool for index in indices):
        return value
    result: torch.Tensor = _ByARun()(op, given, value)
    return result


def _copy_of_storage(op: OpOverload, given: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
    """The result of an op that copies its operand's whole storage: same offset, same storage size.

    torch's cache of fake results loses the offset and the size of the storage.
    `clone_preserve_strides` (aten/src/ATen/native/TensorShape.cpp) keeps both, unless the operand
    repeats an element.
    """
    operand: torch.Tensor = given["self"]
    if operand.is_conj() or operand.is_neg():  # the dispatcher resolves the bit into a new tensor
        return operand.resolve_conj().resolve_neg()
    nbytes = operand.untyped_storage().nbytes()
    repeats = any(
        known(stride == 0) and not known(size == 1)
        for size, stride in zip(operand.shape, operand.stride(), strict=True)
    )
    if repeats:
        return value
    # For an empty storage, `copy` makes a new tensor (aten/src/ATen/native/Copy.cpp).
    if op is aten.copy.default and known(nbytes == 0):
        return operand.new_empty_strided(operand.shape, operand.stride())
    # A view of a tensor as large as the storage has that offset and that storage size.
    whole = operand.new_empty(nbytes // operand.element_size())
    return whole.as_strided(operand.shape, operand.stride(), operand.storage_offset())


@dataclass(frozen=True, slots=True)
class _View:
    """The result of `view` with the strides of eager, if its operand is not contiguous.

    Fakes return other strides for dimensions of size one, and for empty tensors. They also accept
    some views that eager refuses: (2, 1, 2) with strides (3, 1, 1) as (4,).
    """

    def __call__(self, op: OpOverload, given: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
        operand = given["self"]
        strides = view_strides(operand.shape, operand.stride(), value.shape)
        sizes = (*operand.shape, *operand.stride(), *value.shape)
        if strides is None and all(isinstance(size, int) for size in sizes):
            raise RuntimeError(
                f"{op} cannot show strides {operand.stride()} as size {tuple(value.shape)}"
            )
        if strides is None or equal(strides, value.stride()):
            return value
        return value.as_strided(value.shape, strides, value.storage_offset())

    def fakes_are_right(self, given: dict[str, Any]) -> bool:
        """True if the fake kernel is known to be right for these arguments."""
        return is_contiguous(given["self"])


def _dropped_out(op: OpOverload, given: dict[str, Any], value: Any) -> Any:
    """The result of `native_dropout`, which is a new tensor.

    If nothing is dropped, fakes return the operand. Eager does so only for an empty tensor.
    """
    result, mask = value
    if known(result.numel() == 0):
        # The cache of fake results makes a new tensor; the dtype of the mask is not bool.
        return given["input"], torch.empty_like(given["input"])
    if result.untyped_storage()._cdata != given["input"].untyped_storage()._cdata:
        return value
    return result.clone(), mask


def _shuffled(op: OpOverload, given: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
    """The result of `channel_shuffle`: new, if not empty. Fakes show the operand for one group."""
    if known(value.numel() == 0):
        return value.view_as(given["self"])
    return value.clone(memory_format=suggest_memory_format(given["self"]))


def _power(op: OpOverload, given: dict[str, Any], value: torch.Tensor) -> torch.Tensor:
    if given["self"].dtype == torch.bool and isinstance(given["exponent"], bool):
        value = value.to(torch.bool)
    result: torch.Tensor = _BY_UNUSED_STRIDES(op, given, value)
    return result


def _contiguous_on_cpu(op: OpOverload, given: dict[str, Any], value: Any) -> Any:
    tensors = tensors_in(value)
    if any(tensor.device.type != "cpu" for tensor in tensors):
        return value
    return tuple(tensor.new_empty(tensor.shape) for tensor in tensors)


# Also for pointwise operators: for a dimension of size one, eager may keep the stride of an
# operand, and fakes another one. The fill is one, so that no integer is divided by zero.
_BY_UNUSED_STRIDES = _ByARun(fill=1, unused_alone=True)

CORRECTIONS: dict[object, Correction] = {
    # Contiguous in all strides in eager. Fakes keep the order of the strides of the operands.
    aten.normal.Tensor_Tensor: lambda op, given, value: value.new_empty(value.shape),
    # The CPU kernel computes both results in contiguous memory; fakes keep the order of strides.
    aten.log_sigmoid_forward.default: _contiguous_on_cpu,
    # In eager, these fill a clone. On fakes some are contiguous, and some keep gaps.
    **dict.fromkeys(
        (
            *(aten.fill.Scalar, aten.fill.Tensor, aten.zero.default),
            *(aten.index_put.default, aten._unsafe_index_put.default),
            *(aten.uniform.default, aten.cauchy.default, aten.exponential.default),
            *(aten.geometric.default, aten.log_normal.default),
        ),
        lambda op, given, value: given["self"].clone(),
    ),
    **dict.fromkeys(
        (
            *(aten.empty_like.default, aten.full_like.default),
            *(aten.zeros_like.default, aten.ones_like.default),
            *(aten.rand_like.default, aten.randn_like.default),
            *(aten.randint_like.default, aten.randint_like.low_dtype),
            *(aten._log_softmax.default, aten._prelu_kernel.default),
            *(aten.diag_embed.default, aten.flip.default),
            *(aten.sort.default, aten.sort.stable, aten.tril.default, aten.triu.default),
            *(aten.rot90.default, aten.hardtanh_backward.default),
            *(aten.binary_cross_entropy_backward.default, aten.log_sigmoid_backward.default),
        ),
        _BY_UNUSED_STRIDES,
    ),
    aten.index.Tensor: _indexed,
    aten.native_dropout.default: _dropped_out,
    **dict.fromkeys((aten.channel_shuffle.default, aten.native_channel_shuffle.default), _shuffled),
    **dict.fromkeys((aten.view.default, aten._unsafe_view.default), _View()),
    **dict.fromkeys(COPIES_STORAGE, _copy_of_storage),
    # In eager the strides of all operands count; fakes ignore some, or count scalar operands.
    **dict.fromkeys(
        (
            aten.copysign.Tensor,
            aten.logaddexp.default,
            aten.logaddexp2.default,
            aten.heaviside.default,
            aten.logical_and.default,
            aten.logical_or.default,
            aten.logical_xor.default,
            aten.xlogy.Tensor,
            aten.special_xlog1py.default,
            aten.roll.default,
            aten.addr.default,
            aten.native_dropout_backward.default,
            aten.max_unpool2d.default,
            aten.huber_loss_backward.default,
            aten.mse_loss_backward.default,
            aten.smooth_l1_loss_backward.default,
            aten._weight_norm_interface.default,
            *(aten._standard_gamma.default, aten.poisson.default, aten.normal.float_Tensor),
            *(aten.isin.Tensor_Scalar, aten.rrelu_with_noise_functional.default),
        ),
        _ByARun(),
    ),
    # Eager uses the suggested memory format. The dtype of the means is that of the weights. The
    # dtype of `ldexp` is that of its exponents, if only these are floating-point.
    **dict.fromkeys(
        (
            aten.ldexp.Tensor,
            aten.native_batch_norm.default,
            aten._native_batch_norm_legit.default,
            aten._native_batch_norm_legit.no_stats,
            aten._native_batch_norm_legit_functional.default,
            aten._native_batch_norm_legit_no_training.default,
            aten._batch_norm_with_update.default,
            aten._batch_norm_with_update_functional.default,
            aten._batch_norm_no_update.default,
        ),
        _ByARun(by_dtypes=True),
    ),
    # In eager, a bool to the power of a bool is a bool.
    aten.pow.Tensor_Scalar: _power,
    # As `_ByARun()` above, but these divide, and integers cannot be divided by zero.
    **dict.fromkeys(
        (
            *(aten.floor_divide.default, aten.floor_divide.Scalar),
            aten.div.Tensor_mode,
            aten.pow.Scalar,
            aten.lcm.default,
            aten.gcd.default,
        ),
        _ByARun(fill=1),
    ),
}


def has_contiguous_unused_strides(tensor: torch.Tensor) -> bool:
    """True if each dimension of size one has the stride that it has in a contiguous tensor."""
    ones = [dim for dim, size in enumerate(tensor.shape) if known(size == 1)]
    if not ones:
        return True
    strides = contiguous_strides(tensor.shape)
    return all(known(tensor.stride(dim) == strides[dim]) for dim in ones)


# --- view strides ---------------------------------------------------------------------------------
#
# The strides of a view in eager, for views whose strides differ on fakes.


def view_strides(
    sizes: tuple[Size, ...], strides: tuple[Size, ...], viewed: tuple[Size, ...]
) -> tuple[Size, ...] | None:
    """The strides of a view in eager; None if there is no such view, or it depends on a symbol.

    The rule of `computeStride` (aten/src/ATen/TensorUtils.cpp). Dimensions of the operand that
    follow each other in memory are one chunk, and dimensions of the view split each chunk.
    """
    if any(known(size == 0) for size in sizes):
        return strides if equal(sizes, viewed) else tuple(contiguous_strides(viewed))
    found: list[Size] = []
    left = list(viewed)
    chunk, step = 1, strides[-1] if strides else 1
    for index in reversed(range(len(sizes))):
        chunk *= sizes[index]
        if index and known(sizes[index - 1] == 1):
            continue
        if index and known(strides[index - 1] == chunk * step):
            continue
        if index and not known(strides[index - 1] != chunk * step):
            return None
        taken: Size = 1
        while left and (known(left[-1] == 1) or not known(taken == chunk)):
            found.insert(0, taken * step)
            taken *= left.pop()
        if not known(taken == chunk):
            return None
        chunk, step = 1, strides[index - 1]
    return (*[1] * len(left), *found)
