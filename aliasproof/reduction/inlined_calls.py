"""Calls of functions, methods and lambdas written out where they are; loops as their first pass."""

from __future__ import annotations

import ast
import copy
import functools
import re
from typing import TypeAlias

from aliasproof.ir.python_program import BUILTINS, CALLS, COMPILED
from aliasproof.reduction.syntax_places import (
    Edit,
    Path,
    at,
    is_plain,
    nodes,
    reads,
    remove,
    replace_at,
    statement_of,
    substitute,
)

Callee: TypeAlias = ast.FunctionDef | ast.Lambda
_SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.Return)
_INNER = (ast.Lambda, ast.ListComp, ast.DictComp, ast.GeneratorExp)
_LONGEST_RANGE = 3


def inline_calls(tree: ast.Module) -> list[Edit]:
    """The body of a function, a method or a lambda in place of its call."""
    functions, methods = _callees(tree)
    return [
        functools.partial(_inline, path=path, callee=callee)
        for path, node in nodes(tree)
        if isinstance(node, ast.Call)
        for callee in _callees_of(node, functions, methods)
    ]


def _callees(tree: ast.Module) -> tuple[dict[str, Path], dict[str, list[Path]]]:
    """Where functions and lambdas are, by name, and methods, `forward` under no name as well."""
    functions: dict[str, Path] = {}
    methods: dict[str, list[Path]] = {}
    for path, node in nodes(tree):
        if isinstance(node, ast.FunctionDef):
            parent = at(tree, path[:-1])
            if isinstance(parent, ast.ClassDef):
                methods.setdefault(node.name, []).append(path)
                if node.name == "forward":
                    methods.setdefault("", []).append(path)
            elif node.name not in (COMPILED, CALLS):
                functions[node.name] = path
        elif isinstance(node, ast.Lambda) and isinstance(made := at(tree, path[:-1]), ast.Assign):
            functions[ast.unparse(made.targets[0])] = path
    return functions, methods


def _callees_of(
    call: ast.Call, functions: dict[str, Path], methods: dict[str, list[Path]]
) -> list[Path]:
    if isinstance(call.func, ast.Attribute):
        return methods.get(call.func.attr, [])
    if isinstance(call.func, ast.Name):
        name = call.func.id
        if name in functions:
            return [functions[name]]
        return [] if name in (COMPILED, *BUILTINS) else methods.get("", [])
    return []


def _inline(tree: ast.Module, path: Path, callee: Path) -> None:
    call, made = at(tree, path), at(tree, callee)
    where = statement_of(tree, path)
    statement = at(tree, where)
    between = [at(tree, path[:end]) for end in range(len(where), len(path))]
    assert isinstance(call, ast.Call)
    assert isinstance(made, ast.FunctionDef | ast.Lambda)
    if not isinstance(statement, _SIMPLE) or any(isinstance(it, _INNER) for it in between):
        raise LookupError("it is not run once, as a part of a simple statement")
    first, body, value = _bound_body(call, made)
    replace_at(tree, path, value)
    # Nothing is left of a statement that was the call alone.
    done = isinstance(statement, ast.Expr) and statement.value is value and is_plain(value)
    new = [*first, *body, *([] if done else [statement])]
    replace_at(tree, where, *(new or [ast.Pass()]))
    _forget(tree, made)


def _bound_body(call: ast.Call, made: Callee) -> tuple[list[ast.stmt], list[ast.stmt], ast.expr]:
    """Assignments of parameters, the body without its return, and what is returned."""
    values = _values(call, made)
    if isinstance(made, ast.Lambda):
        body, result = [], copy.deepcopy(made.body)
    else:
        copied = copy.deepcopy(made.body)
        unneeded = (ast.Nonlocal, ast.Global, ast.Pass)
        body = [it for it in copied if not isinstance(it, unneeded)]
        last = body.pop() if body and isinstance(body[-1], ast.Return) else None
        result = getattr(last, "value", None) or ast.Constant(None)
        inner = [it for statement in body for it in ast.walk(statement)]
        if any(isinstance(it, ast.Return | ast.Yield) for it in inner):
            raise LookupError("it returns early")
    whole = ast.Module([*body, ast.Expr(result)], [])
    first: list[ast.stmt] = []
    for name, value in list(values.items()):
        if not is_plain(value) and reads(whole, name) != 1:
            first.append(ast.Assign([ast.Name(name, ast.Store())], value))
            del values[name]
    substitute(whole, values)
    *body, returned = whole.body
    assert isinstance(returned, ast.Expr)
    return first, body, returned.value


