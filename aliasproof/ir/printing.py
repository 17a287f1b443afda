"""A `Program` as ordinary Python functions that need only torch.

Both texts assume `import torch` and `aten = torch.ops.aten`. `aliasproof.ir.parsing` reads
the text of `source` back.
"""

from __future__ import annotations

import itertools
import keyword
import math
from collections import Counter
from collections.abc import Sequence

import torch

from aliasproof.ir.devices import with_device
from aliasproof.ir.execution import returns_one_tensor
from aliasproof.ir.program import Argument, Input, Instruction, Program, Ref, Storage
from aliasproof.ir.schemas import resolve
from aliasproof.ir.values import element_text, fill, storage_data

NO_GRAD = "with torch.no_grad():"
LONGEST_LITERAL = 16  # elements; a longer buffer is printed as a formula if there is one


# --- the program ----------------------------------------------------------------------------------


def source(program: Program) -> str:
    """A function `program` of the inputs that returns the tuple of the outputs."""
    head = f"def program({', '.join(view.name for view in program.inputs)}):"
    return _function(head, statements(program.instructions), program.outputs)


def statements(instructions: Sequence[Instruction]) -> list[str]:
    """The instructions as lines of Python. Instructions without gradients are in `with` blocks."""
    lines = []
    for grad, group in itertools.groupby(instructions, key=lambda instruction: instruction.grad):
        texts = list(map(statement, group))
        lines += texts if grad else [NO_GRAD, *(f"    {text}" for text in texts)]
    return lines


def statement(instruction: Instruction) -> str:
    """The instruction as one line of Python."""
    namespace, name, overload = instruction.op.split(".")
    packet = f"aten.{name}" if namespace == "aten" else f"torch.ops.{namespace}.{name}"
    # aten.random_.from is an overload, but `from` may not follow a dot in Python.
    reserved = keyword.iskeyword(overload)
    callee = f'getattr({packet}, "{overload}")' if reserved else f"{packet}.{overload}"
    arguments = [expression(argument) for argument in instruction.args]
    for key, value in instruction.kwargs:
        text = expression(value)
        # aten.uniform_ has an argument called `from`.
        arguments.append(f'**{{"{key}": {text}}}' if keyword.iskeyword(key) else f"{key}={text}")
    call = f"{callee}({', '.join(arguments)})"
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


def _tuple(names: Sequence[str]) -> str:
    """The names as a tuple, also for fewer than two names."""
    if len(names) > 1:
        return ", ".join(names)
    return f"({names[0]},)" if names else "()"


def _function(head: str, lines: Sequence[str], returned: Sequence[str]) -> str:
    return "\n    ".join((head, *lines, f"return {_tuple(returned)}")) + "\n"


# --- its inputs -----------------------------------------------------------------------------------


def inputs_source(program: Program) -> str:
    """A function `inputs` that returns a tuple of the same tensors as `input_tensors`.

    The printed inputs are detached from the buffers that they view. AOTAutograd treats inputs that
    share a storage differently if some have a `Tensor._base`; those of `input_tensors` have none.
    """
    buffers = [storage_data(program, index) for index in range(len(program.storages))]
    views = Counter(view.storage for view in program.inputs)
    texts = {index: buffer_source(program, index) for index in sorted(views)}
    # A buffer needs a name unless its only view is the whole buffer.
    unnamed = {
        view.storage
        for view in program.inputs
        if views[view.storage] == 1 and _whole(view, buffers[view.storage])
    }
    prefix = "s"
    while any(view.name.startswith(prefix) for view in program.inputs):
        prefix += "s"
    statements = [
        f"{prefix}{index} = {text}" for index, text in texts.items() if index not in unnamed
    ]
    for view in program.inputs:
        if view.storage in unnamed:
            value = texts[view.storage]
            # A 1-d buffer is the input itself: no view, so nothing to detach.
            if len(view.sizes) != 1:
                value += f".view({_sizes(view)}).detach()"
        else:
            value = _view(view, buffers[view.storage], f"{prefix}{view.storage}")
        statements.append(f"{view.name} = {value}")
    statements += static_marks(program)
    text = _function("def inputs():", statements, [view.name for view in program.inputs])
    return with_device(text, program.device)


def static_marks(program: Program) -> list[str]:
    """The calls that make named tensors static inputs."""
    static = [view.name for view in program.inputs if view.static]
    return [f"torch._dynamo.mark_static_address({name})" for name in static]


def _whole(view: Input, buffer: torch.Tensor) -> bool:
    """True if `Tensor.view` of the whole buffer gives the input."""
    if view.dtype != buffer.dtype or view.offset or math.prod(view.sizes) != buffer.numel():
        return False
    return buffer.view(view.sizes).stride() == view.strides


def _view(view: Input, buffer: torch.Tensor, name: str) -> str:
    """A view of a named buffer: always a new tensor, since the buffer may have other views."""
    if _whole(view, buffer):
        return f"{name}.view({_sizes(view)}).detach()"
    if view.dtype == buffer.dtype:
        offset = f", {view.offset}" if view.offset else ""
        return f"torch.as_strided({name}, {view.sizes}, {view.strides}{offset}).detach()"
    # No view op reads a buffer as another dtype at any offset and strides, so `set_` is used.
    layout = f"{view.offset}, {view.sizes}, {view.strides}"
    return f"torch.empty(0, dtype={view.dtype}).set_({name}.untyped_storage(), {layout})"


