"""What a program never uses: definitions, parameters, attributes and results, all in one edit."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Callable, Iterator

from aliasproof.ir.python_program import CALLS, COMPILED
from aliasproof.reduction.syntax_places import Edit, calls_of, function, reads, remove

_HOOKS = ("__init__", "forward", "backward")


def drop_unused(tree: ast.Module) -> list[Edit]:
    """All that is unused at once; then each kind of it."""
    return [functools.partial(_drop, kinds=kinds) for kinds in (KINDS, *((it,) for it in KINDS))]


def _drop(tree: ast.Module, kinds: tuple[Callable[[ast.Module], bool], ...]) -> None:
    changed = True
    while changed:
        changed = False
        for kind in kinds:
            changed |= kind(tree)


def _named(tree: ast.AST) -> set[str]:
    """All that is read: names, attributes, and strings, such as those of buffers."""
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
            if isinstance(statement, ast.Assign) and not _is_named(statement, named):
                yield statement

    return _remove_all(tree, unused())


def _is_named(statement: ast.Assign, named: set[str]) -> bool:
    (target, *_) = statement.targets
    return not isinstance(target, ast.Name) or target.id in (*named, COMPILED)


def attributes(tree: ast.Module) -> bool:
    """Delete the attributes in `__init__` that nothing reads."""
    named = _named(tree)

    def unused() -> Iterator[ast.stmt]:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                yield from (it for it in node.body if attribute_of(it)[0] not in (None, *named))

    return _remove_all(tree, unused())


def attribute_of(statement: ast.stmt) -> tuple[str | None, ast.expr]:
    """The name and the value of `self.name = value`, or of a buffer; None for what is neither."""
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
    """Delete what `program` computes without a write, and does not read."""
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
