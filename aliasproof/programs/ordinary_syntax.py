"""A `Program` in ordinary tensor syntax, such as `x.expand(3, 4).zero_()`, for people to read.

Each spelling is tried: it is used only if it makes the same ATen calls as the instruction, on
tensors of the same layout. An instruction for which none does is printed as `aten.…`, so the text
always means the program. `aliasproof.programs.parsing` reads only what
`aliasproof.programs.printing` prints.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch

from aliasproof.programs.call_record import Call, recorded_calls
from aliasproof.programs.devices import CPU, on_device, with_device
from aliasproof.programs.execution import execute, returns_one_tensor
from aliasproof.programs.printing import NO_GRAD, expression, statement
from aliasproof.programs.program import Argument, Instruction, Program, Ref, rename_instruction
from aliasproof.programs.schemas import resolve
from aliasproof.programs.values import clone_inputs, input_tensors

LONGEST_LINE = 88  # characters; longer chains of calls are not joined
MOST_JOINED = 40  # instructions; joining lines is quadratic, and a longer program is no short text

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

# torch's Python has no call that reaches these overloads: a number becomes a tensor of no
# dimensions, and the overload for tensors is called. They compute the same.
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
    return replace(
        program,
        inputs=tuple(replace(view, name=names[view.name]) for view in program.inputs),
        instructions=tuple(rename_instruction(call, names) for call in program.instructions),
        outputs=tuple(names.get(output, output) for output in program.outputs),
    )


def ordinary_source(program: Program, *, near: bool = False, literal: bool = False) -> str:
    """A function `program` of the inputs. It returns one tensor, or a tuple of several.

    It assumes `import torch`, and `aten = torch.ops.aten` if the text has `aten.`. With `near`,
    `x + 1` also stands for `aten.add.Scalar`, which torch's Python calls in no other way. With
    `literal`, each instruction is a call of its op, and all results have names; so it is, too,
    where the program raises in eager.
    """
    device, program = program.device, on_device(program, CPU)
    try:
        lines = _spelled_lines(program, near=near, literal=literal)
    except (RuntimeError, IndexError, ValueError, TypeError):
        # Under a dispatch mode, as campaigns run eager, some kernels accept more.
        literal, lines = True, _spelled_lines(program, near=near, literal=True)
    returned = ", ".join(program.outputs)  # one is returned as it is, as users write it
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
    for instruction in program.instructions:
        if literal:
            line = _Line(_target(instruction), statement(replace(instruction, results=())))
        else:
            line = _line(instruction, values, near=near)
        line = replace(line, grad=instruction.grad)
        # What nobody uses is dropped at once; the program keeps it, as a campaign runs it.
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

    None needs to be right: the caller compares their calls.
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
    index = _INDEXING.get(name, _no_index)(instruction.args)
    if index is not None and not keywords:
        yield f"{args[0]}[{index}]", True
    if instruction.args and isinstance(instruction.args[0], Ref):
        receiver, *rest = args
        # `expand(3, 4)` rather than `expand([3, 4])`.
        if len(rest) == 1 and not keywords and re.fullmatch(r"\[[-\d, ]+\]", rest[0]):
            yield f"{receiver}.{name}({rest[0][1:-1]})", True
        yield f"{receiver}.{name}({', '.join(rest + keywords)})", True
    yield f"torch.{name}({', '.join(args + keywords)})", True


def _no_index(args: Sequence[Argument]) -> str | None:
    return None


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
        # A value from a region without gradients stays there.
        if uses[line.target] != 1 or line.grad is not (rest[0].grad if rest else True):
            continue
        if rest:
            rest = [_host(rest[0], line), *rest[1:]]
        else:
            last = _with_expression(returned, line)
        candidate = [*lines[:index], *rest]
        # The value is not used in the next line, or the line would be too long.
        if (rest, last) == (lines[index + 1 :], returned):
            continue
        if max(map(len, map(str, (*rest[:1], f"return {last}")))) > LONGEST_LINE:
            continue
        if _calls_of_text(program, candidate, last) == expected:
            lines, returned = candidate, last
    return lines, returned


def _host(host: _Line, line: _Line) -> _Line:
    return replace(host, text=_with_expression(host.text, line))


def _with_expression(text: str, line: _Line) -> str:
    """The text with the line's expression in place of its name, in parentheses where needed."""
    name = re.escape(line.target)
    # Between a bracket or comma and the next one, and alone, an expression needs no parentheses.
    if line.atom or re.search(rf"(?:^|[(\[]|, ){name}(?=$|[,)\]])", text):
        return re.sub(rf"(?<![\w.]){name}(?![\w=])", lambda _: line.text, text)
    return re.sub(rf"(?<![\w.]){name}(?![\w=])", lambda _: f"({line.text})", text)


def _calls_of_text(program: Program, lines: Sequence[_Line], returned: str) -> list[Call]:
    """The ATen calls of the printed function on the program's inputs, and the tensors returned."""
    scope: dict[str, Any] = {"torch": torch, "aten": torch.ops.aten}
    exec(_text(program, lines, returned), scope)  # noqa: S102 - our own text
    inputs = input_tensors(program)
    return recorded_calls(lambda: scope["program"](*inputs), inputs)
