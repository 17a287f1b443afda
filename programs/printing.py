"""A `Program` as ordinary Python functions that need torch alone.

Both texts assume `import torch` and `aten = torch.ops.aten`. `programs.parsing` reads `source`
back.
"""

from __future__ import annotations

import keyword
import math
from collections import Counter
from collections.abc import Sequence

import torch

from programs.execution import returns_one_tensor
from programs.program import Argument, Input, Instruction, Program, Ref, Storage
from programs.schemas import resolve
from programs.values import fill

LONGEST_LITERAL = 16  # elements; numbers beyond that are written as a formula if there is one


# --- the program ----------------------------------------------------------------------------------


def source(program: Program) -> str:
    """A function `program` of the inputs that returns the tuple of the outputs."""
    head = f"def program({', '.join(each.name for each in program.inputs)}):"
    return _function(head, map(statement, program.instructions), program.outputs)


def statement(instruction: Instruction) -> str:
    """The instruction as one line of Python."""
    arguments = [expression(each) for each in instruction.args]
    arguments += [_keyword_argument(key, value) for key, value in instruction.kwargs]
    call = f"{_callee(instruction.op)}({', '.join(arguments)})"
    if not instruction.results:
        return call
    if returns_one_tensor(resolve(instruction.op)):
        return f"{instruction.results[0]} = {call}"
    return f"{_tuple(instruction.results)} = {call}"


def expression(argument: Argument) -> str:
    """The argument as Python source."""
    if isinstance(argument, Ref):
        return argument.name
    if isinstance(argument, tuple):
        return f"[{', '.join(map(expression, argument))}]"
    if isinstance(argument, float) and not math.isfinite(argument):
        return f'float("{argument}")'
    return repr(argument)


def _callee(op: str) -> str:
    namespace, name, overload = op.split(".")
    packet = f"aten.{name}" if namespace == "aten" else f"torch.ops.{namespace}.{name}"
    # aten.random_.from is an overload, but `from` may not follow a dot in Python.
    return (
        f'getattr({packet}, "{overload}")'
        if keyword.iskeyword(overload)
        else f"{packet}.{overload}"
    )


def _keyword_argument(key: str, value: Argument) -> str:
    # aten.uniform_ has an argument called `from`.
    return (
        f'**{{"{key}": {expression(value)}}}'
        if keyword.iskeyword(key)
        else f"{key}={expression(value)}"
    )


def _tuple(names: Sequence[str]) -> str:
    """The names as a tuple in every case, as target of an assignment or after `return`."""
    if len(names) > 1:
        return ", ".join(names)
    return f"({names[0]},)" if names else "()"


def _function(head: str, statements: Sequence[str] | map[str], returned: Sequence[str]) -> str:
    return "\n    ".join((head, *statements, f"return {_tuple(returned)}")) + "\n"


# --- its inputs -----------------------------------------------------------------------------------


def inputs_source(program: Program) -> str:
    """A function `inputs` that returns a tuple of the tensors that `programs.values.input_tensors` makes.

    Inputs are detached from the buffers that they view: AOTAutograd looks at `Tensor._base` and
    treats inputs that share a storage differently if some have a base, so the tensors here have
    none, as those of `input_tensors`.
    """
    buffers = [fill(each, index, program.seed) for index, each in enumerate(program.storages)]
    views = Counter(each.storage for each in program.inputs)
    texts = {
        index: numbers(program.storages[index], index, program.seed) for index in sorted(views)
    }
    # A buffer needs a name of its own unless its only view is simply the whole of it.
    plain = {
        each.storage
        for each in program.inputs
        if views[each.storage] == 1 and _whole(each, buffers[each.storage])
    }
    prefix = _unused_prefix(program)
    statements = [
        f"{prefix}{index} = {text}" for index, text in texts.items() if index not in plain
    ]
    for each in program.inputs:
        if each.storage in plain:
            view = _reshaped(each, texts[each.storage])
        else:
            view = _view(each, buffers[each.storage], f"{prefix}{each.storage}")
        statements.append(f"{each.name} = {view}")
    return _function("def inputs():", statements, [each.name for each in program.inputs])


def _whole(view: Input, buffer: torch.Tensor) -> bool:
    """True if the input is its buffer, but for a `Tensor.view`."""
    if view.dtype != buffer.dtype or view.offset or math.prod(view.sizes) != buffer.numel():
        return False
    return buffer.view(view.sizes).stride() == view.strides


def _reshaped(view: Input, text: str) -> str:
    """The view of all of a buffer that has no other view."""
    return text if len(view.sizes) == 1 else f"{text}.view({_sizes(view)}).detach()"


