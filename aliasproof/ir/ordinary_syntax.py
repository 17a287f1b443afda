"""A `Program` in ordinary tensor syntax, such as `x.expand(3, 4).zero_()`, for people to read.

Each spelling is tried: it is used only if it makes the same ATen calls as the instruction, on
tensors of the same layout. If none does, the instruction is printed as `aten.…`, so the text always
means the program. `aliasproof.ir.parsing` reads only the output of `aliasproof.ir.printing`.
"""

from __future__ import annotations

import cmath
import contextlib
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from aliasproof.ir.devices import CPU, on_device, with_device
from aliasproof.ir.execution import (
    execute,
    keep_random_state,
    returns_one_tensor,
    seed_generators,
)
from aliasproof.ir.printing import NO_GRAD, expression, inputs_source, statement, static_marks
from aliasproof.ir.program import Argument, Input, Instruction, Program, Ref
from aliasproof.ir.regions import dense_strides
from aliasproof.ir.schemas import resolve
from aliasproof.ir.values import STATIC, clone_inputs, input_tensors, storage_data

# --- ordinary inputs ------------------------------------------------------------------------------
#
# The inputs of a `Program` in ordinary tensor syntax, such as `base[1:3]`, for people to read. The
# printed function is run, and used only if it makes the same tensors as `input_tensors`. Otherwise
# `aliasproof.ir.printing.inputs_source` prints the inputs.


LONGEST_LITERAL = 80  # characters


def ordinary_inputs(program: Program, *, near: bool = False) -> str:
    """A function `inputs` that returns a tuple of the input tensors. It assumes `import torch`.

    With `near`, an input may be a view of another tensor: then its `_base` is not None, unlike for
    `input_tensors`. AOTAutograd treats the two differently in rare cases.
    """
    on_cpu = on_device(program, CPU)
    text = _inputs_text(on_cpu, near=near)
    if text is not None and _makes(on_cpu, text, near=near):
        return with_device(text, program.device)
    return inputs_source(program)


def _inputs_text(program: Program, *, near: bool) -> str | None:
    """The function, or None if a buffer has no short text."""
    # The storages that inputs view, as 1-d tensors of the dtypes with which they are filled.
    buffers = {
        index: storage_data(program, index)
        for index in sorted({it.storage for it in program.inputs})
    }
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
        name = base or (f"base{index}" if len(buffers) > 1 else "base")
        while base is None and any(view.name == name for view in program.inputs):
            name += "_"
        statements.append(f"{name} = {text}")
        for view in rest:
            values[view.name] = _view_text(name, view, buffers[index], near=near)
    names, marks = [view.name for view in program.inputs], static_marks(program)
    if not statements and not marks and len(names) == 1:
        return f"def inputs():\n    return ({values[names[0]]},)\n"
    statements += [f"{name} = {value}" for name, value in values.items()] + marks
    returned = f"({names[0]},)" if len(names) == 1 else ", ".join(names) or "()"
    return "\n    ".join(("def inputs():", *statements, f"return {returned}")) + "\n"


def _base(views: Sequence[Input], buffer: torch.Tensor) -> tuple[str | None, list[Input]]:
    """The name of the input that is the whole buffer, or None, and the other inputs."""
    for view in views:
        if (view.dtype, view.sizes, view.strides) == (buffer.dtype, tuple(buffer.shape), (1,)):
            return view.name, [other for other in views if other is not view]
    return None, list(views)


# --- views ----------------------------------------------------------------------------------------


def _view_text(name: str, view: Input, buffer: torch.Tensor, *, near: bool) -> str:
    """The input as a view of the buffer with this name."""
    for text in _views(view, buffer):
        try:
            tensor = eval(f"base{text}", {"base": buffer, "torch": torch})  # noqa: S307 - our own text
        except (RuntimeError, IndexError, TypeError, ValueError):
            continue  # torch cannot make this view of this buffer
        layout = tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
        if layout == (view.dtype, view.sizes, view.strides, view.offset):
            return f"{name}{text}" + ("" if near else ".detach()")
    # Only `set_` to the storage gives this dtype, offset and strides.
    layout_text = f"{view.offset}, {view.sizes}, {view.strides}"
    return f"torch.empty(0, dtype={view.dtype}).set_({name}.untyped_storage(), {layout_text})"


