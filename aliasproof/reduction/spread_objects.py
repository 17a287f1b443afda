"""Objects and containers that `program` gets, as their parts; globals as arguments."""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from aliasproof.ir.python_program import CALLS, COMPILED
from aliasproof.reduction.syntax_places import (
    Edit,
    calls_of,
    function,
    is_plain,
    nodes,
    reads,
    remove,
    replace_at,
    substitute,
)
from aliasproof.reduction.unused_syntax import attribute_of, definitions

Key: TypeAlias = str | int  # the name of an attribute, or what a container is indexed by


def spread_arguments(tree: ast.Module) -> list[Edit]:
    """An argument that is an object or a container as those of its parts that are used."""
    count = len(function(tree, COMPILED).args.args)
    return [functools.partial(_spread, index=index) for index in range(count)]


@dataclass(frozen=True, slots=True)
class _Whole:
    """The parts of what `program` gets for a parameter, and the variable, if it is one."""

    parts: Mapping[Key, ast.expr]
    name: str = ""
    made: ast.Assign | None = None


def _spread(tree: ast.Module, index: int) -> None:
    compiled, calls = function(tree, COMPILED), function(tree, CALLS)
    sites = calls_of(calls, COMPILED)
    wholes = [_whole(tree, calls, call.args.pop(index)) for call in sites]
    parameter = compiled.args.args.pop(index).arg
    keys = [
        key for key in _take_parts(compiled, parameter) if all(key in it.parts for it in wholes)
    ]
    compiled.args.args[index:index] = [ast.arg(_name(parameter, key)) for key in keys]
    for call, whole in zip(sites, wholes, strict=True):
        # A part of a variable gets a name: callers see it afterwards.
        call.args[index:index] = [
            ast.Name(_name(whole.name, key), ast.Load()) if whole.name else whole.parts[key]
            for key in keys
        ]
    for whole in {it.name: it for it in wholes if it.made is not None}.values():
        _make_parts(tree, calls, whole, keys)
    definitions(tree)  # the class may be unused now


def _make_parts(
    tree: ast.Module, calls: ast.FunctionDef, whole: _Whole, keys: Sequence[Key]
) -> None:
    """Assign those parts of a variable that are used, in place of the variable."""
    used = {*keys, *_take_parts(calls, whole.name)} & whole.parts.keys()
    new = [
        ast.Assign([ast.Name(_name(whole.name, key), ast.Store())], value)
        for key, value in whole.parts.items()
        if key in used and not is_plain(value)
    ]
    for path, node in nodes(tree):
        if node is whole.made:
            replace_at(tree, path, *new)
            break
    plain = {_name(whole.name, key): it for key, it in whole.parts.items() if is_plain(it)}
    substitute(calls, plain)


def _name(name: str, key: Key) -> str:
    return f"{name}_{key}".replace("-", "m")


def _whole(tree: ast.Module, calls: ast.FunctionDef, argument: ast.expr) -> _Whole:
    """What a call passes. Raises `LookupError` if its parts are not known."""
    if not isinstance(argument, ast.Name):
        return _Whole(_parts(tree, argument))
    made = [
        it
        for it in ast.walk(calls)
        if isinstance(it, ast.Assign) and ast.unparse(it.targets[0]) == argument.id
    ]
    if len(made) != 1:
        raise LookupError(argument.id)
    return _Whole(_parts(tree, made[0].value), argument.id, made[0])


def _parts(tree: ast.Module, value: ast.expr) -> dict[Key, ast.expr]:
    """The parts of an object or a container where it is made."""
    if isinstance(value, ast.List | ast.Tuple):
        count = len(value.elts)
        return {index: value.elts[index] for index in range(-count, count)}
    if isinstance(value, ast.Dict):
        keys = [key.value for key in value.keys if isinstance(key, ast.Constant)]
        return {str(key): it for key, it in zip(keys, value.values, strict=True)}
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == value.func.id:
                return _attributes(node, value)
    raise LookupError("its parts are not known")


def _attributes(kind: ast.ClassDef, call: ast.Call) -> dict[Key, ast.expr]:
    parts: dict[Key, ast.expr] = {}
    for statement in kind.body:
        if isinstance(statement, ast.Assign) and isinstance(name := statement.targets[0], ast.Name):
            parts[name.id] = statement.value
        elif isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            names = [it.arg for it in statement.args.args]
            values = dict(zip(names[1:], call.args, strict=True))
            for name_, value in _set_by(statement):
                holder = ast.Expr(copy.deepcopy(value))
                substitute(holder, values)
                parts[name_] = holder.value
    return parts


def _set_by(init: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    for statement in init.body:
        name, value = attribute_of(statement)
        if name is not None:
            yield name, value
        elif "super()" not in ast.unparse(statement) and not isinstance(statement, ast.Pass):
            raise LookupError("it does more than set attributes")


def _take_parts(made: ast.FunctionDef, name: str) -> list[Key]:
    """Put a name in place of each attribute or item of a variable; the keys that were used.

    Raises `LookupError` if the variable is used as a whole, other than as an argument of `program`.
    """
    keys: dict[Key, None] = {}
    for path, node in list(nodes(made)):
        key = _key(node, name)
        if key is not None:
            keys[key] = None
            assert isinstance(node, ast.Attribute | ast.Subscript)
            replace_at(made, path, ast.Name(_name(name, key), node.ctx))
    left = [it for it in ast.walk(made) if isinstance(it, ast.Name) and it.id == name]
    if any(isinstance(it.ctx, ast.Load) for it in left):
        raise LookupError(name)
    return list(keys)


def _key(node: ast.AST, name: str) -> Key | None:
    if not isinstance(node, ast.Attribute | ast.Subscript):
        return None
    if not isinstance(node.value, ast.Name) or node.value.id != name:
        return None
    if isinstance(node, ast.Attribute):
        return node.attr
    try:
        key = ast.literal_eval(node.slice)
    except ValueError:
        return None
    return key if isinstance(key, str | int) else None


def pass_globals(tree: ast.Module) -> list[Edit]:
    """A global tensor as an argument of `program`, made in the call."""
    names = [
        target.id
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        and isinstance(target := statement.targets[0], ast.Name)
        if target.id != COMPILED
    ]
    return [functools.partial(_pass_global, name=name) for name in names]


def _pass_global(tree: ast.Module, name: str) -> None:
    (made,) = (
        it for it in tree.body if isinstance(it, ast.Assign) and ast.unparse(it.targets[0]) == name
    )
    remove(tree, made)
    calls, sites = function(tree, CALLS), calls_of(tree, COMPILED)
    if reads(function(tree, COMPILED), name):
        function(tree, COMPILED).args.args.append(ast.arg(name))
        if len(sites) == 1 and not reads(calls, name):
            sites[0].args.append(made.value)
            return
        for call in sites:
            call.args.append(ast.Name(name, ast.Load()))
    calls.body.insert(0, made)
