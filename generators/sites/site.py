"""A site: one place at which a compiler may rewrite a program."""

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
    """One place at which the compiler may rewrite a program.

    `name` is unique, and the same in each process with this torch. `file` is relative to the folder
    of torch, and `line` is where the code begins that rewrites. `layer` is the part of the compiler
    that runs it, and `kind` what it is there. `fires_when` says in words what it waits for.
    """

    name: str
    kind: str
    layer: str
    file: str
    line: int
    fires_when: str

    @property
    def location(self) -> str:
        """The code, as a person looks it up."""
        return f"torch/{self.file}:{self.line}"


@dataclass(slots=True, eq=False)
class SiteRecorder:
    """Collects the names of the sites that fire, and of those that refuse what they match.

    Programs run one after another: `take` after each gives those of this one. Hooks are bound to
    the two sets, so these stay the same objects.
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
    """A kind of site: how to list them, and how to record those that fire in a block."""

    name: str
    sites: Callable[[], list[Site]]
    recorded: Callable[[SiteRecorder], AbstractContextManager[None]]


# One per process: hooks are made for it once. To make thousands of them for each shard would cost
# more than to call them, since Python then collects garbage among all objects of torch.
_RECORDER = SiteRecorder()


@contextmanager
def recording_of(kinds: tuple[SiteKind, ...]) -> Iterator[SiteRecorder]:
    """Record the sites of these kinds that fire in this block, in this process.

    Torch is as before afterwards. Such blocks must not be nested.
    """
    _RECORDER.take()
    with ExitStack() as hooks:
        for kind in kinds:
            hooks.enter_context(kind.recorded(_RECORDER))
        yield _RECORDER


def operator_name(operator: Any) -> str:
    """The name of what a call in a graph has as its target, the same in each process."""
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
    """The function that others wrap: by `partial`, `wraps`, or as a variable of the same name."""
    function = inspect.unwrap(function)
    if isinstance(function, functools.partial):
        return _innermost(function.func)
    for cell in getattr(function, "__closure__", None) or ():
        wrapped = cell.cell_contents
        wrapped = wrapped.func if isinstance(wrapped, functools.partial) else wrapped
        if callable(wrapped) and getattr(wrapped, "__name__", "") == function.__name__:
            return _innermost(wrapped)
    return function
