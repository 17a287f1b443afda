"""`python_programs`: a user's file as `PythonProgram`s, so that it is reduced in its own spelling.

The text of the file stays, except for parts that no run needs: annotations, docstrings, unused
imports, and code that runs only in a script. Names imported from torch become paths from `torch`.
Attributes that the file defines are renamed to names of the language of `PythonProgram`.
"""

from __future__ import annotations

import ast
import importlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from aliasproof.ir.errors import UserError
from aliasproof.ir.python_program import (
    CALLS,
    COMPILED,
    IMPORTED,
    METHODS,
    OWN_ATTRIBUTES,
    PythonProgram,
    attributes,
)
from aliasproof.ir.stored_text import read_text
from aliasproof.reduction.syntax_trees import substitute
from aliasproof.user_code.given_path import FileNames
from aliasproof.user_code.user_file import SECOND_INPUTS, CallArguments, UserFunction

_ONLY_TYPES = ("__future__", "typing", "collections.abc")
_REGISTERS = (".register_buffer", ".register_parameter")
_FUNCTION = "function"  # the global that `program` calls, if the user's is no plain function
_BACKWARD = (
    "sum([it.sum() for it in ({result} if isinstance({result}, (tuple, list)) else [{result}])"
    " if isinstance(it, torch.Tensor) and it.requires_grad]).backward()"
)
_KEPT = "kept{suffix} = [it.detach() for it in [{inputs}] if isinstance(it, torch.Tensor)]"


def python_programs(path: Path, names: FileNames, given: UserFunction) -> Iterator[PythonProgram]:
    """The file with one call, with a backward pass after it, and both with a second call.

    Then the same while the caller keeps views of its inputs, which stay if these get other data.
    Raises `UserError` if the file uses features that the language does not have.
    """
    text, paths = read_text(path), dict[str, ast.expr]()
    if f"def {CALLS}(" in text and f"def {names.inputs}(" not in text:
        yield PythonProgram(text)  # of an earlier reduction
        return
    tree = _Plain(paths).visit(ast.parse(text))
    try:
        substitute(tree, paths)
    except LookupError as error:
        raise UserError(f"it imports and assigns '{error.args[0]}'") from error
    used = {it.id for it in ast.walk(tree) if isinstance(it, ast.Name)}
    tree.body = [
        ast.Import([ast.alias("torch")]),
        *(
            it
            for it in tree.body
            if not isinstance(it, ast.Import | ast.ImportFrom)
            or any((one.asname or one.name).partition(".")[0] in used for one in it.names)
        ),
    ]
    arguments = CallArguments.of(given.inputs).named_for(given.function)
    _define_program(tree, names.function, arguments)
    _rename_attributes(tree)
    for kept, count, differentiated in itertools.product((False, True), (1, 2), (False, True)):
        lines: list[str] = []
        for suffix, result in (("", "out"), ("_2", "second"))[:count]:
            maker = SECOND_INPUTS if suffix and given.second_inputs is not None else names.inputs
            made, passed = _made(tree, maker, given.inputs, arguments, suffix)
            lines += [*made, *[_KEPT.format(suffix=suffix, inputs=", ".join(passed))] * kept]
            lines += [f"{result} = {COMPILED}({', '.join(passed)})"]
            lines += [_BACKWARD.format(result=result)] * differentiated
        text = "\n    ".join([*lines, "return locals()"])
        calls = ast.parse(f"def {CALLS}({COMPILED}):\n    {text}")
        whole = ast.Module([*tree.body, *calls.body], [])
        yield PythonProgram(ast.unparse(ast.fix_missing_locations(whole)) + "\n")


class _Plain(ast.NodeTransformer):
    """Drops annotations, docstrings, code that runs only in a script, and imports from torch.

    `paths` maps the names that these import to their paths.
    """

    def __init__(self, paths: dict[str, ast.expr]) -> None:
        self.paths = paths

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                del node.body[0]
            node = self.generic_visit(super().visit(node))
            node.body = node.body or [ast.Pass()]  # type: ignore[attr-defined]
            return node
        return super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(node.arg)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if "__name__" in ast.unparse(node.test) else self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        if any(it.name.partition(".")[0] != "torch" for it in node.names):
            return node
        for it in node.names:
            if it.asname:
                self.paths[it.asname] = ast.parse(it.name, mode="eval").body
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        module = str(node.module)
        if module.partition(".")[0] == "torch":
            for it in node.names:
                self.paths[it.asname or it.name] = _path_to(module, it.name)
            return None
        if module in IMPORTED:
            for it in node.names:
                path = ast.parse(f"{module}.{it.name}", mode="eval").body
                self.paths[it.asname or it.name] = path
            return ast.Import([ast.alias(module)])
        return None if module in _ONLY_TYPES else node


