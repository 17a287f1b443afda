"""Devices: what `--device` accepts, and programs on another device.

A program, and every tensor that it makes, is on one device.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable
from dataclasses import replace

import torch

from aliasproof.ir.errors import UserError
from aliasproof.ir.program import Program
from aliasproof.ir.schemas import resolve

CPU = "cpu"
SUPPORTED = ("cpu", "cuda")
ADVICE = "give cpu, cuda or cuda:NUMBER"


def is_device_name(name: str) -> bool:
    """True for the name of a device that programs can be on, even if this machine has none."""
    return re.fullmatch(r"cpu|cuda(:\d{1,3})?", name, re.ASCII) is not None


def require_device(name: str) -> str:
    """The name, if torch can use the device.

    Raises `UserError` that says what was found instead.
    """
    reason = unavailable(name)
    if reason is not None:
        raise UserError(f"device '{name}' {reason}")
    return name


def unavailable(name: str) -> str | None:
    """The reason why torch cannot use the device of that name; None if it can."""
    if not is_device_name(name):
        known = name.partition(":")[0] in SUPPORTED
        return f"{'does not exist' if known else 'is not supported'}; {ADVICE}"
    if name == CPU:
        return None
    reason = without_cuda()
    if reason is not None:
        return f"cannot be used: {reason}"
    count = torch.cuda.device_count()
    if int(name.partition(":")[2] or 0) < count:
        return None
    devices = ", ".join(f"cuda:{index}" for index in range(count))
    return f"does not exist; this machine has {devices}"


def full_name(name: str) -> str:
    """A device for people, such as 'cuda:0 (NVIDIA H100)'; only the name if it is not available."""
    here = name != CPU and unavailable(name) is None
    return f"{name} ({torch.cuda.get_device_name(name)})" if here else name


def vector_bits() -> int:
    """The width in bits of the vectors in Inductor's C++ code; 0 if it is scalar.

    It depends on the processor, ATEN_CPU_CAPABILITY and `cpp.simdlen`.
    """
    from torch._inductor.cpu_vec_isa import pick_vec_isa  # noqa: PLC0415 - takes two seconds

    return pick_vec_isa().bit_width()


def cpu_capability() -> str:
    """The vector instructions that eager's kernels use on this processor, such as 'AVX2'."""
    return str(torch.backends.cpu.get_cpu_capability())


def without_cuda() -> str | None:
    """The reason why torch cannot use CUDA; None if it can."""
    version = torch.__version__
    if not torch.backends.cuda.is_built():
        return f"torch {version} is built without CUDA; install a build with CUDA"
    if torch.cuda.is_available():
        return None
    try:
        torch.cuda.init()
    # Any error that keeps the driver from starting is the reason.
    except Exception as error:  # noqa: BLE001 - see above
        first, *_ = str(error).strip().split(". ")
        return f"torch {version} is built for CUDA {torch.version.cuda}, but {first}"
    return f"torch {version} is built for CUDA {torch.version.cuda}, but finds no device"


def on_device(program: Program, device: str) -> Program:
    """The same program on a device: its storages, and the results of its factory ops."""
    if device == program.device:
        return program
    calls = []
    for call in program.instructions:
        kwargs = [item for item in call.kwargs if item[0] != "device"]
        # An op with a tensor operand follows its device, and the CPU needs no name.
        if device != CPU and not call.refs and _takes_device(call.op):
            kwargs.append(("device", device))
        calls.append(replace(call, kwargs=tuple(kwargs)))
    return replace(program, instructions=tuple(calls), device=device)


@functools.cache
def _takes_device(op: str) -> bool:
    return any(argument.name == "device" for argument in resolve(op)._schema.arguments)


# --- errors of a device ---------------------------------------------------------------------------


def finish(tensors: Iterable[object]) -> None:
    """Wait until the devices of these tensors are done. Their errors are raised here.

    A kernel of CUDA runs after the call that starts it has returned.
    """
    for device in dict.fromkeys(t.device for t in tensors if isinstance(t, torch.Tensor)):
        if device.type == "cuda":
            torch.cuda.synchronize(device)


# --- printed source -------------------------------------------------------------------------------


# Functions of `torch`, and operators, that make tensors from numbers only.
_FACTORIES = {
    *("tensor", "scalar_tensor", "empty", "zeros", "ones", "full", "arange", "linspace", "eye"),
    *("empty_strided", "empty_permuted", "rand", "randn", "randint", "randperm"),
}


def with_device(text: str, device: str) -> str:
    """The Python source of a program or of inputs on the CPU, with the device in each factory.

    So the source can be made and checked on a machine without the device.
    """
    if device == CPU:
        return text
    lines = text.encode().splitlines(keepends=True)
    calls = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and (called := re.fullmatch(r"(?:torch|aten)\.(\w+)(?:\.\w+)?", ast.unparse(node.func)))
        and called[1] in _FACTORIES
    ]
    # From the end, so that the other positions stay valid. Positions count bytes.
    for call in sorted(calls, key=lambda call: (call.end_lineno, call.end_col_offset))[::-1]:
        assert call.end_lineno is not None
        assert call.end_col_offset is not None
        line, end = lines[call.end_lineno - 1], call.end_col_offset - 1
        comma = b", " if call.args or call.keywords else b""
        added = comma + f'device="{device}"'.encode()
        lines[call.end_lineno - 1] = line[:end] + added + line[end:]
    return b"".join(lines).decode()
