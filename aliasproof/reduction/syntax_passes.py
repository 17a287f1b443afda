"""`PYTHON`: how a `PythonProgram` is reduced, on its syntax.

A pass lists edits of the tree. A candidate is refused without a run if it is no valid program, is
larger, reads a name that nothing binds, or was refused before. So passes need not know the meaning
of a name or a block.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from aliasproof.ir.errors import UserError
from aliasproof.ir.python_program import BUILTINS, CALLS, COMPILED, PythonProgram
from aliasproof.reduction.edits import fractions
from aliasproof.reduction.reducer import Problem, Step
from aliasproof.reduction.syntax_trees import (
    Edit,
    Path,
    at,
    attribute_of,
    blocks_of,
    calls_of,
    definitions,
    delete_at,
    drop_unused,
    function,
    is_complete,
    is_plain,
    nodes,
    reads,
    remove,
    replace_at,
    statement_of,
    substitute,
)

# --- inlined calls --------------------------------------------------------------------------------
#
# Calls of functions, methods and lambdas are replaced by their bodies, loops by their first pass.


Callee: TypeAlias = ast.FunctionDef | ast.Lambda
_SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.Return)
_INNER = (ast.Lambda, ast.ListComp, ast.DictComp, ast.GeneratorExp)
_LONGEST_RANGE = 3


def inline_calls(tree: ast.Module) -> list[Edit]:
    """Replace a call by the body of the function, method or lambda."""
    functions, methods = _callees(tree)
    return [
        functools.partial(_inline, path=path, callee=callee)
        for path, node in nodes(tree)
        if isinstance(node, ast.Call)
        for callee in _callees_of(node, functions, methods)
    ]


def _callees(tree: ast.Module) -> tuple[dict[str, Path], dict[str, list[Path]]]:
    """Paths of functions and lambdas, by name, and of methods; `forward` also under the name ""."""
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
    # Nothing is left of a statement that was only the call.
    done = isinstance(statement, ast.Expr) and statement.value is value and is_plain(value)
    new = [*first, *body, *([] if done else [statement])]
    replace_at(tree, where, *(new or [ast.Pass()]))
    _forget(tree, made)


def _bound_body(call: ast.Call, made: Callee) -> tuple[list[ast.stmt], list[ast.stmt], ast.expr]:
    """Assignments of parameters, the body without its return, and the returned expression."""
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
    """The value of each parameter. Raises `LookupError` if the arguments are not in order."""
    names = [it.arg for it in made.args.args]
    given = [*call.args]
    if names[:1] == ["self"]:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else None
        is_method = name == getattr(made, "name", "")
        given.insert(0, call.func.value if is_method else call.func)  # type: ignore[attr-defined]
    if missing := len(names) - len(given):
        given += made.args.defaults[-missing:]
    if call.keywords or len(names) != len(given):
        raise LookupError("other parameters than arguments")
    return dict(zip(names, given, strict=True))


def _forget(tree: ast.Module, made: Callee) -> None:
    """Delete a function that is no longer named."""
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
    """Unroll a short loop; or replace a loop, or a comprehension, by its first pass."""
    edits: list[Edit] = []
    for path, node in nodes(tree):
        if isinstance(node, ast.For):
            edits.append(functools.partial(_unroll, path=path, passes=range(_length(node.iter))))
            edits.append(functools.partial(_unroll, path=path, passes=range(1)))
        elif isinstance(node, ast.ListComp | ast.GeneratorExp):
            edits.append(functools.partial(_first_item, path=path))
    return edits


def _length(items: ast.expr) -> int:
    """How many passes an unrolled loop has: the length of a range or a list, else 0."""
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
    """Replace a comprehension by a list of only its first item."""
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
    """Replace a loop variable by a value; return the assignments that this needs."""
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


# --- spread objects -------------------------------------------------------------------------------
#
# Objects and containers that `program` gets are replaced by their parts, globals by arguments.


Key: TypeAlias = str | int  # the name of an attribute, or the key or index of an item


def spread_arguments(tree: ast.Module) -> list[Edit]:
    """Replace an argument that is an object or a container by the parts that are used."""
    count = len(function(tree, COMPILED).args.args)
    return [functools.partial(_spread, index=index) for index in range(count)]


@dataclass(frozen=True, slots=True)
class _Whole:
    """The parts of an argument of `program`; its variable and assignment, if it is a variable."""

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
        # A part of a variable gets a name, since callers read it after the call.
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
    """Replace the assignment of a variable by assignments of the parts that are used."""
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
    """The argument of a call and its parts. Raises `LookupError` if these are not known."""
    if not isinstance(argument, ast.Name):
        return _Whole(_parts_by_key(tree, argument))
    made = [
        it
        for it in ast.walk(calls)
        if isinstance(it, ast.Assign) and ast.unparse(it.targets[0]) == argument.id
    ]
    if len(made) != 1:
        raise LookupError(argument.id)
    return _Whole(_parts_by_key(tree, made[0].value), argument.id, made[0])


def _parts_by_key(tree: ast.Module, value: ast.expr) -> dict[Key, ast.expr]:
    """The parts of an object or a container, from the expression that makes it."""
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
    """Replace each attribute or item of a variable by a name; return the keys that were used.

    Raises `LookupError` if the variable is read as a whole, other than as an argument of `program`.
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
    """Replace a global tensor by an argument of `program`, made in the call."""
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


