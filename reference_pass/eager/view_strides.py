"""The strides of a view in eager, where fakes give others."""

from __future__ import annotations

from aliasproof.reference_pass.calls.regions import Size, contiguous_strides, equal, known


def are_numbers(*sizes: Size) -> bool:
    """Whether none of these is a symbol."""
    return all(isinstance(size, int) for size in sizes)


def view_strides(
    sizes: tuple[Size, ...], strides: tuple[Size, ...], viewed: tuple[Size, ...]
) -> tuple[Size, ...] | None:
    """The strides of a view in eager; None if there is no such view, or if a symbol decides it.

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
