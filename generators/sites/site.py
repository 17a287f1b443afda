"""A site: one place where a compiler may rewrite a program."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._ops import HigherOrderOperator

_TORCH = Path(torch.__file__).parent


@dataclass(frozen=True, slots=True)
class Site:
    """One place where the compiler may rewrite a program.

    `name` is unique, and the same in each process with this torch. `file` is relative to the folder
    of torch, and `line` is the first line of the rewriting code. `layer` is the part of the
    compiler that runs it, and `kind` its kind there. `fires_when` says in words when it fires.
    """

    name: str
    kind: str
    layer: str
    file: str
    line: int
    fires_when: str

    @property
    def location(self) -> str:
        """The location of the code, for people."""
        return f"torch/{self.file}:{self.line}"


@dataclass(slots=True, eq=False)
class SiteRecorder:
    """Collects the names of the sites that fire, and of those that refuse a match.

    Programs run one after another: `take` after each returns the sites of this program. Hooks are
    bound to the two sets, so the set objects never change.
    """

    fired: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)

    def take(self) -> tuple[frozenset[str], frozenset[str]]:
        """The sites that fired since the last call, and those that refused."""
        taken = frozenset(self.fired), frozenset(self.refused)
        self.fired.clear()
        self.refused.clear()
        return taken


@dataclass(frozen=True, slots=True)
class SiteKind:
    """A kind of site: how to list its sites, and how to record those that fire in a block."""

    name: str
    sites: Callable[[], list[Site]]
    recorded: Callable[[SiteRecorder], AbstractContextManager[None]]


# One per process, since hooks are made for it once. Making thousands of hooks for each shard would
# cost more than their calls, since Python then collects garbage among all objects of torch.
_RECORDER = SiteRecorder()


@contextmanager
def recording_of(kinds: tuple[SiteKind, ...]) -> Iterator[SiteRecorder]:
    """Record the sites of these kinds that fire in this block, in this process.

    Restores torch afterwards. Such blocks must not be nested.
    """
    _RECORDER.take()
    with ExitStack() as hooks:
        for kind in kinds:
            hooks.enter_context(kind.recorded(_RECORDER))
        yield _RECORDER


def operator_name(operator: Any) -> str:
    """The name of the target of a call in a graph, the same in each process."""
    if isinstance(operator, str):
        return operator
    if isinstance(operator, HigherOrderOperator):
        return str(operator.name())
    written = str(operator)
    return str(getattr(operator, "__name__", written)) if " " in written else written


def location_of(function: Callable[..., Any]) -> tuple[str, int]:
    """The file of a function, relative to torch, and its first line; ("", 0) for one in C++."""
    code = getattr(_innermost(function), "__code__", getattr(function, "__code__", None))
    if code is None:
        return "", 0
    path = Path(code.co_filename)
    inside = path.is_relative_to(_TORCH)
    return (path.relative_to(_TORCH).as_posix() if inside else str(path)), code.co_firstlineno


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside wrappers: `partial`, `wraps`, or a variable of the same name."""
    function = inspect.unwrap(function)
    if isinstance(function, functools.partial):
        return _innermost(function.func)
    for cell in getattr(function, "__closure__", None) or ():
        wrapped = cell.cell_contents
        wrapped = wrapped.func if isinstance(wrapped, functools.partial) else wrapped
        if callable(wrapped) and getattr(wrapped, "__name__", "") == function.__name__:
            return _innermost(wrapped)
    return function