def _views(view: Input, buffer: torch.Tensor) -> Iterator[str]:
    """Possible suffixes of the buffer's name, the shortest first. The caller checks each."""
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
    """The input as nested lists, if it is the whole buffer in order."""
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
        # `inf+1j` is not valid source, and as a sum `-0.0+1j` would lose the sign of zero.
        plain = cmath.isfinite(value) and value.real and value.imag
        return str(value).strip("()") if plain else f"complex({value.real!r}, {value.imag!r})"
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": "torch.inf", "-inf": "-torch.inf"}.get(str(value), "torch.nan")
    return repr(value)


def _makes(program: Program, text: str, *, near: bool) -> bool:
    """True if the printed function makes the program's inputs, equal in every bit."""
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


# --- call record ----------------------------------------------------------------------------------
#
# The ATen calls of a function, in a form in which two functions can be compared.


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator; its arguments as text, with tensors named by storage and layout."""

    op: str
    arguments: str


@dataclass
class _Record(TorchDispatchMode):
    """Records calls while it is active. Storages are numbered in the order in which they appear."""

    calls: list[Call] = field(default_factory=list)
    storages: list[torch.UntypedStorage] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        self.calls.append(Call(str(func), str(tree_map(self.description, (args, kwargs)))))
        returned = func(*args, **kwargs)
        tree_map(self.description, returned)  # new storages get their numbers
        return returned

    def description(self, value: object) -> object:
        """A tensor as its storage's number and its layout; any other value unchanged."""
        if not isinstance(value, torch.Tensor):
            return value
        storage = value.untyped_storage()
        # Recorded storages stay alive, so none has the address of an earlier one.
        numbers = [known._cdata for known in self.storages]
        if storage._cdata not in numbers:
            self.storages.append(storage)
            numbers.append(storage._cdata)
        layout = tuple(value.shape), value.stride(), value.storage_offset()
        return numbers.index(storage._cdata), value.dtype, *layout


def recorded_calls(function: Callable[[], object], inputs: Sequence[torch.Tensor]) -> list[Call]:
    """The ATen calls of the function, in order, and as the last entry its results.

    `inputs` are the tensors that the function uses; their storages come first in the numbering.
    """
    record = _Record()
    tree_map(record.description, list(inputs))
    with record:
        returned = function()
    # A list and a tuple of the same tensors count as the same result.
    tensors = [returned] if isinstance(returned, torch.Tensor) else list(returned or ())  # type: ignore[call-overload]
    return [*record.calls, Call("return", str(tree_map(record.description, tensors)))]


# --- ordinary syntax ------------------------------------------------------------------------------


LONGEST_LINE = 88  # characters; longer chains of calls are not joined
MOST_JOINED = 40  # instructions; joining lines is quadratic, and a longer program stays long

# Names for the inputs of a program with a few of them.
_SHORT_NAMES = ("x", "y", "z")

_BINARY = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "ge": ">=",
    "lt": "<",
    "le": "<=",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "matmul": "@",
    "mm": "@",
}
_UNARY = {"neg": "-", "bitwise_not": "~"}

# torch's Python has no call that reaches these overloads: it turns a number into a tensor without
# dimensions, and calls the overload for tensors. That computes the same.
_NEAR = {
    f"aten.{name}.Scalar": f"aten.{name}.Tensor"
    for base in ("add", "sub", "mul", "div")
    for name in (base, f"{base}_")
}


@dataclass(frozen=True, slots=True)
class _Line:
    """A statement: the names that it assigns (as text, "" if none), and an expression.

    `atom` is true if `.method()` can follow the expression without parentheses. Without `grad`, the
    line is in a `with torch.no_grad():` block.
    """

    target: str
    text: str
    atom: bool = True
    grad: bool = True

    def __str__(self) -> str:
        return f"{self.target} = {self.text}" if self.target else self.text


def with_short_names(program: Program) -> Program:
    """The program with canonical names, and x, y, z for up to three inputs."""
    program = program.renamed()
    if len(program.inputs) > len(_SHORT_NAMES):
        return program
    names = {view.name: short for view, short in zip(program.inputs, _SHORT_NAMES, strict=False)}
    return program.with_names(names)


