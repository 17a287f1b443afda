"""Trees of Python's syntax: paths, edits, names, and unused definitions."""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from aliasproof.ir.python_program import CALLS, COMPILED

# Changes a copy of the tree, in place.
Edit: TypeAlias = Callable[[ast.Module], None]
# A path to a node: the fields and indices from the module down to it.
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
    """Replace a node by others; by several only in a list."""
    parent, (name, index) = at(tree, path[:-1]), path[-1]
    if index is None:
        (node,) = new
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index : index + 1] = new


def delete_at(tree: ast.AST, path: Path, length: int = 1) -> None:
    """Delete `length` items of a list, of which the last is at the path."""
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
    """The lists of statements in a statement: the path of the node that has one, and its field."""
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
    """Replace names by these values. Raises `LookupError` if such a name is written."""
    _Substitution(values).visit(node)


def is_plain(node: ast.AST) -> bool:
    """Whether an expression may be duplicated: a name, a constant, an attribute of a name."""
    if isinstance(node, ast.Attribute):
        return is_plain(node.value)
    return isinstance(node, ast.Name | ast.Constant)


# --- syntax scopes --------------------------------------------------------------------------------
#
# `is_complete` refuses candidates that read a name which nothing binds: Python would raise
# NameError.


_SCOPES = (ast.FunctionDef, ast.Lambda, ast.ClassDef)
_ALWAYS = frozenset(dir(builtins)) | {"torch"}


def is_complete(tree: ast.Module) -> bool:
    """Whether each name is bound before it is read, and calls of `program` fit its parameters.

    The branches of a condition count as one sequence, and later passes of a loop as the first one.
    """
    try:
        count = len(function(tree, COMPILED).args.args)
        function(tree, CALLS)
        _ReadNames(set(_ALWAYS), set(bound(tree))).visit_all(tree.body)
    except LookupError:
        return False
    return all(len(call.args) == count for call in calls_of(tree, COMPILED))


