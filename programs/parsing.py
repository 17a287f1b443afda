"""Reads back the Python that `programs.printing.source` prints.

Nothing is executed: the text becomes a syntax tree, and a tree of any other shape is refused with
its line.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from programs.errors import UserError
from programs.execution import returns_one_tensor
from programs.program import Argument, Input, Instruction, Program, Ref, Storage
from programs.schemas import resolve
from programs.serialization import DTYPES, SPECIAL_FLOATS
from programs.validation import first_defect, nearest, shown


@dataclass(frozen=True, slots=True)
class _Call:
    """An instruction as it stands in the text: with its line, and whether its results are unpacked from a tuple."""

    instruction: Instruction
    line: int
    unpacked: bool


def parse_source(
    text: str, storages: Sequence[Storage], inputs: Sequence[Input], seed: int = 0
) -> Program:
    """The program that prints as `text` and has these storages and inputs, so that `parse_source(source(p), ...) == p`.

    Raises `UserError` with the line number for anything that `source` does not print.
    """
    function = _function(text)
    parameters = [each.arg for each in function.args.args]
    if parameters != [each.name for each in inputs]:
        raise _refusal(
            function,
            f"the inputs are {', '.join(each.name for each in inputs)}; got {shown(parameters)}",
        )
    *body, last = function.body
    calls = [_call(each) for each in body]
    outputs = _outputs(last)
    instructions = tuple(each.instruction for each in calls)
    program = Program(tuple(storages), tuple(inputs), instructions, outputs, seed)
    _check(program, calls, last.lineno)
    return program


def _function(text: str) -> ast.FunctionDef:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # of Python about the style of a text that is refused below anyway
            module = ast.parse(text)
    except SyntaxError as error:
        raise UserError(f"line {error.lineno or 1}: not Python: {error.msg}") from error
    except (
        ValueError,
        RecursionError,
        MemoryError,
    ) as error:  # a null character; thousands of opening brackets
        raise UserError(f"line 1: not Python: {shown(str(error))}") from error
    match module.body:
        case [
            ast.FunctionDef(
                name="program",
                args=ast.arguments(
                    posonlyargs=[], vararg=None, kwonlyargs=[], kwarg=None, defaults=[]
                ),
                decorator_list=[],
            ) as function
        ]:
            return function
    raise UserError(
        "line 1: expected one function, def program(...):, with the inputs as its parameters"
    )


def _check(program: Program, calls: Sequence[_Call], last_line: int) -> None:
    """Raise if the program is not well formed, or if the text takes a list of tensors for one or one for a list."""
    defect = first_defect(program)
    if defect is not None:
        number = re.match(r"instructions\[(\d+)\]", defect.place)
        line = (
            calls[int(number[1])].line
            if number
            else last_line
            if defect.place.startswith("outputs")
            else 1
        )
        raise UserError(f"line {line}: {defect}")
    for each in calls:
        one = returns_one_tensor(resolve(each.instruction.op))
        if each.instruction.results and one == each.unpacked:
            wanted = (
                "returns one tensor: write v0 = ..."
                if one
                else "returns several tensors: write (v0,) = ..."
            )
            raise UserError(f"line {each.line}: {each.instruction.op} {wanted}")


def _call(statement: ast.stmt) -> _Call:
    results: tuple[str, ...] = ()
    unpacked = False
    match statement:
        case ast.Expr(value=ast.Call() as call):
            pass
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
            results = (name,)
        case ast.Assign(targets=[ast.Tuple(elts=elements)], value=ast.Call() as call):
            results, unpacked = tuple(map(_name, elements)), True
        case _:
            raise _refusal(
                statement, "expected a call of an operator, with its results assigned or not"
            )
    if unpacked and not results:
        raise _refusal(
            statement, "expected the names of the results; leave out `() =` where they are not used"
        )
    args = tuple(map(_argument, call.args))
    kwargs = tuple(map(_keyword_argument, call.keywords))
    return _Call(Instruction(_op(call.func), args, kwargs, results), statement.lineno, unpacked)


def _outputs(statement: ast.stmt) -> tuple[str, ...]:
    match statement:
        case ast.Return(value=ast.Tuple(elts=elements)):
            return tuple(map(_name, elements))
    raise _refusal(statement, "expected the tuple of the outputs: return (v0,) or return v0, v1")


def _op(node: ast.expr) -> str:
    match node:
        case ast.Attribute(value=packet, attr=overload):
            return f"{_packet(packet)}.{overload}"
        case ast.Call(
            func=ast.Name(id="getattr"),
            args=[packet, ast.Constant(value=str(overload))],
            keywords=[],
        ):
            return f"{_packet(packet)}.{overload}"
    raise _refusal(node, "expected an operator, such as aten.add.Tensor")


def _packet(node: ast.expr) -> str:
    match node:
        case ast.Attribute(value=ast.Name(id="aten"), attr=name):
            return f"aten.{name}"
        case ast.Attribute(
            ast.Attribute(ast.Attribute(ast.Name(id="torch"), "ops"), namespace), name
        ):
            return f"{namespace}.{name}"
    raise _refusal(
        node, "expected an operator, such as aten.add.Tensor or torch.ops.prims.add.default"
    )


def _keyword_argument(node: ast.keyword) -> tuple[str, Argument]:
    match node:
        case ast.keyword(arg=str(key), value=value):
            return key, _argument(value)
        case ast.keyword(
            arg=None, value=ast.Dict(keys=[ast.Constant(value=str(key))], values=[value])
        ):
            return key, _argument(value)
    raise _refusal(node, 'expected a keyword argument: key=value or **{"key": value}')


def _argument(node: ast.expr) -> Argument:
    match node:
        case ast.Name(id=name):
            return Ref(name)
        case ast.List(elts=elements):
            return tuple(map(_argument, elements))
        case ast.Constant(value=None | bool() | int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if (
            value is not True
        ):
            return -value
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            if name in DTYPES:
                return DTYPES[name]
            raise _refusal(node, f"unknown dtype torch.{name}{nearest(name, DTYPES)}")
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(name))], keywords=[]):
            if name in SPECIAL_FLOATS:
                return SPECIAL_FLOATS[name]
    raise _refusal(
        node, 'expected a name, a number, None, a dtype, float("inf") or a list of these'
    )


def _name(node: ast.expr) -> str:
    if not isinstance(node, ast.Name):
        raise _refusal(node, "expected a name")
    return node.id


def _refusal(node: ast.AST, message: str) -> UserError:
    return UserError(f"line {getattr(node, 'lineno', 1)}: {message}")
