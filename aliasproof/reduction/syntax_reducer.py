"""Makes a failing `PythonProgram` smaller, on its syntax.

A pass lists edits of the tree; `SyntaxReducer.consider` alone decides. An edit that leaves no valid
program, or one that eager refuses, costs next to nothing, so passes need not know what a name or a
block means.
"""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aliasproof.programs.errors import UserError
from aliasproof.programs.python_program import CALLS, COMPILED, PythonProgram

# Changes a copy of the tree, in place.
Edit: TypeAlias = Callable[[ast.Module], None]
# Where a node is: the fields and indices from the module down to it.
Path: TypeAlias = tuple[tuple[str, int | None], ...]

SIMPLE_TENSORS = ("torch.ones(2)", "torch.arange(4.0)", "torch.ones(2, 2)", "torch.tensor(1.0)")


@dataclass(slots=True)
class SyntaxReducer:
    """A program that gets smaller as long as `is_interesting` holds.

    `tried` counts the candidates that were asked; a text that was asked is not asked again.
    """

    current: PythonProgram
    is_interesting: Callable[[PythonProgram], bool]
    most: int = 400
    tried: int = 0
    _seen: set[str] = field(default_factory=set)

    def run(self) -> PythonProgram:
        """Apply all passes until none of them changes anything."""
        self.consider(ast.parse(self.current.source))  # in the form in which trees are printed
        before = None
        while before != self.current and self.tried < self.most:
            before = self.current
            self._delete_statements()
            for edits in PASSES:
                self._apply(edits)
        return self.current

    def consider(self, tree: ast.Module) -> bool:
        """Take the tree as the program if it is smaller, valid and interesting."""
        try:
            source = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
            if source in self._seen or self.tried >= self.most:
                return False
            self._seen.add(source)
            candidate = PythonProgram(source)
        except (UserError, ValueError, AttributeError):  # a tree without a meaning
            return False
        if size(candidate) > size(self.current):
            return False
        self.tried += 1
        if not self.is_interesting(candidate):
            return False
        self.current = candidate
        return True

    def _delete_statements(self) -> None:
        """Delta debugging on each block: large parts first, from the end."""
        for length in (8, 4, 2, 1):
            paths = [path for path, node in _nodes(self._tree()) if isinstance(node, ast.stmt)]
            for path in reversed(paths):
                self._try(functools.partial(_delete, path=path, length=length))

    def _apply(self, edits: Callable[[ast.Module], Sequence[Edit]]) -> None:
        """Try the edits of a pass from the last to the first, anew after each that succeeds."""
        index = len(edits(self._tree())) - 1
        while index >= 0:
            self._try(edits(self._tree())[index])
            index = min(index, len(edits(self._tree()))) - 1

    def _tree(self) -> ast.Module:
        return ast.parse(self.current.source)

    def _try(self, edit: Edit) -> bool:
        tree = self._tree()
        try:
            edit(tree)
        except (LookupError, AttributeError, TypeError, ValueError):  # the place is gone
            return False
        return self.consider(tree)


def size(program: PythonProgram) -> tuple[int, int]:
    """Statements, then nodes of the syntax: what a reader has to understand."""
    nodes = list(ast.walk(ast.parse(program.source)))
    return sum(isinstance(node, ast.stmt) for node in nodes), len(nodes) + len(program.source)


# --- places ---------------------------------------------------------------------------------------


def _nodes(tree: ast.AST, path: Path = ()) -> Iterator[tuple[Path, ast.AST]]:
    """All nodes with their paths, outer ones first."""
    for name, value in ast.iter_fields(tree):
        if isinstance(value, ast.AST):
            yield (*path, (name, None)), value
            yield from _nodes(value, (*path, (name, None)))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield (*path, (name, index)), item
                    yield from _nodes(item, (*path, (name, index)))


def _at(tree: ast.AST, path: Path) -> ast.AST:
    for name, index in path:
        value = getattr(tree, name)
        tree = value if index is None else value[index]
    return tree


def _replace(tree: ast.AST, path: Path, *nodes: ast.AST) -> None:
    """Put nodes in the place of one; several only in a list."""
    parent, (name, index) = _at(tree, path[:-1]), path[-1]
    if index is None:
        (node,) = nodes
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index : index + 1] = nodes


def _replace_by(tree: ast.AST, path: Path, node: ast.AST) -> None:
    _replace(tree, path, node)


def _delete(tree: ast.AST, path: Path, length: int = 1) -> None:
    """Delete that many items of a list, the last of which is at the path."""
    parent, (name, index) = _at(tree, path[:-1]), path[-1]
    items = getattr(parent, name)
    assert index is not None
    first = max(0, index + 1 - length)
    del items[first : index + 1]
    if not items and name == "body":
        items.append(ast.Pass())


# --- passes ---------------------------------------------------------------------------------------


def unwrap_blocks(tree: ast.Module) -> list[Edit]:
    """The body of a block in place of the block."""
    kinds = (ast.For, ast.While, ast.If, ast.With)

    def edit(tree: ast.Module, path: Path) -> None:
        _replace(tree, path, *_at(tree, path).body)  # type: ignore[attr-defined]

    return [
        functools.partial(edit, path=path) for path, node in _nodes(tree) if isinstance(node, kinds)
    ]


