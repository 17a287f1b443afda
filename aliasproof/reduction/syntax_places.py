"""Places in a tree of Python's syntax, and how a node there is replaced or deleted."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

# Changes a copy of the tree, in place.
Edit: TypeAlias = Callable[[ast.Module], None]
# Where a node is: the fields and indices from the module down to it.
Path: TypeAlias = tuple[tuple[str, int | None], ...]


def nodes(tree: ast.AST, path: Path = ()) -> Iterator[tuple[Path, ast.AST]]:
    """All nodes with their paths, outer ones first."""
    for name, value in ast.iter_fields(tree):
        if isinstance(value, ast.AST):
            yield (*path, (name, None)), value
            yield from nodes(value, (*path, (name, None)))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield (*path, (name, index)), item
                    yield from nodes(item, (*path, (name, index)))


def at(tree: ast.AST, path: Path) -> ast.AST:
    """The node at a path. Raises `LookupError` or `AttributeError` if there is none."""
    for name, index in path:
        value = getattr(tree, name)
        tree = value if index is None else value[index]
    return tree


def replace_at(tree: ast.AST, path: Path, *new: ast.AST) -> None:
    """Put nodes in the place of one; several only in a list."""
    parent, (name, index) = at(tree, path[:-1]), path[-1]
    if index is None:
        (node,) = new
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index : index + 1] = new


def delete_at(tree: ast.AST, path: Path, length: int = 1) -> None:
    """Delete that many items of a list, the last of which is at the path."""
    parent, (name, index) = at(tree, path[:-1]), path[-1]
    items = getattr(parent, name)
    assert index is not None
    del items[max(0, index + 1 - length) : index + 1]
    if not items and name == "body":
        items.append(ast.Pass())


def remove(tree: ast.AST, gone: ast.AST) -> None:
    """Delete this statement, wherever it is."""
    for path, node in nodes(tree):
        if node is gone:
            delete_at(tree, path)
            return


def statement_of(tree: ast.AST, path: Path) -> Path:
    """The path of the innermost statement around a node."""
    ends = range(len(path), 0, -1)
    return next(path[:end] for end in ends if isinstance(at(tree, path[:end]), ast.stmt))


def blocks_of(statement: ast.stmt) -> list[tuple[Path, str]]:
    """The lists of statements in a statement: where the node is that has one, and its field."""
    found = [((), it) for it in ("body", "orelse", "finalbody") if getattr(statement, it, [])]
    handlers = getattr(statement, "handlers", [])
    return [*found, *(((("handlers", index),), "body") for index, _ in enumerate(handlers))]


def function(tree: ast.Module, name: str) -> ast.FunctionDef:
    """A function of the module. Raises `LookupError` if there is none."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return statement
    raise LookupError(name)


def calls_of(tree: ast.AST, name: str) -> list[ast.Call]:
    """All calls of a name."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def reads(tree: ast.AST, name: str) -> int:
    """How often a name is read."""
    return sum(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for node in ast.walk(tree)
    )


class _Substitution(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.values.get(node.id)
        if value is None:
            return node
        if not isinstance(node.ctx, ast.Load):
            if isinstance(value, ast.Name):
                return ast.Name(value.id, node.ctx)
            raise LookupError(node.id)
        return copy.deepcopy(value)


def substitute(node: ast.AST, values: Mapping[str, ast.expr]) -> None:
    """Put these values in place of names. Raises `LookupError` if such a name is written."""
    _Substitution(values).visit(node)


def is_plain(node: ast.AST) -> bool:
    """Whether it can be written twice: a name, a number, an attribute of a name."""
    if isinstance(node, ast.Attribute):
        return is_plain(node.value)
    return isinstance(node, ast.Name | ast.Constant)