def _path_to(module: str, name: str) -> ast.expr:
    """A path from `torch` to a member: in a package, a member may hide the module of its name."""
    member = getattr(importlib.import_module(module), name, None)
    whole = [*module.split("."), name]
    for path in (whole, [*whole[:-2], name]):
        found: Any = torch
        for part in path[1:]:
            found = getattr(found, part, None)
        if found is member:
            return ast.parse(".".join(path), mode="eval").body
    return ast.parse(".".join(whole), mode="eval").body


def _define_program(tree: ast.Module, name: str, arguments: CallArguments) -> None:
    """Define `program` as a function with one parameter per argument."""
    parameters, new = _parameters(arguments), _FUNCTION
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            more = node.args.vararg, node.args.kwarg, *node.args.kwonlyargs, *node.decorator_list
            if not any(more) and [arg.arg for arg in node.args.args] == parameters:
                node.args.defaults.clear()
                new = COMPILED
    for it in ast.walk(tree):
        if isinstance(it, ast.Name) and it.id == name:
            it.id = new
        elif isinstance(it, ast.FunctionDef) and it.name == name:
            it.name = new
    if new == _FUNCTION:
        count = len(arguments.args)
        passed = ", ".join([*parameters[:count], *(f"{key}={key}" for key in parameters[count:])])
        text = f"def {COMPILED}({', '.join(parameters)}):\n    return {_FUNCTION}({passed})"
        tree.body += ast.parse(text).body


def _parameters(arguments: CallArguments) -> list[str]:
    return [
        name if name.isidentifier() else f"x{index}"
        for index, (name, _) in enumerate(arguments.by_name())
    ]


def _made(
    tree: ast.Module, inputs: str, given: object, arguments: CallArguments, suffix: str
) -> tuple[list[str], list[str]]:
    """Statements that make the inputs, and the expressions of the arguments.

    If the function that makes inputs is straight-line code, the statements are its body.
    """
    whole = f"given{suffix}"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == inputs and not suffix:
            *body, last = node.body
            value = last.value if isinstance(last, ast.Return) else None
            straight = all(isinstance(it, ast.Assign | ast.Expr | ast.AugAssign) for it in body)
            straight &= not any(isinstance(it, ast.Starred) for it in getattr(value, "elts", ()))
            if straight and isinstance(value, ast.Tuple | ast.List) and not arguments.kwargs:
                made, passed = [ast.unparse(it) for it in body], []
                bound = {it.id for it in ast.walk(node) if isinstance(it, ast.Name)}
                for name, it in zip(_parameters(arguments), value.elts, strict=True):
                    passed.append(ast.unparse(it))
                    if not isinstance(it, ast.Name):
                        passed[-1] = f"{name}_given" if name in bound else name
                        made.append(f"{passed[-1]} = {ast.unparse(it)}")
                return made, passed
    made = [f"{whole} = {inputs}()"]
    if not isinstance(given, tuple | list | dict):
        return made, [whole]
    if not arguments.kwargs:
        return made, [f"{whole}[{index}]" for index in range(len(arguments.args))]
    first, second = (f"{whole}[0]", f"{whole}[1]") if isinstance(given, tuple) else ("", whole)
    items = [f"{first}[{index}]" for index in range(len(arguments.args))]
    return made, [*items, *(f"{second}[{key!r}]" for key in arguments.kwargs)]


# --- attributes -----------------------------------------------------------------------------------


def _rename_attributes(tree: ast.Module) -> None:
    """Rename the attributes and methods that the file defines to names of the language."""
    places = list(_definitions(tree))
    unknown = dict.fromkeys(str(getattr(node, field)) for node, field in places)
    uses = [(it, "attr") for it in ast.walk(tree) if isinstance(it, ast.Attribute)]
    used = {it.attr for it, _ in uses}
    free = sorted(OWN_ATTRIBUTES - used - unknown.keys())
    unknown = {it: None for it in unknown if it not in attributes() and it not in METHODS}
    if len(unknown) > len(free):
        raise UserError(f"it defines more than {len(free)} attributes")
    names = dict(zip(unknown, free, strict=False))
    for node, field in {*places, *uses}:
        setattr(node, field, names.get(getattr(node, field), getattr(node, field)))


def _definitions(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """The nodes that define attributes and methods, and the field that contains the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node, "attr"
        elif isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef):
                    yield statement, "name"
                for target in [*getattr(statement, "targets", ()), getattr(statement, "target", 0)]:
                    if isinstance(target, ast.Name):
                        yield target, "id"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_REGISTERS):
            yield from ((it, "value") for it in node.args[:1] if isinstance(it, ast.Constant))