# --- syntax passes --------------------------------------------------------------------------------


SIMPLE_TENSORS = ("torch.ones(2)", "torch.arange(4.0)", "torch.ones(2, 2)", "torch.tensor(1.0)")
_MAKERS = ("arange", "zeros", "ones", "tensor", "full", "eye", "randn", "rand")
# Without it, `checkpoint` of a function that ignores its argument recurses without end.
_NEEDED = "use_reentrant"
_LISTS = ("elts", "args", "keywords", "targets", "bases", "decorator_list")


def _replace_by(tree: ast.AST, path: Path, node: ast.AST) -> None:
    replace_at(tree, path, node)


# --- results --------------------------------------------------------------------------------------


def shorten_results(tree: ast.Module) -> list[Edit]:
    """Remove an item of what `program` returns; or return one item without its container."""
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
    """Return one item in place of the container, and adapt the callers that take that item."""
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
    """Replace a block by its body, or by its other branch."""
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
    """Replace a name by its value, if it is read once or the value is a plain expression."""
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
    """Move the return after a block to the assignment at the end of the block."""
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
    """Remove a parameter of `program`, and the argument in each call."""

    def edit(tree: ast.Module, index: int) -> None:
        del function(tree, COMPILED).args.args[index]
        for call in calls_of(tree, COMPILED):
            del call.args[index]

    count = len(function(tree, COMPILED).args.args)
    return [functools.partial(edit, index=index) for index in range(count)]


# --- expressions ----------------------------------------------------------------------------------


def simplify_expressions(tree: ast.Module) -> list[Edit]:
    """Replace an expression by a part of it; outer expressions are tried first."""
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
    """Whether it is `torch`, or a module or class in it, and so no value of a program."""
    if isinstance(node, ast.Attribute):
        return _is_module(node.value)
    return ast.unparse(node) in ("torch", "super()")


def drop_items(tree: ast.Module) -> list[Edit]:
    """Remove an item of a list, a call, a dict or a class."""
    edits: list[Edit] = []
    for path, node in nodes(tree):
        name, index = path[-1]
        parent = at(tree, path[:-1])
        of_program = isinstance(parent, ast.Call) and parent in calls_of(parent, COMPILED)
        needed = of_program or getattr(node, "arg", "") == _NEEDED
        if index is not None and name in _LISTS and not needed:
            edits.append(functools.partial(delete_at, path=path))
        if isinstance(node, ast.Dict):
            edits += [
                functools.partial(_drop_key, path=path, index=index)
                for index in range(len(node.keys))
            ]
    return edits[::-1]


