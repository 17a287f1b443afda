"""Variant *as-written*: Dynamo compiles the program as a person writes it.

Passes before AOTAutograd match functions of torch and methods, which are in a graph of Dynamo only
where the source calls them: `torch.split(x, 2)` and `x.t()`, and not operators of ATen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.ordinary_syntax import ordinary_source
from aliasproof.targets.target import Build, Function, PlainBuild

NAME = "as-written"


def build(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Compile the program's text in ordinary syntax, which makes the same ATen calls.

    A user's function is compiled as it is written anyway.
    """
    if not isinstance(function, ProgramFunction):
        return plain(function, inputs)
    scope: dict[str, Any] = {"torch": torch, "aten": torch.ops.aten}
    text = ordinary_source(function.program)
    # As users write it, a program without outputs returns None.
    text += "" if function.program.outputs else "    return ()\n"
    exec(text, scope)  # noqa: S102 - our own text
    return plain(scope["program"], inputs)


def recipe(plain: str) -> str:
    """The recipe of the target: a reproducer has the program in ordinary syntax."""
    return plain
