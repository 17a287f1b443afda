"""Steps on inputs and storages: remove them, separate them, or make their layouts plainer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import torch

from aliasproof.ir.program import Input, Program, Storage
from aliasproof.ir.regions import dense_strides, reach
from aliasproof.ir.values import storage_data, texts_of
from aliasproof.reduction.edits import (
    put,
    tidy_versions,
    without,
    without_undefined,
)

# --- removing, separating -------------------------------------------------------------------------


def settle_inputs(program: Program) -> Iterator[Program]:
    """Remove the inputs that no instruction uses, or add uses of them."""
    yield from tidy_versions(program)


def drop_inputs(program: Program) -> Iterator[Program]:
    """Remove an input. If it is used, replace it by another input, or remove its users, too."""
    used = {name for instruction in program.instructions for name in instruction.refs}
    used |= set(program.outputs)
    for index, view in enumerate(program.inputs):
        smaller = replace(program, inputs=without(program.inputs, index))
        if view.name not in used:
            yield smaller
        else:
            for other in smaller.inputs:
                yield smaller.with_names({view.name: other.name})
            yield without_undefined(smaller)


def separate_storages(program: Program) -> Iterator[Program]:
    """Give an input that shares a storage a storage of its own."""
    for index, view in enumerate(program.inputs):
        if sum(other.storage == view.storage for other in program.inputs) > 1:
            # Just large enough for this input; the others keep the shared storage.
            own = Storage(view.dtype, view.offset + reach(view.sizes, view.strides))
            apart = program.with_input(index, replace(view, storage=len(program.storages)))
            yield replace(apart, storages=(*program.storages, own))


# --- dtypes and layouts ---------------------------------------------------------------------------


def simplify_dtypes(program: Program) -> Iterator[Program]:
    """Change all dtypes to float32 or int64; then those of one storage at a time."""
    # All at once first: most ops need operands of one dtype.
    for plain in (torch.float32, torch.int64):
        yield _with_dtypes(program, dict.fromkeys(range(len(program.storages)), plain))
    for index in range(len(program.storages)):
        for plain in (torch.float32, torch.int64):
            yield _with_dtypes(program, {index: plain})


def _with_dtypes(program: Program, dtypes: dict[int, torch.dtype]) -> Program:
    """Change the dtypes of storages by index, and of the inputs with the dtype of their storage.

    Lengths in elements stay. An input that reinterprets its storage keeps its dtype.
    """
    storages = tuple(
        replace(storage, dtype=dtypes.get(index, storage.dtype))
        for index, storage in enumerate(program.storages)
    )
    inputs = tuple(
        replace(view, dtype=dtypes[view.storage])
        if view.storage in dtypes and view.dtype == program.storages[view.storage].dtype
        else view
        for view in program.inputs
    )
    return replace(program, storages=storages, inputs=inputs)


def simplify_layouts(program: Program) -> Iterator[Program]:
    """Make an input dense, bring its offset to 0, or cut a storage to the extent of its inputs."""
    for index, view in enumerate(program.inputs):
        for simpler in _simpler_layouts(view):
            yield program.with_input(index, simpler)
    for index in range(len(program.storages)):
        yield _fitted(program, {index})


def _simpler_layouts(view: Input) -> Iterator[Input]:
    dense = dense_strides(view.sizes)
    yield replace(view, strides=dense, offset=0)
    yield replace(view, strides=dense)
    yield replace(view, offset=0)
    # If the failure needs an offset, 1 is the plainest. A large stride is halved several times.
    if view.offset > 1:
        yield replace(view, offset=1)
    for dim, stride in enumerate(view.strides):
        for less in sorted({1, stride // 2, stride - 1}):
            if 0 < less < stride:
                yield replace(view, strides=put(view.strides, dim, less))


def simplify_seed(program: Program) -> Iterator[Program]:
    """Fill the storages with 1, 2, 3, ..."""
    if program.seed:
        yield replace(program, seed=0)


# --- sizes ----------------------------------------------------------------------------------------


def drop_dimensions(program: Program) -> Iterator[Program]:
    """Remove the same dimension of all inputs, or one dimension of one input."""
    # All inputs together first: a pointwise op needs operands with equally many dimensions.
    for dim in range(max((len(view.sizes) for view in program.inputs), default=0)):
        inputs = tuple(_without_dimension(view, dim) for view in program.inputs)
        yield _fitted(replace(program, inputs=inputs))
    for index, view in enumerate(program.inputs):
        for dim in range(len(view.sizes)):
            yield _fitted(program.with_input(index, _without_dimension(view, dim)))


def _without_dimension(view: Input, dim: int) -> Input:
    return replace(view, sizes=without(view.sizes, dim), strides=without(view.strides, dim))


def shrink_sizes(program: Program) -> Iterator[Program]:
    """Make a size smaller wherever it occurs; then only in one dimension of one input."""
    # Equal sizes usually belong together (operands of one op, a shape argument), so they shrink
    # together. The largest size is first.
    sizes = sorted(
        {size for view in program.inputs for size in view.sizes if size > 1}, reverse=True
    )
    for size in sizes:
        for smaller in dict.fromkeys((1, 2, size // 2, size - 1)):
            if smaller < size:
                yield from _with_size(program, size, smaller)
    for index, view in enumerate(program.inputs):
        for dim, size in enumerate(view.sizes):
            for smaller in dict.fromkeys((0, 1, 2, size // 2, size - 1)):
                if 0 <= smaller < size:
                    changed = replace(view, sizes=put(view.sizes, dim, smaller))
                    yield _fitted(program.with_input(index, _dense_if_dense(view, changed)))


def _with_size(program: Program, size: int, smaller: int) -> Iterator[Program]:
    """Replace a size: in inputs and arguments; then with its multiples; then only in inputs.

    Multiples occur where dimensions are joined, as by `view`: batch times heads, for example.
    """

    def replaced(number: int) -> int:
        return smaller if number == size else number

    def scaled(number: int) -> int:
        return number // size * smaller if number % size == 0 else number

    resized = _with_sizes(program, replaced)
    yield _fitted(_with_sizes_in_arguments(resized, replaced))
    yield _fitted(_with_sizes_in_arguments(_with_sizes(program, scaled), scaled))
    yield _fitted(resized)


def _with_sizes(program: Program, changed: Callable[[int], int]) -> Program:
    inputs = [
        _dense_if_dense(view, replace(view, sizes=tuple(map(changed, view.sizes))))
        for view in program.inputs
    ]
    return replace(program, inputs=tuple(inputs))


def _with_sizes_in_arguments(program: Program, changed: Callable[[int], int]) -> Program:
    """The program with changed sizes inside lists. A number outside a list is not a size."""
    instructions = [
        replace(
            instruction,
            args=tuple(
                tuple(changed(item) if type(item) is int else item for item in argument)
                if isinstance(argument, tuple)
                else argument
                for argument in instruction.args
            ),
        )
        for instruction in program.instructions
    ]
    return replace(program, instructions=tuple(instructions))


def _dense_if_dense(before: Input, after: Input) -> Input:
    """`after` with dense strides if `before` is dense, in row-major or in column-major order."""
    # Other strides are kept: the failure may depend on them.
    if before.strides == dense_strides(before.sizes):
        return replace(after, strides=dense_strides(after.sizes))
    if before.strides == dense_strides(before.sizes[::-1])[::-1]:
        return replace(after, strides=dense_strides(after.sizes[::-1])[::-1])
    return after


def _fitted(program: Program, indices: Collection[int] | None = None) -> Program:
    """The program with storages cut to the extent of their inputs: all, or those at `indices`."""
    storages = []
    for index, storage in enumerate(program.storages):
        # In bytes, since an input may have another item size than its storage.
        ends = [
            (view.offset + reach(view.sizes, view.strides)) * view.dtype.itemsize
            for view in program.inputs
            if view.storage == index
        ]
        needed = -(-max(ends, default=0) // storage.dtype.itemsize)  # rounded up to elements
        fitted = replace(storage, length=min(needed, storage.length))
        storages.append(fitted if indices is None or index in indices else storage)
    return replace(program, storages=tuple(storages))


# --- value steps ----------------------------------------------------------------------------------
#
# Steps on the data in storages: plain values if these fail, else a few explicit values.


# The simplest explicit values that are not plain, and one plain value beside them.
_SIMPLE = ("1", "inf", "nan", "-0.0", "1e20")
# At most this many values of a storage are tried one by one; of more, each half is tried first.
_MOST_SINGLE = 32


def plain_values(program: Program) -> Iterator[Program]:
    """Fill all storages with plain values at once."""
    storages = tuple(replace(storage, values=()) for storage in program.storages)
    yield replace(program, storages=storages, fill="plain")


def simplify_fill(program: Program) -> Iterator[Program]:
    """Fill the storages with plain values; if that does not fail, use explicit values."""
    if program.fill == "plain":
        return
    yield replace(program, fill="plain")
    # One storage by itself first: often only one operand must be special.
    for index in range(len(program.storages)):
        yield _with_named_values(program, [index])
    yield _with_named_values(program, range(len(program.storages)))


def _with_named_values(program: Program, indices: range | list[int]) -> Program:
    """The program with the plain fill; some storages keep their present values explicitly."""
    storages = list(program.storages)
    for index in indices:
        storages[index] = replace(storages[index], values=texts_of(storage_data(program, index)))
    return replace(program, fill="plain", storages=tuple(storages))


def simplify_values(program: Program) -> Iterator[Program]:
    """Remove the explicit values of a storage, or some of them, or make one simpler."""
    for index, storage in enumerate(program.storages):
        for simpler in _simpler_storages(storage):
            yield replace(program, storages=put(program.storages, index, simpler))


def _simpler_storages(storage: Storage) -> Iterator[Storage]:
    values = storage.values
    if not values:
        return
    yield replace(storage, values=())
    yield replace(storage, values=values[: storage.length])
    # Values are repeated to fill the storage, so some of them may suffice.
    if len(values) > _MOST_SINGLE:
        middle = len(values) // 2
        yield replace(storage, values=values[:middle])
        yield replace(storage, values=values[middle:])
    single = values[:_MOST_SINGLE]
    yield from (replace(storage, values=(value,)) for value in dict.fromkeys(single))
    for position, value in enumerate(single):
        yield replace(storage, values=without(values, position))
        for simple in _SIMPLE:
            if simple != value:
                yield replace(storage, values=put(values, position, simple))
