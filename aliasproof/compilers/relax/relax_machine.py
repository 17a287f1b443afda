"""A Relax function in the virtual machine of TVM, with kernels that LLVM compiles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import tvm
import tvm_ffi
from torch.utils._pytree import tree_leaves
from torch.utils.dlpack import from_dlpack
from tvm import relax

from aliasproof.compilers.relax.relax_capture import Captured
from aliasproof.compilers.relax.relax_lines import IN_PLACE, OpaqueCall

TARGET = "llvm"


def run_by_machine(module: Any) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """The function `main` of a module, compiled. It shares memory with its arguments."""
    compiled = tvm.compile(module, tvm.target.Target(TARGET))
    machine = relax.VirtualMachine(compiled, tvm.cpu())

    def run(arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        given = map(tvm.runtime.from_dlpack, arguments)
        return list(map(from_dlpack, machine["main"](*given)))

    return run


def machine_of(module: Any, captured: Captured) -> Callable[..., object]:
    """The function, with the writes into its inputs that Relax returns as values."""
    # The machine looks up packed functions when it is made, so their names may be reused later.
    for name, call in captured.lines.opaque.items():
        for named, packed in ((name, run_packed), (name + IN_PLACE, run_in_place)):
            tvm_ffi.register_global_func(named, functools.partial(packed, call), override=True)
    machine, constants = run_by_machine(module), captured.lines.given

    def main(arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return machine([*arguments, *constants])

    return lambda *inputs: captured.run(main, inputs, lambda op, *args: op(*args))


def run_packed(call: OpaqueCall, *tensors: Any) -> None:
    """Run the ATen call of a packed function; the last tensors receive its results."""
    given = list(map(from_dlpack, tensors))
    operands = [it.clone() for it in given[: call.operands]]
    returned = tree_leaves(called(call, operands))
    made = [*(operands[i] for i in call.written), *(returned[i] for i in call.results)]
    for out, value in zip(given[call.operands :], made, strict=True):
        out.copy_(value)


def run_in_place(call: OpaqueCall, *tensors: Any) -> Any:
    """Run the ATen call of a packed function, and return the tensor that it wrote."""
    called(call, list(map(from_dlpack, tensors)))
    return tensors[call.written[0]]


def called(call: OpaqueCall, operands: Sequence[torch.Tensor]) -> object:
    """The result of the ATen call for these operands."""
    args, kwargs = call.arguments(operands)
    return call.op(*args, **kwargs)
