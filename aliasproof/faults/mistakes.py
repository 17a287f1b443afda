"""Tells whether an exception is the own mistake of a fault, or the consequence of a wrong graph.

A torch kernel that refuses what a wrong graph asks of it is a legitimate kill. A fault that dies of
its own `KeyError` shows nothing about the oracles: any program that reaches it would "kill" it.
"""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

_FAULTS, _TORCH = Path(__file__).parent, Path(torch.__file__).parent


def own_mistake(fault: str, error: BaseException) -> str | None:
    """What the fault of that name raised, and where, if that is its own mistake; else None.

    It is if the exception is raised in a function of `aliasproof/faults/`, or in torch when such a
    function calls it. A `TypeError` of the call of the fault with other arguments is one too.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return None
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, TypeError) and f"{fault.replace(' ', '_')}() " in str(error):
        return f"{text} (called in {_place(frames[-1])})"
    # Torch raises for its caller. The caller of a kernel is the generated code of the graph, or the
    # reference pass that runs it on fakes: then the graph is wrong, and the kill is legitimate.
    callers = [frame for frame in frames if _TORCH not in Path(frame.filename).parents]
    if callers and _FAULTS in Path(callers[-1].filename).parents:
        return f"{text} (in {_place(callers[-1])})"
    return None


def _place(frame: traceback.FrameSummary) -> str:
    path = Path(frame.filename)
    return f"{frame.name}, {path.parent.name}/{path.name}:{frame.lineno}"
