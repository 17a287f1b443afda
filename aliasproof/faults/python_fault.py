"""Wrong compilers of Python programs: each loses something that a caller can see.

A fault gets `program` and returns what is called in its place. It runs in eager, so that a program
tells it from the right one by the mistake alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

Wrong: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class PythonFault:
    """A wrong compiler; `source` says what it breaks.

    `shows` is a regular expression for the kind of the violation that counts: a fault that dies of
    an error of its own is not found.
    """

    name: str
    source: str
    make: Wrong
    shows: str = r"^(?!raises)"


FAULTS: list[PythonFault] = []  # the files `python_*_faults` add to it


def python_fault(source: str, shows: str = r"^(?!raises)") -> Callable[[Wrong], Wrong]:
    """Add a fault with the name of the function."""

    def added(make: Wrong) -> Wrong:
        FAULTS.append(PythonFault(make.__name__.replace("_", " "), source, make, shows))
        return make

    return added


def on_outputs(change: Callable[[torch.Tensor], Any]) -> Wrong:
    """A wrong compiler that changes each tensor that is returned."""

    @functools.wraps(change)
    def make(program: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            return pytree.tree_map_only(torch.Tensor, change, program(*args))

        return run

    return make


def within(context: Callable[[tuple[Any, ...]], Any]) -> Wrong:
    """A wrong compiler whose call runs within a context, which gets the arguments."""

    @functools.wraps(context)
    def make(program: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            with context(args):
                return program(*args)

        return run

    return make
