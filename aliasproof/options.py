"""Options that several commands have, and the checks of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from aliasproof.programs.errors import UserError


def at_least(least: int, what: str = "") -> Callable[[typer.CallbackParam, int | None], int | None]:
    """A callback of an option that refuses numbers below `least`."""

    def checked(option: typer.CallbackParam, number: int | None) -> int | None:
        if number is not None and number < least:
            raise UserError(f"{option.opts[0]} {number}: give {what}at least {least}")
        return number

    return checked


def above_zero(
    what: str = "a number above 0",
) -> Callable[[typer.CallbackParam, float | None], float | None]:
    """A callback of an option that refuses what is not finite and above 0."""

    def checked(option: typer.CallbackParam, number: float | None) -> float | None:
        if number is not None and not 0 < number < math.inf:
            raise UserError(f"{option.opts[0]} {number:g}: give {what}")
        return number

    return checked


Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        metavar="TARGET",
        help="Target to test, see 'aliasproof targets'; or your own pass or torch.compile backend"
        " as PACKAGE.MODULE:FUNCTION or FILE.py:FUNCTION. Repeat the option for more targets.",
    ),
]
OwnTarget = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="TARGET",
        help="Your own target that the finding is of: code that a file names is not imported.",
    ),
]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="FILE.py, PROGRAM.json or the folder of a finding.")
]
FunctionName = Annotated[
    str, typer.Option(metavar="NAME", help="The function in FILE.py. It is called with the inputs.")
]
InputsName = Annotated[
    str,
    typer.Option(metavar="NAME", help="The function in FILE.py that returns the input tensors."),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
Workers = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        help="Worker processes. Default: one per core.",
        callback=at_least(1),
    ),
]
MovedTo = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="Move the inputs to this device first: cpu, cuda or cuda:NUMBER.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON object to standard output.")]