def bound(scope: ast.AST) -> Iterator[str]:
    """The names that a scope itself binds, anywhere in it."""
    arguments = getattr(scope, "args", None)
    if isinstance(arguments, ast.arguments):
        yield from (it.arg for it in ast.walk(arguments) if isinstance(it, ast.arg))
    for node in _nodes_of_scope(scope):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _nodes_of_scope(scope: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a scope, including nested scopes but not their contents."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, _SCOPES):
            yield from _nodes_of_scope(child)


class _ReadNames(ast.NodeVisitor):
    """Walks in the order of execution. Raises `LookupError` for a name that is not `known`.

    Functions may also read names that are `visible` when they run.
    """

    def __init__(self, known: set[str], visible: set[str]) -> None:
        self.known, self.visible = known, visible

    def visit_all(self, trees: Iterable[ast.AST]) -> None:
        for tree in trees:
            self.visit(tree)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.known.add(node.id)
        elif node.id not in self.known:
            raise LookupError(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit_all((node.value, *node.targets))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.visit(ast.Name(node.target.id, ast.Load()))
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self.visit_all((node.iter, node.target, *node.body, *node.orelse))

    def visit_Nonlocal(self, node: ast.Nonlocal | ast.Global) -> None:
        self.known.update(node.names)

    visit_Global = visit_Nonlocal  # noqa: N815 - as `ast` has it

    def visit_Import(self, node: ast.Import) -> None:
        self.known.update(alias.name for alias in node.names)

    def visit_ListComp(self, node: ast.ListComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.known.update(bound(node))  # in the source, the binding is after its uses
        self.generic_visit(node)

    visit_DictComp = visit_GeneratorExp = visit_ListComp  # noqa: N815 - as `ast` has it

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all((*node.bases, *node.decorator_list))
        # The methods do not see the names of the class.
        _ReadNames(set(self.known), self.visible).visit_all(node.body)
        self.known.add(node.name)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node, node.body)
        self.known.add(node.name)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_function(node, [node.body])

    def _visit_function(self, scope: ast.FunctionDef | ast.Lambda, body: Sequence[ast.AST]) -> None:
        self.visit_all(scope.args.defaults)
        inner = set(bound(scope))
        parameters = {it.arg for it in ast.walk(scope.args) if isinstance(it, ast.arg)}
        # The function runs later, when all names around it may be bound.
        around = (self.visible | self.known) - (inner - parameters) | parameters
        _ReadNames(around, self.visible | inner).visit_all(body)


# --- unused syntax --------------------------------------------------------------------------------


_HOOKS = ("__init__", "forward", "backward")


def drop_unused(tree: ast.Module) -> list[Edit]:
    """Remove everything that is unused; then only one kind of it."""
    return [functools.partial(_drop, kinds=kinds) for kinds in (KINDS, *((it,) for it in KINDS))]


def _drop(tree: ast.Module, kinds: tuple[Callable[[ast.Module], bool], ...]) -> None:
    changed = True
    while changed:
        changed = False
        for kind in kinds:
            changed |= kind(tree)


def _named(tree: ast.AST) -> set[str]:
    """All names and attributes that are read."""
    loads = [it for it in ast.walk(tree) if isinstance(getattr(it, "ctx", None), ast.Load)]
    names = {it.id for it in loads if isinstance(it, ast.Name)}
    return names | {it.attr for it in loads if isinstance(it, ast.Attribute)}


def _remove_all(tree: ast.Module, unused: Iterator[ast.stmt]) -> bool:
    found = [*unused]
    for statement in found:
        remove(tree, statement)
    return bool(found)


def definitions(tree: ast.Module) -> bool:
    """Delete functions, classes, methods, imports and globals that nothing names."""
    named = _named(tree)

    def unused() -> Iterator[ast.stmt]:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                if node.name not in (*named, *_HOOKS, COMPILED, CALLS):
                    yield node
            elif isinstance(node, ast.Import) and not named & {it.name for it in node.names}:
                yield node
        classes = [it.body for it in tree.body if isinstance(it, ast.ClassDef)]
        for statement in itertools.chain(tree.body, *classes):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if isinstance(target, ast.Name) and target.id not in (*named, COMPILED):
                yield statement

    return _remove_all(tree, unused())


def attributes(tree: ast.Module) -> bool:
    """Delete the attributes in `__init__` that nothing reads."""
    named = _named(tree)

    def unused() -> Iterator[ast.stmt]:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                yield from (it for it in node.body if attribute_of(it)[0] not in (None, *named))

    return _remove_all(tree, unused())


def attribute_of(statement: ast.stmt) -> tuple[str | None, ast.expr]:
    """The name and value of `self.name = value`, or of a registered buffer; else no name."""
    if isinstance(statement, ast.Assign) and isinstance(
        target := statement.targets[0], ast.Attribute
    ):
        return target.attr, statement.value
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        kinds = ("register_buffer", "register_parameter")
        if call.func.attr in kinds and isinstance(name := call.args[0], ast.Constant):
            return str(name.value), call.args[1]
    return None, ast.Constant(None)


def parameters(tree: ast.Module) -> bool:
    """Delete parameters that are not read, and their arguments."""
    pairs = [(function(tree, COMPILED), calls_of(tree, COMPILED), 0)]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            inits = [it for it in node.body if getattr(it, "name", "") == "__init__"]
            pairs += [
                (it, calls_of(tree, node.name), 1)
                for it in inits
                if isinstance(it, ast.FunctionDef)
            ]
    changed = False
    for made, calls, own in pairs:
        given = made.args.args
        for index in range(len(given) - 1, own - 1, -1):
            places = [it for it in ast.walk(made) if isinstance(it, ast.Name)]
            if all(it.id != given[index].arg for it in places):
                del given[index]
                for call in calls:
                    del call.args[index - own : index - own + 1]
                changed = True
    return changed


def results(tree: ast.Module) -> bool:
    """Delete values that `program` computes without a write and never reads."""
    compiled = function(tree, COMPILED)

    def unused() -> Iterator[ast.stmt]:
        for node in ast.walk(compiled):
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(node, ast.Assign) and isinstance(target, ast.Name):
                unread = not reads(compiled, target.id)
                if unread and not _writes(node.value):
                    yield node

    return _remove_all(tree, unused())


def _writes(value: ast.expr) -> bool:
    """Whether an expression may do more than compute a value."""
    for node in ast.walk(value):
        if isinstance(node, ast.keyword) and node.arg == "out":
            return True
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", "_")
            if name.endswith("_") or name in ("apply", "pop", "grad", "append"):
                return True
    return False


KINDS = (definitions, attributes, parameters, results)
