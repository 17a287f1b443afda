"""A write that became functional returns other strides than the tensor that was written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.utils._pytree import tree_leaves

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view, writes
from aliasproof.corpus.mends import mends
from aliasproof.ir.program import Program
from aliasproof.ir.schemas import facts

aten = torch.ops.aten


@mends("torch._subclasses.functional_tensor:FunctionalTensorMode.__torch_dispatch__")
def mended(
    original: Callable[..., Any],
    self: FunctionalTensorMode,
    func: OpOverload,
    types: Sequence[type],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """After each op under AOTAutograd, what it wrote has the strides that it had before.

    Torch replaces the written tensor with the result of the functional op, whatever its strides.
    """
    before = [
        (tensor, tensor.shape, tensor.stride())
        for tensor in _written_tensors(func, args, kwargs or {})
    ]
    result = original(self, func, types, args, kwargs)
    for tensor, shape, strides in before:
        torch._functionalize_sync(tensor)  # another mend writes through a view of it
        if tensor.shape == shape and tensor.stride() != strides:
            _give_strides(tensor, strides)
    return result


def _written_tensors(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The functional tensors, as C++ sees them, that the op writes."""
    if torch.Tag.inplace_view in op.tags:  # it writes metadata, so its strides may change
        return []
    arguments = op._schema.arguments
    given = dict(enumerate(args))
    for index, argument in enumerate(arguments):
        if argument.name in kwargs:
            given[index] = kwargs[argument.name]
    operands = tree_leaves([given.get(index) for index in facts(op).writes])  # may be lists
    return [operand.elem for operand in operands if isinstance(operand, FunctionalTensor)]


def _give_strides(tensor: torch.Tensor, strides: Sequence[int]) -> None:
    torch._functionalize_sync(tensor)
    inner = torch._from_functional_tensor(tensor)
    empty = aten.new_empty_strided.default(inner, inner.shape, strides)
    torch._functionalize_replace(tensor, aten.copy.default(empty, inner))
    torch._functionalize_commit_update(tensor)
    torch._functionalize_sync(tensor)


def _copies_storage_after_write(program: Program) -> bool:
    scatters = ("select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter")
    return writes(program) and calls(program, "copy", *scatters)


BUG = KnownBug(
    "lost-strides",
    "after a functionalized write, a tensor has the strides that the functional op returns",
    "https://github.com/pytorch/pytorch/issues/133512",
    program_of(
        """
        v0 = aten.copy.default(x0, x0)
        aten.add_.Scalar(v0, 0)
        return (v0,)
        """,
        view(2, strides=(2,)),
    ),
    ("aot", "aot-epilogue"),
    ("2.13", "2.15"),
    mended,
    # The offset is lost as the strides are. A result has the offset of an argument if the op copies
    # the whole storage of that argument.
    mark=Mark(("metadata",), "wrong storage offset", _copies_storage_after_write, reduced=True),
    plausible=writes,
    rank=210,
)
