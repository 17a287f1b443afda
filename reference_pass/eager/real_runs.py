"""The layout of a result, observed in a real run: of its call, or of the whole graph.

Sizes that are symbols have their current values (hints) in the run. The observed layout is right
for other sizes, too, if the dims of the operands have the same order in memory, and gaps at the
same positions. So these facts become guards of the graph.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx.node import map_aggregate
from torch.types import py_sym_types
from torch.utils._python_dispatch import _disable_current_modes

from aliasproof.reference_pass.calls.nested import leaves_in, tensors_in
from aliasproof.reference_pass.calls.operator_forms import bind, facts
from aliasproof.reference_pass.calls.regions import Size
from aliasproof.reference_pass.calls.view_forms import mutates_only_metadata
from aliasproof.reference_pass.exceptions import Refused

NO_DATA = "its data is not allocated yet"  # in the error of kernels that read data of fakes


def with_layout_of_run(op: OpOverload, given: dict[str, Any], value: Any, fill: int) -> Any:
    """The result `value` of a call on fakes, with the strides and dtypes of a real run.

    The operands of that run are CPU tensors full of `fill`. If an operand is on another device, or
    a size is data-dependent, there is no run, and the result is `value`.
    """
    if not _can_run(leaves_in(given)):
        return value
    for tensor in tensors_in(given):
        _guard_layout(tensor)
    return _with_layout_of(value, _run(op, given, fill))


@contextlib.contextmanager
def refused_by_fakes(op: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
    """Raises `Refused` if the fake kernel of a call raises, and a real run does not.

    `addbmm_` resizes a smaller operand in eager, `nll_loss_nd` takes one number and one label, and
    the fake kernel of `normal` compares a complex mean with 0.
    """
    try:
        yield
    except (RuntimeError, TypeError) as error:
        # Errors that only fakes raise are not checked by a run.
        is_own = type(error) not in (RuntimeError, TypeError) or NO_DATA in str(error)
        if is_own or not isinstance(op, OpOverload) or mutates_only_metadata(op):
            raise
        given = bind(op, args, kwargs)
        if not _can_run(leaves_in(given)):
            raise
        with contextlib.suppress(RuntimeError, IndexError, ValueError):
            _run(op, given, fill=0)  # 0 is a valid index of any tensor that is not empty
            advice = "; trace it with fixed sizes" if _symbols(leaves_in(given)) else ""
            raise Refused(
                f"{op} raises on tensors without data, and not in eager: {error}{advice}"
            ) from error
        raise


def _run(op: OpOverload, given: dict[str, Any], fill: int) -> Any:
    # Outside of the fake mode and of a trace: these are real calls, which are not in the graph.
    with _disable_current_modes(), torch.random.fork_rng(devices=(), enabled=facts(op).random):
        return op(**map_aggregate(given, lambda leaf: _real(leaf, fill)))


def _can_run(leaves: Sequence[object]) -> bool:
    """True if all tensors are on the CPU, and all sizes and numbers have current values."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return all(tensor.device.type == "cpu" for tensor in tensors) and all(
        number.node.has_hint() for number in _symbols(leaves)
    )


def _symbols(leaves: Sequence[object]) -> list[Any]:
    """The symbols among numbers, and among sizes and strides of tensors."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    sizes = [size for tensor in tensors for size in (*tensor.shape, *tensor.stride())]
    return [number for number in (*leaves, *sizes) if isinstance(number, py_sym_types)]


def current(number: Any) -> Any:
    """The current value of a number that may be a symbol."""
    return number.node.hint if isinstance(number, py_sym_types) else number


def _real(leaf: Any, fill: int) -> Any:
    """An argument of the real run: a CPU tensor of the same current layout and dtype."""
    if not isinstance(leaf, torch.Tensor):
        return current(leaf)
    sizes, strides = map(current, leaf.shape), map(current, leaf.stride())
    real = torch.empty_strided(tuple(sizes), tuple(strides), dtype=leaf.dtype)
    count, offset = real.untyped_storage().nbytes() // real.element_size(), leaf.storage_offset()
    # Filled as one dimension: `fill_` refuses a tensor with a stride of zero.
    filled = torch.full((count + current(offset),), fill, dtype=leaf.dtype)
    return filled.as_strided(real.shape, real.stride(), current(offset))


def _guard_layout(tensor: torch.Tensor) -> None:
    """Note guards on the order of a tensor's dims in memory, and on the gaps between them."""
    dims = [
        (stride, size)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if size != 1
    ]
    dims.sort(key=lambda dim: (current(dim[0]), current(dim[1])))
    # Evaluating a condition on a symbol adds a guard on the answer.
    expected: Size = 1
    for stride, size in dims:
        bool(stride == expected)
        expected = stride * size
    for (stride, size), (next_stride, next_size) in itertools.pairwise(dims):
        bool(size <= next_size if stride == next_stride else stride < next_stride)


