"""What a tree of Python's syntax says about names, without running it.

`is_complete` refuses candidates that read a name which nothing binds: Python would raise NameError.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator

from aliasproof.ir.python_program import CALLS, COMPILED
from aliasproof.reduction.syntax_places import at, blocks_of, calls_of, function

_SCOPES = (ast.FunctionDef, ast.Lambda, ast.ClassDef)
_ALWAYS = frozenset(dir(builtins)) | {"torch"}


def is_complete(tree: ast.Module) -> bool:
    """Whether each name is bound before it is read, and `program` gets as many values as it takes.

    The branches of a condition count as one, and a later pass of a loop as the first.
    """
    try:
        count = len(function(tree, COMPILED).args.args)
        function(tree, CALLS)
    except LookupError:
        return False
    if any(len(call.args) != count for call in calls_of(tree, COMPILED)):
        return False
    return _binds_all(tree.body, set(_ALWAYS), set(bound(tree)))


def bound(scope: ast.AST) -> Iterator[str]:
    """The names that a scope itself binds, anywhere in it."""
    arguments = getattr(scope, "args", None)
    if isinstance(arguments, ast.arguments):
        yield from (it.arg for it in ast.walk(arguments) if isinstance(it, ast.arg))
    for node in _within(scope):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a scope, and the scopes in it without what is in them."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, _SCOPES):
            yield from _within(child)


def _binds_all(statements: Iterable[ast.stmt], known: set[str], visible: set[str]) -> bool:
    """Whether statements that run in this order read only names that are `known` by then.

    `known` gets what they bind. Functions within may also read what is `visible` when they run.
    """
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            if not _scope_binds_all(statement, known, visible):
                return False
            known.add(statement.name)
        elif not _statement_binds_all(statement, known, visible):
            return False
    return True


def _statement_binds_all(statement: ast.stmt, known: set[str], visible: set[str]) -> bool:
    blocks = [getattr(at(statement, path), field) for path, field in blocks_of(statement)]
    if isinstance(statement, ast.For):
        heads: list[ast.AST] = [statement.iter, statement.target]
    elif isinstance(statement, ast.With):
        heads = [*statement.items]
    elif isinstance(statement, ast.If | ast.While):
        heads = [statement.test]
    elif isinstance(statement, ast.Assign):
        heads = [statement.value, *statement.targets]
    elif isinstance(statement, ast.Try):
        heads = [it.type for it in statement.handlers if it.type is not None]
    else:
        heads = [statement]
    if isinstance(statement, ast.AugAssign):
        target = statement.target
        if isinstance(target, ast.Name) and target.id not in known:
            return False
    for head in heads:
        if not _expression_binds_all(head, known, visible):
            return False
    return all(_binds_all(block, known, visible) for block in blocks)


def _expression_binds_all(node: ast.AST, known: set[str], visible: set[str]) -> bool:
    comprehensions = [
        it
        for it in ast.walk(node)
        if isinstance(it, ast.ListComp | ast.DictComp | ast.GeneratorExp)
    ]
    own = {name for it in comprehensions for name in bound(it)}
    for scope in (it for it in _within(node) if isinstance(it, ast.Lambda)):
        if not _scope_binds_all(scope, known | own, visible):
            return False
    if isinstance(node, ast.Lambda):
        return _scope_binds_all(node, known, visible)
    for part in (node, *_within(node)):
        if isinstance(part, ast.Name):
            if isinstance(part.ctx, ast.Load):
                if part.id not in known | own:
                    return False
            else:
                known.add(part.id)
        elif isinstance(part, ast.Nonlocal | ast.Global):
            known.update(part.names)
        elif isinstance(part, ast.Import):
            known.update(alias.name for alias in part.names)
    return True


def _scope_binds_all(
    scope: ast.FunctionDef | ast.Lambda | ast.ClassDef, known: set[str], visible: set[str]
) -> bool:
    if isinstance(scope, ast.ClassDef):
        heads: list[ast.AST] = [*scope.bases, *scope.decorator_list]
        if not all(_expression_binds_all(head, known, visible) for head in heads):
            return False
        # The methods do not see the names of the class.
        return _binds_all(scope.body, set(known), visible)
    inner = set(bound(scope))
    parameters = {it.arg for it in ast.walk(scope.args) if isinstance(it, ast.arg)}
    if not all(_expression_binds_all(it, known, visible) for it in scope.args.defaults):
        return False
    # It runs later, when all names around it may be bound.
    around = (visible | known) - (inner - parameters) | parameters
    body = [ast.Expr(scope.body)] if isinstance(scope, ast.Lambda) else scope.body
    return _binds_all(body, around, visible | inner)