def inline_functions(tree: ast.Module) -> list[Edit]:
    """A function without parameters that are used, as statements where it is called."""
    where = {
        node.name: path
        for path, node in _nodes(tree)
        if isinstance(node, ast.FunctionDef) and node.name not in (COMPILED, CALLS)
    }
    functions: Any = {name: _at(tree, path) for name, path in where.items()}

    def edit(tree: ast.Module, path: Path, call: ast.Call, function: ast.FunctionDef) -> None:
        parameters = [argument.arg for argument in function.args.args]
        body: list[ast.stmt] = [
            ast.Assign([ast.Name(name, ast.Store())], value)
            for name, value in zip(parameters, call.args, strict=True)
        ]
        unneeded = (ast.Nonlocal, ast.Pass)
        body += [it for it in copy.deepcopy(function.body) if not isinstance(it, unneeded)]
        last = body.pop() if body and isinstance(body[-1], ast.Return) else None
        returned = getattr(last, "value", None) or ast.Constant(None)
        if isinstance(statement := _at(tree, path), ast.Assign):
            body.append(ast.Assign(statement.targets, returned))
        _replace(tree, path, *body)
        names = [node.id for _, node in _nodes(tree) if isinstance(node, ast.Name)]
        if function.name not in names:
            _delete(tree, where[function.name])

    return [
        functools.partial(edit, path=path, call=call, function=functions[call.func.id])
        for path, node in _nodes(tree)
        if isinstance(node, ast.Assign | ast.Expr)
        and isinstance(call := node.value, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in functions
    ]


def drop_arguments(tree: ast.Module) -> list[Edit]:
    """`program` without one of its parameters, and each call without the argument."""

    def edit(tree: ast.Module, index: int) -> None:
        for _, node in _nodes(tree):
            if isinstance(node, ast.FunctionDef) and node.name == COMPILED:
                del node.args.args[index]
            if isinstance(node, ast.Call) and _calls_program(node):
                del node.args[index]

    counts = [
        len(node.args.args)
        for _, node in _nodes(tree)
        if isinstance(node, ast.FunctionDef) and node.name == COMPILED
    ]
    return [functools.partial(edit, index=index) for index in range(max(counts, default=0))]


def _calls_program(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == COMPILED


def inline_names(tree: ast.Module) -> list[Edit]:
    """The value of a name that is read once, in its place."""

    def edit(tree: ast.Module, path: Path, name: str, value: ast.expr) -> None:
        reads = [
            read
            for read, node in _nodes(tree)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        ]
        if len(reads) != 1:
            raise LookupError
        _replace(tree, reads[0], value)
        _delete(tree, path)

    return [
        functools.partial(edit, path=path, name=node.targets[0].id, value=node.value)
        for path, node in _nodes(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    ]


def simplify_expressions(tree: ast.Module) -> list[Edit]:
    """A part of an expression in place of the whole."""
    return [
        functools.partial(_replace_by, path=path, node=part)
        for path, node in _nodes(tree)
        if isinstance(node, ast.expr)
        for part in _parts(node)
    ]


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield node.func.value
        yield from node.args
    elif isinstance(node, ast.BinOp):
        yield from (node.left, node.right)
    elif isinstance(node, ast.Subscript | ast.Attribute | ast.Starred):
        yield node.value
    elif isinstance(node, ast.List | ast.Tuple):
        yield from node.elts
    elif isinstance(node, ast.Dict):
        yield from node.values
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand


def drop_items(tree: ast.Module) -> list[Edit]:
    """A list, a call, a dict or a class with one item less."""

    def drop_key(tree: ast.Module, path: Path, index: int) -> None:
        node = _at(tree, path)
        assert isinstance(node, ast.Dict)
        del node.keys[index], node.values[index]

    edits: list[Edit] = []
    for path, node in _nodes(tree):
        name, index = path[-1]
        if index is not None and name in (
            "elts",
            "args",
            "keywords",
            "targets",
            "bases",
            "decorator_list",
        ):
            edits.append(functools.partial(_delete, path=path))
        if isinstance(node, ast.Dict):
            edits += [
                functools.partial(drop_key, path=path, index=index)
                for index in range(len(node.keys))
            ]
    return edits


def simplify_tensors(tree: ast.Module) -> list[Edit]:
    """A small tensor in place of what makes one."""
    edits: list[Edit] = []
    for path, node in _nodes(tree):
        if isinstance(node, ast.Call) and ast.unparse(node).startswith("torch.") and _makes(node):
            edits += [
                functools.partial(_replace_by, path=path, node=_expression(text))
                for text in reversed(SIMPLE_TENSORS)
            ]
    return edits


def _makes(node: ast.Call) -> bool:
    return "arange" in ast.unparse(node) or "zeros" in ast.unparse(node)


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


PASSES: tuple[Callable[[ast.Module], list[Edit]], ...] = (
    unwrap_blocks,
    inline_functions,
    drop_arguments,
    inline_names,
    drop_items,
    simplify_expressions,
    simplify_tensors,
)