def _with_layout_of(value: Any, real: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return tuple(_with_layout_of(one, other) for one, other in zip(value, real, strict=True))
    strides = tuple(map(current, value.stride()))
    if strides == real.stride() and value.dtype == real.dtype:
        return value
    wanted = value.stride() if strides == real.stride() else _strides_like(value.shape, real)
    return value.new_empty_strided(value.shape, wanted, dtype=real.dtype)


def _strides_like(sizes: Sequence[Size], real: torch.Tensor) -> tuple[Size, ...]:
    """The strides of a real tensor, for sizes that may be symbols: the dims in the same order.

    Raises `AssertionError` if the tensor has gaps: a new tensor has none.
    """
    strides: list[Size] = list(real.stride())
    if all(isinstance(size, int) for size in sizes) or 0 in real.shape:
        return tuple(strides)
    step: Size = 1
    # Of dims with the same stride, those of size one come first: the stride does not grow for them.
    for dim in sorted(range(real.dim()), key=lambda dim: (real.stride(dim), real.shape[dim])):
        if real.shape[dim] > 1 or current(step) == real.stride(dim):
            assert current(step) == real.stride(dim)
            strides[dim], step = step, step * sizes[dim]
    return tuple(strides)


# --- what the first run of a graph has observed ---------------------------------------------------
#
# No table can prove that a fake kernel is right. `fake_corrections` has the known errors. All
# others are observed in the first run of a graph (`backend/observed_run.py`), and noted here: the
# layouts of the results of a call, by the layouts of its operands. From then on, the call has these
# layouts on fakes, too, and the graph is made again. A note is a fact about a kernel, so one table
# serves the whole process.


@dataclass(frozen=True, slots=True)
class NotedLayout:
    """The layout of a new tensor: sizes, strides and offset in elements, its storage in bytes."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    nbytes: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> NotedLayout:
        """The layout of a tensor without symbols."""
        nbytes = tensor.untyped_storage().nbytes()
        sizes, strides = tuple(tensor.shape), tensor.stride()
        return cls(sizes, strides, tensor.dtype, int(tensor.storage_offset()), nbytes)

    def new(self, like: torch.Tensor) -> torch.Tensor:
        """A new tensor of this layout, on the device of `like`."""
        memory = like.new_empty(self.nbytes // self.dtype.itemsize, dtype=self.dtype)
        return memory.as_strided(self.sizes, self.strides, self.offset)


_NOTED: dict[object, dict[Any, tuple[NotedLayout, ...]]] = {}


def note(op: OpOverload, given: dict[str, Any], result: Any) -> bool:
    """Note the layouts of a call's results in eager; False if they are known, or are views."""
    is_view = any(returned.alias_info for returned in op._schema.returns)
    layouts, noted = tuple(map(NotedLayout.of, tensors_in(result))), _NOTED.setdefault(op, {})
    key = _key(given)
    if is_view or facts(op).writes or key is None or noted.get(key) == layouts:
        return False
    noted[key] = layouts
    return True


def is_noted(op: object) -> bool:
    """True if layouts are noted for some call of an operator."""
    return op in _NOTED


def noted_layouts(op: object, given: dict[str, Any]) -> tuple[NotedLayout, ...] | None:
    """The layouts of the tensors that a call returns, if they are noted."""
    return _NOTED[op].get(_key(given)) if op in _NOTED else None


def as_noted(op: object, given: dict[str, Any], value: Any) -> Any:
    """The result `value` of a call on fakes, with the layouts that are noted."""
    if (layouts := noted_layouts(op, given)) is None:
        return value
    following = iter(layouts)
    if isinstance(value, torch.Tensor):
        return next(following).new(value)
    return type(value)(
        next(following).new(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in value
    )


def _key(given: dict[str, Any]) -> Any:
    """The arguments of a call, by the layouts of the tensors among them; None with symbols."""
    if _symbols(leaves_in(given)):
        return None
    return tuple(
        (name, *map(_part, leaves_in(argument))) for name, argument in sorted(given.items())
    )


def _part(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        lazy = (leaf.is_conj(), leaf.is_neg())
        return tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device, lazy
    # A layout may depend on an int. The type is part of the key, since 1.0 == 1 == True.
    return type(leaf), leaf if isinstance(leaf, (int, str, torch.dtype)) else None
