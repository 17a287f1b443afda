"""When one program is simpler than another: an order that every step of a reduction must go down."""

from __future__ import annotations

from typing import TypeAlias

import torch

from programs.layouts import dense_strides
from programs.program import Argument, Program
from programs.schemas import resolve

Simplicity: TypeAlias = tuple[object, ...]

_PLAIN_DTYPES = [
    torch.float32,
    torch.int64,
    torch.float64,
    torch.bool,
    torch.bfloat16,
    torch.complex64,
]
# A reader knows these at sight; any other op counts as less plain.
_PLAIN_OPS = [
    "aten.alias.default",
    "aten.add_.Scalar",
    "aten.add.Scalar",
    "aten.zero_.default",
    "aten.fill_.Scalar",
    "aten.copy_.default",
    "aten.add.Tensor",
    "aten.clone.default",
    "aten.select.int",
    "aten.slice.Tensor",
    "aten.view.default",
    "aten.transpose.int",
    "aten.expand.default",
]


def simplicity(program: Program) -> Simplicity:
    """A sort key: fewer instructions first, then fewer outputs, inputs and storages, plainer ops, smaller everything."""
    return (
        len(program.instructions),
        len(program.outputs),
        len(program.inputs),
        len(program.inputs)
        - len({each.storage for each in program.inputs}),  # inputs that share a storage
        len(program.storages),
        sum(_op_rank(each.op) for each in program.instructions),
        sum(len(each.results) for each in program.instructions),
        sum(len(each.args) + len(each.kwargs) for each in program.instructions),
        sum(_dtype_rank(each.dtype) for each in program.storages)
        + sum(_dtype_rank(each.dtype) for each in program.inputs),
        sum(len(each.sizes) for each in program.inputs),
        sum(each.nbytes for each in program.storages),
        sum(sum(each.sizes) for each in program.inputs),
        sum(each.strides != dense_strides(each.sizes) for each in program.inputs),
        sum(each.offset + sum(each.strides) for each in program.inputs),
        sum(
            _weight(value)
            for each in program.instructions
            for value in (each.args, *(v for _, v in each.kwargs))
        ),
        program.seed,
        _reach_of_refs(program),
    )


def _op_rank(name: str) -> int:
    if name in _PLAIN_OPS:
        return _PLAIN_OPS.index(name)
    tensors = sum("Tensor" in str(each.type) for each in resolve(name)._schema.arguments)
    return len(_PLAIN_OPS) + tensors


def _dtype_rank(dtype: torch.dtype) -> int:
    return _PLAIN_DTYPES.index(dtype) if dtype in _PLAIN_DTYPES else len(_PLAIN_DTYPES)


def _weight(argument: Argument) -> float:
    """How far the constants are from zero; a negative one counts a little more, a list by its elements."""
    if isinstance(argument, tuple):
        return sum(map(_weight, argument)) + len(argument)
    if isinstance(argument, (bool, int, float)):
        return (
            min(abs(argument), 10**6) + (0.5 if argument < 0 else 0)
            if argument == argument
            else 10**6
        )
    return 0


def _reach_of_refs(program: Program) -> int:
    """The sum of how late the values used are defined: inputs are plainest."""
    order = {each.name: index for index, each in enumerate(program.inputs)}
    total = 0
    for instruction in program.instructions:
        total += sum(order[name] for name in instruction.refs)
        for result in instruction.results:
            order[result] = len(order)
    return total + sum(order[name] for name in program.outputs)
