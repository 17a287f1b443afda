"""The passes of `SyntaxReducer` on expressions and blocks: each lists edits of a tree."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator

from aliasproof.ir.python_program import CALLS, COMPILED
from aliasproof.reduction.inlined_calls import inline_calls, unroll_loops
from aliasproof.reduction.spread_objects import pass_globals, spread_arguments
from aliasproof.reduction.syntax_places import (
    Edit,
    Path,
    at,
    blocks_of,
    calls_of,
    delete_at,
    function,
    is_plain,
    nodes,
    reads,
    remove,
    replace_at,
    substitute,
)
from aliasproof.reduction.unused_syntax import drop_unused

SIMPLE_TENSORS = ("torch.ones(2)", "torch.arange(4.0)", "torch.ones(2, 2)", "torch.tensor(1.0)")
_MAKERS = ("arange", "zeros", "ones", "tensor", "full", "eye", "randn", "rand")
# Without it, `checkpoint` of a function that ignores its argument recurses without end.
_NEEDED = "use_reentrant"
_LISTS = ("elts", "args", "keywords", "targets", "bases", "decorator_list")


def _replace_by(tree: ast.AST, path: Path, node: ast.AST) -> None:
    replace_at(tree, path, node)


# --- results --------------------------------------------------------------------------------------


def shorten_results(tree: ast.Module) -> list[Edit]:
    """What `program` returns with one item less; a single item without its container."""
    edits: list[Edit] = []
    for path, node in nodes(tree):
        value = node.value if isinstance(node, ast.Return) else None
        inner = (*path, ("value", None))
        if isinstance(value, ast.List | ast.Tuple):
            places = [(*inner, ("elts", index)) for index in range(len(value.elts))]
            edits += [functools.partial(delete_at, path=place) for place in places]
            edits += [functools.partial(_only, path=inner, index=i) for i in range(len(places))]
        elif isinstance(value, ast.Dict):
            count = range(len(value.keys))
            edits += [functools.partial(_drop_key, path=inner, index=index) for index in count]
            edits += [functools.partial(_only, path=inner, index=index) for index in count]
    return edits


def _drop_key(tree: ast.AST, path: Path, index: int) -> None:
    node = at(tree, path)
    assert isinstance(node, ast.Dict)
    del node.keys[index], node.values[index]


def _only(tree: ast.Module, path: Path, index: int) -> None:
    """One item in place of the container that is returned, and of what callers take out of it."""
    node = at(tree, path)
    if isinstance(node, ast.Dict):
        key, value = node.keys[index], node.values[index]
    else:
        assert isinstance(node, ast.List | ast.Tuple)
        key, value = ast.Constant(index), node.elts[index]
    replace_at(tree, path, value)
    calls = function(tree, CALLS)
    names = {
        ast.unparse(it.targets[0])
        for it in ast.walk(calls)
        if isinstance(it, ast.Assign) and it.value in calls_of(it, COMPILED)
    }
    assert key is not None
    for place, taken in list(nodes(calls)):
        if isinstance(taken, ast.Subscript) and ast.unparse(taken.slice) == ast.unparse(key):
            whole = taken.value
            if whole in calls_of(calls, COMPILED) or ast.unparse(whole) in names:
                replace_at(calls, place, whole)


# --- blocks and names -----------------------------------------------------------------------------


def unwrap_blocks(tree: ast.Module) -> list[Edit]:
    """The body of a block in place of the block, or its other branch."""
    kinds = (ast.For, ast.While, ast.If, ast.With, ast.Try)
    return [
        functools.partial(_unwrap, path=path, inner=inner, field=field)
        for path, node in nodes(tree)
        if isinstance(node, kinds)
        for inner, field in blocks_of(node)
    ]


def _unwrap(tree: ast.Module, path: Path, inner: Path, field: str) -> None:
    replace_at(tree, path, *getattr(at(tree, (*path, *inner)), field))


def inline_names(tree: ast.Module) -> list[Edit]:
    """The value of a name that is read once, or that is a name itself, in its place."""
    return [
        functools.partial(edit, path=path, name=node.targets[0].id)
        for path, node in nodes(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        for edit in (_return_early, _inline_name)
    ]


def _inline_name(tree: ast.Module, path: Path, name: str) -> None:
    made, scope = at(tree, path), at(tree, path[:1]) if len(path) > 1 else tree
    assert isinstance(made, ast.Assign)
    if reads(scope, name) != 1 and not is_plain(made.value):
        raise LookupError(name)
    remove(tree, made)
    substitute(scope, {name: made.value})


def _return_early(tree: ast.Module, path: Path, name: str) -> None:
    """The return after a block in place of the assignment at the end of the block."""
    made, (field, index) = at(tree, path), path[-2]
    assert isinstance(made, ast.Assign)
    assert index is not None
    statements = getattr(at(tree, path[:-2]), field)
    last = statements[index + 1]
    if not isinstance(last, ast.Return) or reads(last, name) != 1:
        raise LookupError(name)
    del statements[index + 1]
    substitute(last, {name: made.value})
    replace_at(tree, path, last)


def drop_arguments(tree: ast.Module) -> list[Edit]:
    """`program` without one of its parameters, and each call without the argument."""

    def edit(tree: ast.Module, index: int) -> None:
        del function(tree, COMPILED).args.args[index]
        for call in calls_of(tree, COMPILED):
            del call.args[index]

    count = len(function(tree, COMPILED).args.args)
    return [functools.partial(edit, index=index) for index in range(count)]


# --- expressions ----------------------------------------------------------------------------------


def simplify_expressions(tree: ast.Module) -> list[Edit]:
    """A part of an expression in place of the whole; outer expressions are tried first."""
    return [
        functools.partial(_replace_by, path=path, node=part)
        for path, node in nodes(tree)
        if isinstance(node, ast.expr)
        for part in _parts(node)
    ]


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
            yield node.func.value
        yield from (it for it in node.args if not isinstance(it, ast.Constant))
    elif isinstance(node, ast.BinOp):
        yield from (it for it in (node.left, node.right) if not isinstance(it, ast.Constant))
    elif isinstance(node, ast.Subscript | ast.Attribute | ast.Starred):
        if not _is_module(node.value):
            yield node.value
    elif isinstance(node, ast.List | ast.Tuple):
        yield from node.elts
    elif isinstance(node, ast.Dict):
        yield from node.values
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield node.operand


def _is_module(node: ast.expr) -> bool:
    """Whether it is `torch`, or what is in it: no value of a program."""
    if isinstance(node, ast.Attribute):
        return _is_module(node.value)
    return ast.unparse(node) in ("torch", "super()")


def drop_items(tree: ast.Module) -> list[Edit]:
    """A list, a call, a dict or a class with one item less."""
    edits: list[Edit] = []
    for path, node in nodes(tree):
        name, index = path[-1]
        parent = at(tree, path[:-1])
        needed = _is_call_of_program(parent) or getattr(node, "arg", "") == _NEEDED
        if index is not None and name in _LISTS and not needed:
            edits.append(functools.partial(delete_at, path=path))
        if isinstance(node, ast.Dict):
            edits += [
                functools.partial(_drop_key, path=path, index=index)
                for index in range(len(node.keys))
            ]
    return edits[::-1]


def _is_call_of_program(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and node in calls_of(node, COMPILED)


def simplify_tensors(tree: ast.Module) -> list[Edit]:
    """A small tensor in place of what makes one."""
    return [
        functools.partial(_replace_by, path=path, node=ast.parse(text, mode="eval").body)
        for path, node in nodes(tree)
        if isinstance(node, ast.Call) and ast.unparse(node) not in SIMPLE_TENSORS and _makes(node)
        for text in SIMPLE_TENSORS
    ]


def _makes(node: ast.Call) -> bool:
    """Whether it is a function of torch that makes a tensor, or a method of what it made."""
    made = node.func
    while isinstance(made, ast.Attribute) and isinstance(made.value, ast.Call):
        made = made.value.func
    return isinstance(made, ast.Attribute) and made.attr in _MAKERS and _is_module(made.value)


PASSES: tuple[Callable[[ast.Module], list[Edit]], ...] = (
    drop_unused,
    unwrap_blocks,
    unroll_loops,
    inline_calls,
    spread_arguments,
    pass_globals,
    drop_arguments,
    shorten_results,
    inline_names,
    drop_items,
    simplify_expressions,
    simplify_tensors,
)
