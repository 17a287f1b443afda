"""The inputs of a `Program` in ordinary tensor syntax, such as `base[1:3]`, for people to read.

The printed function is run, and used only if it makes the tensors that `input_tensors` makes.
Otherwise `aliasproof.programs.printing.inputs_source` prints the inputs.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from aliasproof.programs.devices import CPU, on_device, with_device
from aliasproof.programs.layouts import dense_strides
from aliasproof.programs.printing import inputs_source, static_marks
from aliasproof.programs.program import Input, Program
from aliasproof.programs.values import STATIC, input_tensors

LONGEST_LITERAL = 80  # characters


def ordinary_inputs(program: Program, *, near: bool = False) -> str:
    """A function `inputs` that returns a tuple of the input tensors. It assumes `import torch`.

    With `near`, an input may be a view of another tensor: its `_base` is not None, as those of
    `input_tensors` are. AOTAutograd treats the two differently in rare cases.
    """
    on_cpu = on_device(program, CPU)
    text = _text(on_cpu, near=near)
    if text is not None and _makes(on_cpu, text, near=near):
        return with_device(text, program.device)
    return inputs_source(program)


def _text(program: Program, *, near: bool) -> str | None:
    """The function, or None if a buffer has no short text."""
    buffers = _buffers(program)
    texts = {index: _buffer_text(buffer) for index, buffer in buffers.items()}
    statements: list[str] = []
    values: dict[str, str] = {}
    for index, text in texts.items():
        if text is None:
            return None
        views = [view for view in program.inputs if view.storage == index]
        base, rest = _base(views, buffers[index])
        if len(views) == 1:
            whole = base is not None  # the buffer itself, so there is no view to detach
            short = text.startswith(("torch.arange", "torch.full"))
            literal = None if short else _literal(views[0], buffers[index])
            text = (
                text if whole else literal or _view_text(text, views[0], buffers[index], near=near)
            )
            values[views[0].name] = text
            continue
        name = base or _unused_name(program, index, len(buffers))
        statements.append(f"{name} = {text}")
        for view in rest:
            values[view.name] = _view_text(name, view, buffers[index], near=near)
    names, marks = [view.name for view in program.inputs], static_marks(program)
    if not statements and not marks and len(names) == 1:
        return f"def inputs():\n    return ({values[names[0]]},)\n"
    statements += [f"{name} = {value}" for name, value in values.items()] + marks
    returned = f"({names[0]},)" if len(names) == 1 else ", ".join(names) or "()"
    return "\n    ".join(("def inputs():", *statements, f"return {returned}")) + "\n"


def _buffers(program: Program) -> dict[int, torch.Tensor]:
    """The storages that inputs view, as 1-d tensors of the dtypes in which they are filled."""
    buffers = {}
    for view, tensor in zip(program.inputs, input_tensors(program), strict=True):
        storage = program.storages[view.storage]
        whole = torch.empty(0, dtype=storage.dtype)
        buffers[view.storage] = whole.set_(tensor.untyped_storage(), 0, (storage.length,), (1,))
    return dict(sorted(buffers.items()))


def _base(views: Sequence[Input], buffer: torch.Tensor) -> tuple[str | None, list[Input]]:
    """The input that is simply the whole buffer, if there is one, and the other inputs."""
    for view in views:
        if (view.dtype, view.sizes, view.strides) == (buffer.dtype, tuple(buffer.shape), (1,)):
            return view.name, [other for other in views if other is not view]
    return None, list(views)


def _unused_name(program: Program, index: int, count: int) -> str:
    """A name for a buffer, which no input has."""
    name = f"base{index}" if count > 1 else "base"
    while any(view.name == name for view in program.inputs):
        name += "_"
    return name


# --- views ----------------------------------------------------------------------------------------


def _view_text(name: str, view: Input, buffer: torch.Tensor, *, near: bool) -> str:
    """The input as a view of the buffer that `name` stands for."""
    for text in _views(view, buffer):
        try:
            tensor = eval(f"base{text}", {"base": buffer, "torch": torch})  # noqa: S307 - our own text
        except (RuntimeError, IndexError, TypeError, ValueError):
            continue  # torch cannot make this view of this buffer
        layout = tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
        if layout == (view.dtype, view.sizes, view.strides, view.offset):
            return f"{name}{text}" + ("" if near else ".detach()")
    # Only a storage that is set has this dtype, offset and strides.
    layout_text = f"{view.offset}, {view.sizes}, {view.strides}"
    return f"torch.empty(0, dtype={view.dtype}).set_({name}.untyped_storage(), {layout_text})"


def _views(view: Input, buffer: torch.Tensor) -> Iterator[str]:
    """What may follow the name of the buffer, the shortest first. None needs to be right."""
    as_dtype = "" if view.dtype == buffer.dtype else f".view({view.dtype})"
    count = math.prod(view.sizes)
    piece = f"[{view.offset or ''}:{view.offset + count}]"
    shape = ", ".join(map(str, view.sizes)) or "()"
    if as_dtype:
        yield as_dtype
    yield f"{as_dtype}.view({shape})"
    yield f"{as_dtype}{piece}"
    if len(view.sizes) == 1:
        end = view.offset + (view.sizes[0] - 1) * view.strides[0] + 1
        yield f"{as_dtype}[{view.offset or ''}:{end}:{view.strides[0]}]"
    yield f"{as_dtype}{piece}.view({shape})"
    if len(view.sizes) == 2:
        swapped = f".view({view.sizes[1]}, {view.sizes[0]}).t()"
        yield f"{as_dtype}{swapped}"
        yield f"{as_dtype}{piece}{swapped}"
    offset = f", {view.offset}" if view.offset else ""
    yield f"{as_dtype}.as_strided({view.sizes}, {view.strides}{offset})"


# --- data -----------------------------------------------------------------------------------------


# `torch.tensor` of Python numbers has these dtypes.
_DTYPES_OF_LITERALS = (torch.float32, torch.int64, torch.bool, torch.complex64)


def _buffer_text(buffer: torch.Tensor) -> str | None:
    """A short expression for a 1-d tensor; None if there is none."""
    values = buffer.tolist()
    kind = "" if buffer.dtype in _DTYPES_OF_LITERALS else f", dtype={buffer.dtype}"
    if not values:
        return f"torch.empty(0, dtype={buffer.dtype})"
    if (bounds := _progression(values)) is not None:
        ends = ", ".join(map(str, bounds))
        if buffer.dtype in (torch.float32, torch.int64):
            return f"torch.arange({ends})"
        return f"torch.arange({ends}, dtype={buffer.dtype})"
    texts = [*map(_element, values)]
    elements = ", ".join(texts)
    if len(elements) <= LONGEST_LITERAL:
        return f"torch.tensor([{elements}]{kind})"
    return f"torch.full(({len(values)},), {texts[0]}{kind})" if len({*texts}) == 1 else None


def _literal(view: Input, buffer: torch.Tensor) -> str | None:
    """The input as nested lists, if it is all of the buffer in its order."""
    if view.dtype != buffer.dtype or view.strides != dense_strides(view.sizes) or 0 in view.sizes:
        return None
    if math.prod(view.sizes) != len(buffer):
        return None
    kind = "" if buffer.dtype in _DTYPES_OF_LITERALS else f", dtype={buffer.dtype}"
    return f"torch.tensor({_list_text(buffer.view(view.sizes).tolist())}{kind})"


def _list_text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_list_text, value))}]"
    return _element(value)


def _progression(values: Sequence[Any]) -> tuple[float, ...] | None:
    """The arguments of `torch.arange` for three or more numbers that count up by one."""
    if len(values) < 3 or isinstance(values[0], (bool, complex)):
        return None
    first = values[0]
    # A comparison with NaN is false.
    if not all(value == first + step for step, value in enumerate(values)):
        return None
    return (first, first + len(values)) if first else (first + len(values),)


def _element(value: Any) -> str:
    """The number as Python source."""
    if isinstance(value, complex):
        # `inf+1j` is no source, and as a sum `-0.0+1j` would lose the sign of zero.
        plain = cmath.isfinite(value) and value.real and value.imag
        return str(value).strip("()") if plain else f"complex({value.real!r}, {value.imag!r})"
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": "torch.inf", "-inf": "-torch.inf"}.get(str(value), "torch.nan")
    return repr(value)


def _makes(program: Program, text: str, *, near: bool) -> bool:
    """Whether the printed function makes the program's inputs, equal in every bit."""
    scope: dict[str, Any] = {"torch": torch}
    try:
        exec(text, scope)  # noqa: S102 - our own text
        printed = scope["inputs"]()
    except (RuntimeError, TypeError, NameError, ValueError):
        return False  # `_element` has no source for a complex NaN, for example
    expected = input_tensors(program)
    return (
        list(map(_facts, printed)) == list(map(_facts, expected))
        and _sharing(printed) == _sharing(expected)
        and (near or all(tensor._base is None for tensor in printed))
    )


def _facts(tensor: torch.Tensor) -> tuple[object, ...]:
    storage = bytes(tensor.untyped_storage().tolist())
    layout = tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()
    return *layout, storage, hasattr(tensor, STATIC)


def _sharing(tensors: Sequence[torch.Tensor]) -> list[int]:
    """For each tensor, the index of the first one with the same storage."""
    addresses = [tensor.untyped_storage()._cdata for tensor in tensors]
    return [addresses.index(address) for address in addresses]