def _sizes(view: Input) -> str:
    return ", ".join(map(str, view.sizes)) or "()"


def buffer_source(program: Program, index: int) -> str:
    """An expression for the tensor `filled(program, index)`, equal in every bit.

    `.view(...)` may be appended to it without parentheses.
    """
    buffer, seed = storage_data(program, index), program.seed
    text = _arange(_whole_numbers(buffer), buffer.dtype)
    if text is None and len(buffer) > LONGEST_LITERAL:
        text = _formula(buffer, index, seed) or _repetition(buffer)
    return text or _literal(buffer.tolist(), buffer.dtype)


def _literal(values: Sequence[object], dtype: torch.dtype, repeated: str = "{}") -> str:
    elements = repeated.format(f"[{', '.join(map(_element, values))}]")
    return f"torch.tensor({elements}, dtype={dtype})"


def _element(value: object) -> str:
    """The number as Python source that evaluates to the same bits."""
    if isinstance(value, float):
        return element_text(value) if math.isfinite(value) else expression(value)
    if isinstance(value, complex):
        # Python reads `-0+1j` as a sum, and `-1j` as a negation: both lose the sign of a zero.
        plain = value.real != 0 and all(map(_plain_part, (value.real, value.imag)))
        return str(value).strip("()") if plain else f'complex("{str(value).strip("()")}")'
    return str(value)


def _plain_part(part: float) -> bool:
    return math.isfinite(part) and (part != 0 or math.copysign(1, part) > 0)


def _whole_numbers(buffer: torch.Tensor) -> list[int]:
    """The elements of a real buffer as integers; an empty list if some are not small integers."""
    if buffer.dtype.is_complex or buffer.dtype == torch.bool:
        return []
    values = buffer.tolist()
    # -0.0 is integral too, but as an integer it would lose its sign.
    if not all(_plain_part(value) and float(value).is_integer() for value in values):
        return []
    # The formulas count in int64.
    return [int(value) for value in values] if all(abs(v) < 2**53 for v in values) else []


def _repetition(buffer: torch.Tensor) -> str | None:
    """A short list of values, repeated up to the length of the buffer, as `Storage.values` are."""
    values = list(map(_element, buffer.tolist()))
    for period in range(1, LONGEST_LITERAL + 1):
        if all(value == values[place % period] for place, value in enumerate(values)):
            times, rest = divmod(len(values), period)
            cut = f"({{}} * {times + 1})[:{len(values)}]" if rest else f"{{}} * {times}"
            return _literal(buffer[:period].tolist(), buffer.dtype, cut)
    return None


# The real dtypes that `torch.arange` supports; see
# `aten/src/ATen/native/cpu/RangeFactoriesKernel.cpp`.
_ARANGE_DTYPES = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_ARANGE_DTYPES |= {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def _arange(values: Sequence[int], dtype: torch.dtype) -> str | None:
    """The call of `torch.arange` for three or more values in arithmetic progression."""
    if len(values) < 3 or values[0] == values[1]:
        return None
    first, step, length = values[0], values[1] - values[0], len(values)
    if any(value != first + step * position for position, value in enumerate(values)):
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
        # `fill` computes bools from the permuted positions, which are its values for int64.
        positions = fill(Storage(torch.int64, len(buffer)), index, seed)
        text = _arange(positions.tolist(), torch.int64) or _modular(positions.tolist())
        if text is None or not torch.equal((positions + index) % 3 != 0, buffer):
            return None
        return f"(({text} + {index}) % 3 != 0)" if index else f"({text} % 3 != 0)"
    if buffer.dtype.is_complex:
        real, imag = (_formula(part.clone(), index, seed) for part in (buffer.real, buffer.imag))
        return f"torch.complex({real}, {imag})" if real and imag else None
    values = _whole_numbers(buffer)
    arange, modular = _arange(values, buffer.dtype), _modular(values)
    if arange or not modular:
        return arange
    return f"({modular})" if buffer.dtype == torch.int64 else f"({modular}).to({buffer.dtype})"


def _modular(values: Sequence[int]) -> str | None:
    """An int64 expression for values in arithmetic progression modulo their count or their range.

    The seed permutes a buffer by such a progression; see `fill`.
    """
    if len(values) < 2 or values[0] == values[1]:
        return None
    low, length = min(values), len(values)
    first, step = values[0] - low, values[1] - values[0]
    # Modulo the range: narrow dtypes wrap around before the end of the buffer.
    for modulus in (length, max(values) - low + 1):
        progression = ((first + position * step) % modulus for position in range(length))
        if all(value - low == term for value, term in zip(values, progression, strict=True)):
            times = f" * {step % modulus}" if step % modulus != 1 else ""
            plus = f" + {first}" if first else ""
            text = f"(torch.arange({length}){times}{plus}) % {modulus}"
            return text + (f" + {low}" if low else "")
    return None
