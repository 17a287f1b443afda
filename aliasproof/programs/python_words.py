"""The words of a `PythonProgram`: what it is made of, whatever its names and numbers are."""

from __future__ import annotations

import ast
import re

from aliasproof.programs import python_names
from aliasproof.programs.custom_operators import NAMESPACE
from aliasproof.programs.python_program import COMPILED, PythonProgram

WRITE = "write"  # any call that writes a tensor, or may, or an assignment to a part of it
WRITES_CLASS = "writes_class"  # an attribute of a class is assigned in `program`
WRITES_ATTRIBUTE = "writes_attribute"  # an attribute of anything is
# A word for any one of several.
_ANY_OF = {
    "control_flow": {"cond", "map", "scan", "while_loop"},
    "generator": {"GeneratorExp", "Yield"},
    "grad_mode": {"enable_grad", "no_grad", "set_grad_enabled"},
    "membership": {"In", "NotIn"},
}
# What almost every program has says nothing about a cause.
_COMMON = frozenset(
    ["torch", "ones", "arange", "tensor", "zeros", "reshape", "locals", "program", "calls"]
)
# Of expressions, those that a cause may depend on.
_KINDS = (ast.stmt, ast.In, ast.NotIn, ast.Is, ast.IsNot, ast.GeneratorExp, ast.Yield)
# Operators that are no other way to write or to view.
_SPECIAL = frozenset(["as_strided", "detach", "expand", "requires_grad_", "resize_", "set_", "t_"])
_SPECIAL_KINDS = frozenset(["Delete", "For", "GeneratorExp", "In", "Is", "IsNot", "Raise", "Try"])
_SPECIAL_KINDS |= frozenset(["While"])
# Packages, what tensors are asked in passing, and the ways to make a leaf or an object.
_PLAIN = frozenset(["Module", "Parameter", "__init__", "forward", "super"])
_PLAIN |= frozenset(["autograd", "func", "functional", "nn", "ops", "utils", "register_buffer"])
_PLAIN |= frozenset(["register_parameter", "requires_grad_", "shape", "sum"])


_DRAWS = re.compile(r"rand|dropout|bernoulli|normal_$|uniform_$|multinomial|exponential_$")


def draws(program: PythonProgram) -> bool:
    """Whether it calls something that draws random numbers, by its name."""
    return any(_DRAWS.search(word) for word in words(program))


def words(program: PythonProgram) -> frozenset[str]:
    """Names of operators, attributes and builtins, and kinds of syntax."""
    nodes = list(ast.walk(ast.parse(program.source)))
    kinds = {type(node).__name__ for node in nodes if isinstance(node, _KINDS)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return frozenset(kinds | attributes | (names & python_names.BUILTINS)) - _COMMON


def traits(program: PythonProgram) -> frozenset[str]:
    """Its words, with `WRITE` and the other words above if they hold of it."""
    tree, plain = ast.parse(program.source), words(program)
    holds = {
        WRITE: _writes(tree),
        WRITES_CLASS: _writes_class(tree),
        WRITES_ATTRIBUTE: bool(_written_attributes(tree)),
        **{word: not plain.isdisjoint(several) for word, several in _ANY_OF.items()},
    }
    return plain | {word for word, it_holds in holds.items() if it_holds}


def mechanisms(program: PythonProgram) -> frozenset[str]:
    """The words for what an ordinary operator cannot do instead.

    A reduced program fails only with all that it has. So a program with a mechanism that a known
    bug does without fails for another cause.
    """
    special = _SPECIAL | _SPECIAL_KINDS | python_names.BUILTINS | python_names.BEYOND_OPERATORS
    return frozenset(words(program) & special) - _PLAIN


def _writes_class(tree: ast.Module) -> bool:
    classes = {it.name for it in tree.body if isinstance(it, ast.ClassDef)}
    return any(getattr(node.value, "id", "") in classes for node in _written_attributes(tree))


def _written_attributes(tree: ast.Module) -> list[ast.Attribute]:
    """The attributes that `program` assigns."""
    return [
        node
        for made in tree.body
        if getattr(made, "name", "") == COMPILED
        for node in ast.walk(made)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]


def _writes(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else ""
        if name == NAMESPACE:  # an operator of ours
            return True
        if name != "requires_grad_" and re.fullmatch(r"[a-z]\w*[a-z\d]_", name):
            return True
        if isinstance(node, ast.AugAssign) or (
            isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        ):
            return True
        if isinstance(node, ast.keyword) and node.arg == "out":
            return True
    return False