def _values(call: ast.Call, made: Callee) -> dict[str, ast.expr]:
    """The value of each parameter. Raises `LookupError` if the call does not give them in order."""
    names = [it.arg for it in made.args.args]
    given = [*call.args]
    if names[:1] == ["self"]:
        given.insert(0, call.func.value if _is_method(call, made) else call.func)  # type: ignore[attr-defined]
    if missing := len(names) - len(given):
        given += made.args.defaults[-missing:]
    if call.keywords or len(names) != len(given):
        raise LookupError("other parameters than arguments")
    return dict(zip(names, given, strict=True))


def _is_method(call: ast.Call, made: Callee) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == getattr(made, "name", "")


def _forget(tree: ast.Module, made: Callee) -> None:
    """Delete a function that is not named any more."""
    if isinstance(made, ast.FunctionDef):
        attributes = {it.attr for it in ast.walk(tree) if isinstance(it, ast.Attribute)}
        if not reads(tree, made.name) and made.name not in attributes:
            remove(tree, made)
        return
    for node in list(ast.walk(tree)):
        unread = isinstance(node, ast.Assign) and not reads(tree, ast.unparse(node.targets[0]))
        if unread and getattr(node, "value", None) is made:
            remove(tree, node)


# --- loops and conditions -------------------------------------------------------------------------


def unroll_loops(tree: ast.Module) -> list[Edit]:
    """A loop as all of its passes over a short range; then as its first pass."""
    edits: list[Edit] = []
    for path, node in nodes(tree):
        if isinstance(node, ast.For):
            edits.append(functools.partial(_unroll, path=path, passes=range(_length(node.iter))))
            edits.append(functools.partial(_unroll, path=path, passes=range(1)))
        elif isinstance(node, ast.ListComp | ast.GeneratorExp):
            edits.append(functools.partial(_first_item, path=path))
    return edits


def _length(items: ast.expr) -> int:
    """How many items are written out: of a range or a list."""
    if isinstance(items, ast.List | ast.Tuple):
        return len(items.elts)
    text = re.fullmatch(r"range\((\d+)\)", ast.unparse(items))
    return int(text[1]) if text else 0


def _unroll(tree: ast.Module, path: Path, passes: range) -> None:
    loop = at(tree, path)
    assert isinstance(loop, ast.For)
    if not 0 < len(passes) <= _LONGEST_RANGE:
        raise LookupError("it is not known how often it runs")
    body: list[ast.stmt] = []
    for index in passes:
        block = ast.Module(copy.deepcopy(loop.body), [])
        body += _bind(block, loop.target, item(loop.iter, index))
        body += block.body
    replace_at(tree, path, *body)


def _first_item(tree: ast.Module, path: Path) -> None:
    """The first item alone in place of a comprehension."""
    made = at(tree, path)
    assert isinstance(made, ast.ListComp | ast.GeneratorExp)
    (loop,) = made.generators
    value = ast.Module([ast.Expr(made.elt)], [])
    if _bind(value, loop.target, item(loop.iter, 0)):
        raise LookupError("the item is used several times")
    (statement,) = value.body
    assert isinstance(statement, ast.Expr)
    replace_at(tree, path, ast.List([statement.value], ast.Load()))


def _bind(block: ast.Module, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
    """Put a value in place of a variable of a loop; the assignments that are needed before."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=True)
        return [it for one, other in pairs for it in _bind(block, one, other)]
    if isinstance(target, ast.Name) and (is_plain(value) or reads(block, target.id) == 1):
        substitute(block, {target.id: value})
        return []
    return [ast.Assign([target], value)]


def item(items: ast.expr, index: int) -> ast.expr:
    """The item of an iterable with this index, as an expression."""
    if isinstance(items, ast.List | ast.Tuple):
        return items.elts[index]
    call = items if isinstance(items, ast.Call) else None
    name = call.func.id if call is not None and isinstance(call.func, ast.Name) else ""
    if call is not None and name == "range":
        return ast.Constant(index)
    if call is not None and name == "zip":
        return ast.Tuple([item(it, index) for it in call.args], ast.Load())
    if call is not None and name == "enumerate":
        return ast.Tuple([ast.Constant(index), item(call.args[0], index)], ast.Load())
    if call is not None and name == "reversed":
        return _subscript(call.args[0], -1 - index)
    if call is not None and isinstance(call.func, ast.Attribute) and call.func.attr == "unbind":
        return _subscript(call.func.value, index)
    return _subscript(items, index)


def _subscript(value: ast.expr, index: int) -> ast.expr:
    key = ast.parse(str(index), mode="eval").body
    return ast.Subscript(copy.deepcopy(value), key, ast.Load())
