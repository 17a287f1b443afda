"""`PythonProgram`: a program as people write it, with functions, modules, gradients and state.

A `Program` is a straight line of ATen calls. Many mistakes of compilers need what such a line
cannot say: a closure that is written, a Parameter, a gradient between two writes, a second call.
The source is ordinary Python: it is what a person reads, and what a reproducer runs. It defines
`program`, which is compiled, and `calls(program)`, which makes the inputs, calls `program`, and
returns `locals()`: all that a caller can reach afterwards.

The text is data. A program is only made of the syntax and the names below, which reach no file, no
process and no other module. So a stored program can be run.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aliasproof.programs import python_names
from aliasproof.programs.errors import Rejected, UserError

COMPILED, CALLS = "program", "calls"  # the functions that each program has
PREFIX = "aliasproof_python_program_"
_NUMBERS = itertools.count()
SECONDS = 5.0  # of the processor: a run in eager takes some milliseconds

_STATEMENTS = (
    ast.Module, ast.FunctionDef, ast.ClassDef, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign,
    ast.For, ast.While, ast.If, ast.With, ast.withitem, ast.Expr, ast.Pass, ast.Break, ast.Continue,
    ast.Nonlocal, ast.Global, ast.Delete, ast.Import, ast.alias, ast.Assert, ast.Try,
    ast.ExceptHandler, ast.Raise,
)  # fmt: skip
_EXPRESSIONS = (
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Lambda, ast.IfExp, ast.Dict, ast.List, ast.Tuple,
    ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.Yield, ast.Compare,
    ast.Call, ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.Slice,
    ast.arguments, ast.arg, ast.keyword, ast.expr_context, ast.boolop, ast.operator, ast.unaryop,
    ast.cmpop,
)  # fmt: skip
_ALLOWED = (*_STATEMENTS, *_EXPRESSIONS)


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """Source text that is valid in this language. See the module.

    Raises:
        UserError: The text is no Python, or uses what the language does not have.

    """

    source: str

    def __post_init__(self) -> None:
        _validate(self.source)

    @property
    def lines(self) -> int:
        """How many lines with statements it has."""
        return sum(bool(line.strip()) for line in self.source.splitlines())

    @property
    def own_lines(self) -> int:
        """How many lines it has beside the four that each program has.

        These import torch, begin the two functions, and return `locals()`.
        """
        return self.lines - 4

    def run(
        self, transform: Callable[[Any], Any] = lambda program: program, then: object = None
    ) -> dict[str, object]:
        """Call it in a world of its own; what the caller can reach afterwards, by name.

        As `Runnable.run`, but nothing follows: it runs its backward passes itself.
        """
        with running(self.source) as names:
            return reachable(names, names[CALLS](transform(names[COMPILED])))


@contextmanager
def running(source: str, **further: object) -> Iterator[dict[str, Any]]:
    """The names that a text defines, made anew: nothing that an earlier run left is there.

    `further` are names that it can use as well.
    """
    module = types.ModuleType(f"{PREFIX}{next(_NUMBERS)}")
    module.__dict__.update(further)
    sys.modules[module.__name__] = module  # dataclasses look it up
    file = f"<{module.__name__}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    try:
        exec(compile(source, file, "exec"), module.__dict__)  # noqa: S102 - see the module
        yield module.__dict__
    finally:
        del sys.modules[module.__name__], linecache.cache[file]


@contextmanager
def limited(seconds: float = SECONDS) -> Iterator[None]:
    """Raise `Rejected` in a run in eager that takes longer: a loop may append to its own list.

    The seconds are those of the processor. A worker and a test have limits by the clock, for which
    they need the other timer. In the main thread of a process alone; elsewhere nothing is limited.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise Rejected(f"a run in eager takes more than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, end)
    # Again and again: what is raised in the callback of a weak reference is lost.
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def reachable(names: dict[str, Any], local: dict[str, Any]) -> dict[str, object]:
    """What a caller reaches: the locals of `calls`, the data among the globals, the classes."""
    globals_ = {name: value for name, value in names.items() if not _is_code(value)}
    classes = {name: value for name, value in names.items() if _is_class(value)}
    state = {
        f"{name}.{attribute}": value
        for name, kind in classes.items()
        for attribute, value in vars(kind).items()
        if attribute in python_names.OWN_ATTRIBUTES and not _is_code(value)
    }
    left = {name: value for name, value in local.items() if name != COMPILED}
    return {**left, **{name: globals_[name] for name in globals_ if name[0] != "_"}, **state}


def _is_class(value: object) -> bool:
    return isinstance(value, type) and value.__module__.startswith(PREFIX)


def _is_code(value: object) -> bool:
    return callable(value) or isinstance(value, (types.ModuleType, property, staticmethod))


# --- the language ---------------------------------------------------------------------------------


def _validate(source: str) -> None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise UserError(f"a Python program is no Python: {error}") from None
    bound = _bound(tree)
    for node in ast.walk(tree):
        line = f"line {getattr(node, 'lineno', '?')} of a Python program"
        if not isinstance(node, _ALLOWED):
            raise UserError(f"{line}: {type(node).__name__} is not in the language")
        if isinstance(node, ast.Attribute) and node.attr not in python_names.attributes():
            raise UserError(f"{line}: no attribute '{node.attr}' in the language")
        if isinstance(node, ast.Name) and node.id not in bound:
            raise UserError(f"{line}: no name '{node.id}' in the language")
        if isinstance(node, ast.Import):
            _validate_import(node, line)
        if isinstance(node, ast.Try):
            _validate_try(node, line)
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name in (COMPILED, CALLS):
        if name not in defined | assigned:
            raise UserError(f"a Python program defines '{name}'")


def _validate_import(node: ast.Import, line: str) -> None:
    for alias in node.names:
        if alias.name not in python_names.IMPORTED or alias.asname:
            raise UserError(f"{line}: only {sorted(python_names.IMPORTED)} can be imported")


def _validate_try(node: ast.Try, line: str) -> None:
    """What ends a run that takes too long passes through: nothing here can catch it."""
    kinds = [ast.unparse(it.type) if it.type else "everything" for it in node.handlers]
    if not {*kinds} <= python_names.ERRORS or any(it.name for it in node.handlers):
        raise UserError(f"{line}: only {sorted(python_names.ERRORS)} can be caught, without a name")
    jumps = (ast.Return, ast.Break, ast.Continue)
    if any(isinstance(it, jumps) for last in node.finalbody for it in ast.walk(last)):
        raise UserError(f"{line}: 'finally' cannot return, break or continue")


def _bound(tree: ast.Module) -> set[str]:
    """All names that the program binds anywhere, and those that it need not bind."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    wrong = {name for name in bound if name.startswith("__")} - python_names.METHODS
    wrong |= bound & python_names.ERRORS
    if wrong:
        raise UserError(f"a Python program cannot bind '{min(wrong)}'")
    return bound | python_names.BUILTINS | python_names.IMPORTED | python_names.ERRORS
