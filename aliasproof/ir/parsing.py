"""Reads back the Python that `aliasproof.ir.printing.source` prints.

Nothing is executed: the text becomes a syntax tree. A tree of any other shape is refused with its
line number.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aliasproof.ir.errors import UserError, did_you_mean, shown
from aliasproof.ir.execution import returns_one_tensor
from aliasproof.ir.program import Argument, Input, Instruction, Program, Ref, Storage
from aliasproof.ir.schemas import resolve
from aliasproof.ir.serialization import DTYPE_BY_NAME, SPECIAL_FLOATS
from aliasproof.ir.validation import first_defect


@dataclass(frozen=True, slots=True)
class _ParsedCall:
    """An instruction with its line in the text.

    `unpacked` is true if the text assigns the results to a tuple of names.
    """

    instruction: Instruction
    line: int
    unpacked: bool


def parse_source(
    text: str,
    storages: Sequence[Storage],
    inputs: Sequence[Input],
    seed: int = 0,
    fill: str = "plain",
    device: str = "cpu",
) -> Program:
    """The program that prints as `text` and has these storages and inputs.

    So `parse_source(source(p), p.storages, p.inputs, p.seed, p.fill, p.device) == p`. Raises
    `UserError` with the line number for anything that `source` does not print.
    """
    function = _function(text)
    parameters = [parameter.arg for parameter in function.args.args]
    names = [view.name for view in inputs]
    if parameters != names:
        raise _refusal(function, f"the inputs are {', '.join(names)}; got {shown(parameters)}")
    *body, last = function.body
    calls = [call for statement in body for call in _calls(statement)]
    match last:
        case ast.Return(value=ast.Tuple(elts=elements)):
            outputs = tuple(map(_name, elements))
        case _:
            expected = "the tuple of the outputs: return (v0,) or return v0, v1"
            raise _refusal(last, f"expected {expected}")
    instructions = tuple(call.instruction for call in calls)
    program = Program(tuple(storages), tuple(inputs), instructions, outputs, seed, fill, device)
    if (defect := first_defect(program)) is not None:
        line = last.lineno if defect.location.startswith("outputs") else 1
        if number := re.match(r"instructions\[(\d+)\]", defect.location):
            line = calls[int(number[1])].line
        raise UserError(f"line {line}: {defect}")
    # The rules do not know whether the text confuses one tensor with a list.
    for call in calls:
        op, one = call.instruction.op, returns_one_tensor(resolve(call.instruction.op))
        if call.instruction.results and one == call.unpacked:
            given, form = ("one tensor", "v0") if one else ("several tensors", "(v0,)")
            raise UserError(f"line {call.line}: {op} returns {given}: write {form} = ...")
    return program


def _function(text: str) -> ast.FunctionDef:
    try:
        with warnings.catch_warnings():
            # Python warns about the style of some texts, which are refused below anyway.
            warnings.simplefilter("ignore")
            module = ast.parse(text)
    except SyntaxError as error:
        raise UserError(f"line {error.lineno or 1}: not Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        # The text has a null character, or thousands of opening brackets.
        raise UserError(f"line 1: not Python: {shown(str(error))}") from error
    # The exact shape that `source` prints: one function, plain parameters, no decorator.
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


def _calls(statement: ast.stmt) -> list[_ParsedCall]:
    """The calls of a statement, which may be a `with torch.no_grad():` block."""
    match statement:
        case ast.With(
            items=[
                ast.withitem(
                    context_expr=ast.Call(
                        func=ast.Attribute(value=ast.Name(id="torch"), attr="no_grad"),
                        args=[],
                        keywords=[],
                    ),
                    optional_vars=None,
                )
            ],
            body=body,
        ):
            calls = map(_call, body)
            return [
                replace(call, instruction=replace(call.instruction, grad=False)) for call in calls
            ]
    return [_call(statement)]


def _call(statement: ast.stmt) -> _ParsedCall:
    results: tuple[str, ...] = ()
    unpacked = False
    match statement:
        case ast.Expr(value=ast.Call() as call):  # no result is named
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
    return _ParsedCall(
        Instruction(_op(call.func), args, kwargs, results), statement.lineno, unpacked
    )


def _op(node: ast.expr) -> str:
    match node:
        case ast.Attribute(value=packet, attr=overload):
            return f"{_packet(packet)}.{overload}"
        case ast.Call(
            func=ast.Name(id="getattr"),  # an overload whose name is a keyword, such as `from`
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
            # `**{"from": 0}`: an argument whose name is a keyword.
            arg=None,
            value=ast.Dict(keys=[ast.Constant(value=str(key))], values=[value]),
        ):
            return key, _argument(value)
    raise _refusal(node, 'expected a keyword argument: key=value or **{"key": value}')


def _argument(node: ast.expr) -> Argument:
    match node:
        case ast.Name(id=name):
            return Ref(name)
        case ast.List(elts=elements):
            return tuple(map(_argument, elements))
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        # Python's grammar has no negative literals: -1 is a minus applied to 1.
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if (
            value is not True  # `-True` is legal Python, but `source` never prints it
        ):
            return -value
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            if name in DTYPE_BY_NAME:
                return DTYPE_BY_NAME[name]
            raise _refusal(node, f"unknown dtype torch.{name}{did_you_mean(name, DTYPE_BY_NAME)}")
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
