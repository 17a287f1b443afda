"""Inputs of a plain match in other layouts, each with a storage of its own or a shared one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from aliasproof.generators.scene import NoChoice, Pick
from aliasproof.ir.program import Input, Program
from aliasproof.ir.regions import dense_strides, reach


def is_expanded(tensor: torch.Tensor) -> bool:
    """True if elements along a dimension are the same."""
    return any(
        size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def is_transposed(tensor: torch.Tensor) -> bool:
    """True if dimensions are in another order in memory than in the shape."""
    strides = [
        stride
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if size > 1 and stride > 0
    ]
    return strides != sorted(strides, reverse=True)


def _changed(
    pick: Pick, program: Program, fits: Callable[[Input], bool], reason: str
) -> tuple[int, Input]:
    """The index of an input that fits, and the input. Raises `NoChoice` without one."""
    indices = [index for index, view in enumerate(program.inputs) if fits(view)]
    if not indices:
        raise NoChoice(reason)
    index = pick.one(indices)
    return index, program.inputs[index]


def _with(program: Program, index: int, view: Input) -> Program:
    """The program with that input, and a storage that is long enough for all its views."""
    program = program.with_input(index, view)
    storages = list(program.storages)
    needed = view.offset + reach(view.sizes, view.strides)
    own = storages[view.storage]
    storages[view.storage] = replace(own, length=max(own.length, needed))
    return replace(program, storages=tuple(storages))


def expanded(pick: Pick, program: Program) -> Program:
    """An operand has the same elements along a dimension."""
    reason = "no operand has a dimension with several elements"
    fits = lambda view: any(size > 1 for size in view.sizes)  # noqa: E731 - one rule per line
    index, view = _changed(pick, program, fits, reason)
    dim = pick.one([dim for dim, size in enumerate(view.sizes) if size > 1])
    kept = tuple(1 if each == dim else size for each, size in enumerate(view.sizes))
    strides = dense_strides(kept)
    repeated = tuple(0 if each == dim else stride for each, stride in enumerate(strides))
    return _with(program, index, replace(view, strides=repeated))


def transposed(pick: Pick, program: Program) -> Program:
    """An operand has its dimensions in another order in memory."""
    reason = "no operand has two dimensions with several elements"
    fits = lambda view: sum(size > 1 for size in view.sizes) >= 2  # noqa: E731
    index, view = _changed(pick, program, fits, reason)
    strides = dense_strides(view.sizes[::-1])[::-1]
    if strides == view.strides:
        strides = dense_strides(view.sizes)
    return _with(program, index, replace(view, strides=strides))


def with_offset(pick: Pick, program: Program) -> Program:
    """An operand does not begin at the start of its storage."""
    index, view = _changed(pick, program, lambda view: True, "the match takes no tensor")
    return _with(program, index, replace(view, offset=view.offset + pick.one((1, 2, 3))))


def aliased(pick: Pick, program: Program) -> Program:
    """Two operands share a storage: the same elements, or some of them."""
    pairs = [
        (first, second)
        for first, one in enumerate(program.inputs)
        for second, other in enumerate(program.inputs)
        if first < second and one.dtype == other.dtype and 0 not in (*one.sizes, *other.sizes)
    ]
    if not pairs:
        raise NoChoice("no two operands have one dtype")
    first, second = pick.one(pairs)
    one, other = program.inputs[first], program.inputs[second]
    span = reach(one.sizes, one.strides)
    offset = one.offset + pick.one((0, 0, 1, span // 2)) if span > 1 else one.offset
    shared = replace(other, storage=one.storage, offset=min(offset, one.offset + span - 1))
    return without_unused_storages(_with(program, second, shared))


def without_unused_storages(program: Program) -> Program:
    """The program without the storages that no input views."""
    used = sorted({view.storage for view in program.inputs})
    return replace(
        program,
        storages=tuple(program.storages[index] for index in used),
        inputs=tuple(replace(view, storage=used.index(view.storage)) for view in program.inputs),
    )