def _view(view: Input, buffer: torch.Tensor, name: str) -> str:
    """A view of a named buffer; always a new tensor, since the buffer may have other views."""
    if _whole(view, buffer):
        return f"{name}.view({_sizes(view)}).detach()"
    if view.dtype == buffer.dtype:
        offset = f", {view.offset}" if view.offset else ""
        return f"torch.as_strided({name}, {view.sizes}, {view.strides}{offset}).detach()"
    layout = f"{view.offset}, {view.sizes}, {view.strides}"
    return f"torch.empty(0, dtype={view.dtype}).set_({name}.untyped_storage(), {layout})"


def _sizes(view: Input) -> str:
    return ", ".join(map(str, view.sizes)) or "()"


def _unused_prefix(program: Program) -> str:
    """A prefix for the names of buffers that no name of an input can be equal to."""
    prefix = "s"
    while any(each.name.startswith(prefix) for each in program.inputs):
        prefix += "s"
    return prefix


def numbers(storage: Storage, index: int, seed: int) -> str:
    """An expression for the tensor `fill(storage, index, seed)`, to which `.view(...)` may be appended as it is."""
    buffer = fill(storage, index, seed)
    text = _arange(_whole_numbers(buffer), storage.dtype)
    if text is None and storage.length > LONGEST_LITERAL:
        text = _formula(buffer, index, seed)
    return (
        text
        or f"torch.tensor([{', '.join(map(_element, buffer.tolist()))}], dtype={storage.dtype})"
    )


def _element(value: object) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else expression(value)
    return str(value).strip("()")  # the parentheses of a complex number


def _whole_numbers(buffer: torch.Tensor) -> list[int]:
    """The elements of a real buffer as integers; an empty list if some are not, or for another dtype."""
    if buffer.dtype.is_complex or buffer.dtype == torch.bool:
        return []
    values = buffer.tolist()
    return (
        [int(each) for each in values] if all(float(each).is_integer() for each in values) else []
    )


# All real dtypes of which `torch.arange` makes tensors; see
# `aten/src/ATen/native/cpu/RangeFactoriesKernel.cpp`.
_ARANGE_DTYPES = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_ARANGE_DTYPES |= {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def _arange(values: Sequence[int], dtype: torch.dtype) -> str | None:
    """The call of `torch.arange` for three or more numbers in arithmetic progression."""
    if len(values) < 3 or values[0] == values[1]:
        return None
    first, step, length = values[0], values[1] - values[0], len(values)
    if any(each != first + step * position for position, each in enumerate(values)):
        return None
    bounds = [first, first + step * length] if first or step != 1 else [length]
    arguments = ", ".join(map(str, bounds + [step] * (step != 1)))
    if dtype == torch.int64:
        return f"torch.arange({arguments})"
    if dtype in _ARANGE_DTYPES:
        return f"torch.arange({arguments}, dtype={dtype})"
    return f"torch.arange({arguments}).to({dtype})"


def _formula(buffer: torch.Tensor, index: int, seed: int) -> str | None:
    """A short expression for a long buffer, if one of the forms that `fill` uses matches it."""
    if buffer.dtype == torch.bool:
        return _bool_formula(buffer, index, seed)
    if buffer.dtype.is_complex:
        real, imag = (_formula(part.clone(), index, seed) for part in (buffer.real, buffer.imag))
        return f"torch.complex({real}, {imag})" if real and imag else None
    values = _whole_numbers(buffer)
    arange, modular = _arange(values, buffer.dtype), _modular(values)
    if arange or not modular:
        return arange
    return f"({modular})" if buffer.dtype == torch.int64 else f"({modular}).to({buffer.dtype})"


def _bool_formula(buffer: torch.Tensor, index: int, seed: int) -> str | None:
    positions = fill(Storage(torch.int64, len(buffer)), index, seed)
    text = _arange(positions.tolist(), torch.int64) or _modular(positions.tolist())
    if text is None or not torch.equal((positions + index) % 3 != 0, buffer):
        return None
    return f"(({text} + {index}) % 3 != 0)" if index else f"({text} % 3 != 0)"


def _modular(values: Sequence[int]) -> str | None:
    """An int64 expression for numbers in arithmetic progression modulo their count or their range."""
    if len(values) < 2:
        return None
    low, length = min(values), len(values)
    first, step = values[0] - low, values[1] - values[0]
    for modulus in (length, max(values) - low + 1):
        if all(
            each - low == (first + position * step) % modulus
            for position, each in enumerate(values)
        ):
            times = f" * {step % modulus}" if step % modulus != 1 else ""
            plus = f" + {first}" if first else ""
            return f"(torch.arange({length}){times}{plus}) % {modulus}" + (
                f" + {low}" if low else ""
            )
    return None