def simplify_tensors(tree: ast.Module) -> list[Edit]:
    """Replace an expression that makes a tensor by a small tensor."""
    return [
        functools.partial(_replace_by, path=path, node=ast.parse(text, mode="eval").body)
        for path, node in nodes(tree)
        if isinstance(node, ast.Call) and ast.unparse(node) not in SIMPLE_TENSORS and _makes(node)
        for text in SIMPLE_TENSORS
    ]


def _makes(node: ast.Call) -> bool:
    """Whether it is a function of torch that makes a tensor, or a method of such a tensor."""
    made = node.func
    while isinstance(made, ast.Attribute) and isinstance(made.value, ast.Call):
        made = made.value.func
    return isinstance(made, ast.Attribute) and made.attr in _MAKERS and _is_module(made.value)


# --- deleted statements, and all passes -----------------------------------------------------------


# The lines that the candidate lost, and those that it gained, with counts.
Change: TypeAlias = tuple[frozenset[tuple[str, int]], frozenset[tuple[str, int]]]
SyntaxPass: TypeAlias = Callable[[ast.Module], list[Edit]]
_NO_PLACE = (LookupError, AttributeError, TypeError, ValueError, AssertionError)


def print_plainly(tree: ast.Module) -> list[Edit]:
    """Print the program as `ast.unparse` does."""
    return [lambda tree: None]


def delete_statements(tree: ast.Module) -> list[Edit]:
    """Delete consecutive statements of a block, from half of them down to one, the last ones first.

    The blocks in `calls` and in `program` come before the module and the blocks in other functions.
    """
    blocks: dict[str, list[Path]] = {CALLS: [], COMPILED: [], "": [(("body", None),)]}
    for path, node in nodes(tree):
        if isinstance(node, ast.stmt):
            name = getattr(at(tree, path[:1]), "name", "")
            blocks[name if name in blocks else ""] += [
                (*path, *inner, (field, None)) for inner, field in blocks_of(node)
            ]
    edits: list[Edit] = []
    for *place, (field, _) in itertools.chain(*blocks.values()):
        count = len(getattr(at(tree, tuple(place)), field))
        edits += [
            functools.partial(delete_at, path=(*place, (field, end - 1)), length=min(length, end))
            for length in fractions(count)
            for end in range(count, 0, -length)
        ]
    return edits


def _step(edits: SyntaxPass) -> Step[PythonProgram]:
    """A pass as a step of the reducer."""

    @functools.wraps(edits)
    def step(program: PythonProgram) -> list[Edit]:
        return edits(ast.parse(program.source))

    return step


def _edited(program: PythonProgram, edit: Edit) -> PythonProgram | None:
    tree = ast.parse(program.source)
    try:
        edit(tree)
        edited = PythonProgram(ast.unparse(ast.fix_missing_locations(tree)) + "\n")
    except (UserError, *_NO_PLACE):  # the edit does not apply, or gives no valid program
        return None
    return edited if is_complete(ast.parse(edited.source)) else None


def size(program: PythonProgram) -> tuple[int, int]:
    """Number of statements; then of syntax nodes and characters."""
    nodes = list(ast.walk(ast.parse(program.source)))
    return sum(isinstance(node, ast.stmt) for node in nodes), len(nodes) + len(program.source)


def _change(before: PythonProgram, after: PythonProgram) -> Change:
    lines, others = Counter(before.source.splitlines()), Counter(after.source.splitlines())
    return frozenset((lines - others).items()), frozenset((others - lines).items())


FEWER_STATEMENTS = (print_plainly, drop_unused, delete_statements, unwrap_blocks)
# Expanded calls and loops may leave more to delete.
PLAINER_PARTS: tuple[SyntaxPass, ...] = (
    drop_unused,
    delete_statements,
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

PYTHON = Problem(
    groups=(tuple(map(_step, FEWER_STATEMENTS)), tuple(map(_step, PLAINER_PARTS))),
    candidate=_edited,
    size=size,
    is_smaller=lambda program, least: size(program) <= least,
    change=_change,
    most=400,
)
