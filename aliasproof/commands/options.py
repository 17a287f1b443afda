"""Options that several commands have, and the checks of numbers."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from aliasproof.ir.errors import UserError
from aliasproof.ir.stored_text import writing
from aliasproof.targets.names import ALL_COMPILERS, expanded, refuse_unknown
from aliasproof.user_code.given_path import DEFAULT_NAMES, GivenFile, file_to_read


def require_writable(path: Path) -> None:
    """Make the folder of a result, before any work. Raises `UserError` if it cannot be written."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()


def option(metavar: str, text: str, *names: str) -> Any:
    """An option with a value; by default, its name is that of the parameter."""
    return typer.Option(*names, metavar=metavar, help=text)


def flag(name: str, text: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text)


def argument(metavar: str, text: str) -> Any:
    return typer.Argument(metavar=metavar, help=text)


def _number(
    metavar: str, text: str, what: str, fits: Callable[[float], bool], names: Sequence[str] = ()
) -> Any:
    """An option for a number. `text` is its help; an error says `what` it must be."""

    def check(option: typer.CallbackParam, value: Any) -> Any:
        if value is not None and not fits(value):
            given = value if isinstance(value, int) else f"{value:g}"
            raise UserError(f"{option.opts[0]} {given}: give {what}")
        return value

    return typer.Option(*names, metavar=metavar, help=text, callback=check)


def whole_number(text: str, least: int, what: str = "", names: Sequence[str] = ()) -> Any:
    return _number("NUMBER", text, f"{what}at least {least}", lambda it: it >= least, names)


def above_zero(metavar: str, text: str, what: str = "a number above 0") -> Any:
    return _number(metavar, text, what, lambda it: 0 < it < math.inf)


def at_least_zero(metavar: str, text: str) -> Any:
    return _number(metavar, text, "a number of at least 0", lambda it: 0 <= it < math.inf)


_TOLERANCE = "Default: what is known of each operator, see docs/oracles.md."
Rtol = Annotated[
    float | None, at_least_zero("RTOL", f"Relative tolerance of all values. {_TOLERANCE}")
]
Atol = Annotated[
    float | None, at_least_zero("ATOL", f"Absolute tolerance of all values. {_TOLERANCE}")
]


def _existing(given: Path) -> Path:
    file_to_read(GivenFile.of(given).path)
    return given


def known_targets(names: list[str] | None) -> list[str] | None:
    """The targets that are given to an option. Raises `UserError` for an unknown one."""
    if names is None:
        return None
    asked = expanded(names)
    for name in asked:
        refuse_unknown(name)
    return asked


def known_target(name: str | None) -> str | None:
    """A target as it is given, for an option. Raises `UserError` for an unknown one."""
    known_targets(None if name is None else [name])
    return name


def targets_option(default: Sequence[str], where: str = "") -> Any:
    """The option for targets. Its help names those that are meant without it."""
    return typer.Option(
        "--target",
        "-t",
        metavar="TARGET",
        callback=known_targets,
        help="Target to test, see 'aliasproof targets'; or your own pass or torch.compile backend"
        " as PACKAGE.MODULE:FUNCTION or FILE.py:FUNCTION. Repeat the option for more targets;"
        f" '{ALL_COMPILERS}' are Inductor and all compilers beyond torch."
        f" Default: {', '.join(default)}{where}.",
    )


def target_option(use: str) -> Any:
    """The option that names one target, and what for."""
    return typer.Option("--target", "-t", metavar="TARGET", callback=known_target, help=use)


OwnTarget = Annotated[
    str | None,
    target_option(
        "Your own target that the finding is of: code that a file names is not imported."
    ),
]
File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        callback=_existing,
        help="FILE.py, FILE.py:FUNCTION, PROGRAM.json, a graph that torch printed into FILE.txt, a"
        " FILE.pt2 of torch.export.save, or the folder of a finding.",
    ),
]
FunctionName = Annotated[
    str | None,
    option(
        "NAME",
        "The function in FILE.py, as in FILE.py:FUNCTION. It is called with the inputs."
        f" Default: {DEFAULT_NAMES.function}.",
    ),
]
InputsName = Annotated[
    str,
    option("NAME", "The function in FILE.py that returns the input tensors."),
]
Run = Annotated[Path, argument("RUN", "Folder of a run.")]
Workers = Annotated[int | None, whole_number("Worker processes. Default: one per core.", 1)]
MovedTo = Annotated[
    str | None,
    option("DEVICE", "Move the inputs to this device first: cpu, cuda or cuda:NUMBER.", "--device"),
]
KnownToo = Annotated[
    bool,
    flag("--known", "List all at the end: findings, known bugs, and what targets do not take."),
]
Json = Annotated[bool, flag("--json", "Write one JSON object to standard output.")]
