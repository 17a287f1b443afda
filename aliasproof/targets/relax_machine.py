"""A Relax function in the virtual machine of TVM, with kernels that LLVM compiles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import tvm
import tvm_ffi
from torch.utils._pytree import tree_leaves, tree_map
from tvm import relax

from aliasproof.targets.relax_capture import Captured
from aliasproof.targets.relax_lines import OpaqueCall, OperandPlace

TARGET = "llvm"


def as_torch(tensor: Any) -> torch.Tensor:
    """A tensor of TVM in its own memory."""
    shared: torch.Tensor = torch.utils.dlpack.from_dlpack(tensor)
    return shared


def machine_of(module: Any, captured: Captured) -> Callable[..., object]:
    """The function, with the writes into its inputs that Relax returns as values."""
    for name, call in captured.lines.opaque.items():
        tvm_ffi.register_global_func(name, functools.partial(run_packed, call), override=True)
    compiled = tvm.compile(module, tvm.target.Target(TARGET))
    machine = relax.VirtualMachine(compiled, tvm.cpu())
    # The machine looks packed functions up when it is made, so another one may have their names.
    constants = captured.lines.given

    def run(*inputs: torch.Tensor) -> object:
        arguments = [
            inputs[index] if length is None else storage_of(inputs[index], length).clone()
            for index, length in captured.prologue
        ]
        given = [tvm.runtime.from_dlpack(it) for it in (*arguments, *constants)]
        values = [as_torch(it) for it in machine["main"](*given)]
        if captured.epilogue:
            # A value may be in the memory of an input, and then it must outlive a write to it.
            values = [it.clone() for it in values]
        count = len(values) - len(captured.epilogue)
        for (index, length), new in zip(captured.epilogue, values[count:], strict=True):
            old = inputs[index]
            (old if length is None else storage_of(old, length)).copy_(new)
        return values[0] if captured.returns_one else tuple(values[:count])

    return run


def storage_of(tensor: torch.Tensor, length: int) -> torch.Tensor:
    """All elements of the storage of a tensor, as a vector."""
    return tensor.as_strided((length,), (1,), 0)


def run_packed(call: OpaqueCall, *tensors: Any) -> None:
    """Run the ATen call of a packed function; the last tensors are for what it returns."""
    given = [as_torch(it) for it in tensors]
    count = max((it.index + 1 for it in places(call)), default=0)
    operands: list[Any] = [it.clone() for it in given[:count]]
    args, kwargs = tree_map(
        lambda it: operands[it.index] if isinstance(it, OperandPlace) else it, call.template
    )
    returned = tree_leaves(call.op(*args, **kwargs))
    made = [*(operands[i] for i in call.written), *(returned[i] for i in call.results)]
    for out, value in zip(given[count:], made, strict=True):
        out.copy_(value)


def places(call: OpaqueCall) -> Sequence[OperandPlace]:
    """The places of tensors among the arguments of a packed function."""
    return [it for it in tree_leaves(call.template) if isinstance(it, OperandPlace)]