def ordinary_source(program: Program, *, near: bool = False, literal: bool = False) -> str:
    """A function `program` of the inputs. It returns one tensor, or a tuple.

    It assumes `import torch`, and `aten = torch.ops.aten` if the text has `aten.`. With `near`,
    `x + 1` also stands for `aten.add.Scalar`, which torch's Python cannot call in another way. With
    `literal`, each instruction is a call of its op, all results have names, and one tensor is
    returned in a tuple. Instructions also have this form if the program raises in eager.
    """
    device, program = program.device, on_device(program, CPU)
    # One output is returned without a tuple, as users do. Dynamo then gives back an input as it is.
    returned = ", ".join(program.outputs) + "," * (literal and len(program.outputs) == 1)
    with keep_random_state():
        try:
            lines = _spelled_lines(program, near=near, literal=literal)
        except (RuntimeError, IndexError, ValueError, TypeError):
            # Under a dispatch mode, as in campaigns, some kernels of eager accept more.
            literal, lines = True, _spelled_lines(program, near=near, literal=True)
        if len(lines) <= MOST_JOINED and not literal:
            lines, returned = _nested_calls(program, lines, returned)
    return with_device(_text(program, lines, returned), device)


def _text(program: Program, lines: Sequence[_Line], returned: str) -> str:
    head = f"def program({', '.join(view.name for view in program.inputs)}):"
    body = [f"return {returned}"] if returned else []
    for grad, group in reversed([(g, list(of)) for g, of in groupby(lines, lambda x: x.grad)]):
        texts = list(map(str, group))
        body = [*(texts if grad else [NO_GRAD, *(f"    {text}" for text in texts)]), *body]
    return "\n    ".join((head, *(body or ["pass"]))) + "\n"


# --- one instruction ------------------------------------------------------------------------------


def _spelled_lines(program: Program, *, near: bool, literal: bool) -> list[_Line]:
    """The instructions in ordinary syntax, line by line."""
    values = dict(zip((view.name for view in program.inputs), input_tensors(program), strict=True))
    used = {name for call in program.instructions for name in call.refs} | set(program.outputs)
    lines = []
    seed_generators()
    for instruction in program.instructions:
        if literal:
            line = _Line(_target(instruction), statement(replace(instruction, results=())))
        else:
            with torch.random.fork_rng(devices=[]):
                line = _line(instruction, values, near=near)
        line = replace(line, grad=instruction.grad)
        # An unused result is dropped at once; the program keeps it, as a campaign runs it.
        dropped = not literal and not used.intersection(instruction.results)
        lines.append(replace(line, target="") if dropped else line)
        if not literal:
            execute(instruction, values)
    return lines


def _line(instruction: Instruction, values: dict[str, torch.Tensor], *, near: bool) -> _Line:
    """The first spelling that makes the same ATen calls as the instruction on these values."""
    exact = statement(replace(instruction, results=()))
    target = _target(instruction)
    expected = _calls_of(exact, instruction, values, near=near)
    for text, atom in _spellings(instruction):
        try:
            calls = _calls_of(text, instruction, values, near=near)
        except (AttributeError, TypeError, RuntimeError, IndexError, ValueError, Warning):
            continue  # torch's Python has no such call, or warns that it is deprecated
        if calls == expected:
            return _Line(target, text, atom)
    return _Line(target, exact)


def _target(instruction: Instruction) -> str:
    if not instruction.results:
        return ""
    names = ", ".join(instruction.results)
    if returns_one_tensor(resolve(instruction.op)) or len(instruction.results) > 1:
        return names
    return f"({names},)"


def _calls_of(
    text: str, instruction: Instruction, values: dict[str, torch.Tensor], *, near: bool
) -> list[Call]:
    """The ATen calls of an expression on copies of the values that the instruction uses."""
    names = list(dict.fromkeys(instruction.refs))
    scope: dict[str, Any] = dict(zip(names, clone_inputs([values[n] for n in names]), strict=True))
    tensors = list(scope.values())
    scope |= {"torch": torch, "aten": torch.ops.aten}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "This overload of")
        calls = recorded_calls(lambda: eval(text, scope), tensors)  # noqa: S307 - our own text
    return [replace(call, op=_NEAR.get(call.op, call.op)) for call in calls] if near else calls


def _spellings(instruction: Instruction) -> Iterator[tuple[str, bool]]:
    """Expressions that may mean the instruction, the shortest first, and whether each is an atom.

    Some may be wrong: the caller compares their calls.
    """
    namespace, name, _ = instruction.op.split(".")
    args = [expression(argument) for argument in instruction.args]
    keywords = [f"{key}={expression(value)}" for key, value in instruction.kwargs]
    if namespace != "aten":
        yield f"torch.ops.{namespace}.{name}({', '.join(args + keywords)})", True
        return
    if not keywords and len(args) == 2 and name in _BINARY:
        yield f"{args[0]} {_BINARY[name]} {args[1]}", False
    if not keywords and len(args) == 1 and name in _UNARY:
        yield f"{_UNARY[name]}{args[0]}", False
    index = _INDEXING.get(name, lambda args: None)(instruction.args)
    if index is not None and not keywords:
        yield f"{args[0]}[{index}]", True
    if instruction.args and isinstance(instruction.args[0], Ref):
        receiver, *rest = args
        # `expand(3, 4)` rather than `expand([3, 4])`.
        if len(rest) == 1 and not keywords and re.fullmatch(r"\[[-\d, ]+\]", rest[0]):
            yield f"{receiver}.{name}({rest[0][1:-1]})", True
        yield f"{receiver}.{name}({', '.join(rest + keywords)})", True
    yield f"torch.{name}({', '.join(args + keywords)})", True


def _slice(args: Sequence[Argument]) -> str | None:
    """The index for `aten.slice(x, dim, start, end, step)`."""
    defaults: tuple[Argument, ...] = (0, None, None, 1)
    dim, start, end, step = (*args[1:], *defaults[len(args) - 1 :])
    if not isinstance(dim, int) or dim < 0:
        return None
    first = "" if start in (None, 0) else expression(start)
    last = "" if end is None or end == 2**63 - 1 else expression(end)
    stride = "" if step == 1 else f":{expression(step)}"
    return ":, " * dim + f"{first}:{last}{stride}"


def _select(args: Sequence[Argument]) -> str | None:
    """The index for `aten.select(x, dim, index)`."""
    match args:
        case (_, int(dim), int(index)) if dim >= 0:
            return ":, " * dim + str(index)
    return None


def _by_tensors(args: Sequence[Argument]) -> str | None:
    """The index for `aten.index(x, [tensor or None, ...])`."""
    match args:
        case (_, tuple(indices)) if indices:
            return ", ".join(":" if index is None else expression(index) for index in indices)
    return None


_INDEXING: dict[str, Callable[[Sequence[Argument]], str | None]] = {
    "slice": _slice,
    "select": _select,
    "index": _by_tensors,
}


# --- several instructions in one line -------------------------------------------------------------


def _nested_calls(program: Program, lines: list[_Line], returned: str) -> tuple[list[_Line], str]:
    """The lines, with each value that is used once written where it is used.

    A join that changes the order of the ATen calls is undone.
    """
    expected = _calls_of_text(program, lines, returned)
    uses = Counter(name for call in program.instructions for name in call.refs)
    uses.update(program.outputs)
    # From the end, so that a chain grows at its front: the last line is the shortest host.
    for index in reversed(range(len(lines))):
        line = lines[index]
        rest, last = lines[index + 1 :], returned
        # A value from a region without gradients must stay in it.
        if uses[line.target] != 1 or line.grad is not (rest[0].grad if rest else True):
            continue
        if rest:
            rest = [replace(rest[0], text=_with_expression(rest[0].text, line)), *rest[1:]]
        else:
            last = _with_expression(returned, line)
        candidate = [*lines[:index], *rest]
        # The value is not used in the next line, or the line would be too long.
        if (rest, last) == (lines[index + 1 :], returned):
            continue
        if max(map(len, map(str, (*rest[:1], f"return {last}")))) > LONGEST_LINE:
            continue
        # In another order, random numbers differ, and an index may be out of range.
        with contextlib.suppress(RuntimeError, IndexError, ValueError):
            if _calls_of_text(program, candidate, last) == expected:
                lines, returned = candidate, last
    return lines, returned


def _with_expression(text: str, line: _Line) -> str:
    """The text with the line's expression in place of its name, in parentheses where needed."""
    name = re.escape(line.target)
    # An expression needs no parentheses by itself, or between a bracket or comma and the next one.
    if line.atom or re.search(rf"(?:^|[(\[]|, ){name}(?=$|[,)\]])", text):
        return re.sub(rf"(?<![\w.]){name}(?![\w=])", lambda _: line.text, text)
    return re.sub(rf"(?<![\w.]){name}(?![\w=])", lambda _: f"({line.text})", text)


def _calls_of_text(program: Program, lines: Sequence[_Line], returned: str) -> list[Call]:
    """The ATen calls of the printed function on the program's inputs, and the tensors returned."""
    scope: dict[str, Any] = {"torch": torch, "aten": torch.ops.aten}
    exec(_text(program, lines, returned), scope)  # noqa: S102 - our own text
    inputs = input_tensors(program)
    seed_generators()  # a random index may be out of range in another run
    return recorded_calls(lambda: scope["program"](*inputs), inputs)
