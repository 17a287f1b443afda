"""The private parts of torch that this package uses, and the features that are off without them.

`torch_parts.txt` has a line for each part: its name, and the features that need it. A test writes
that table from the sources, see `tests/quality/test_torch_parts.py`. Where a part is missing, a
feature that needs all of `EVERYTHING` raises an error of one line, a target is left out, and a
patch is not applied.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from aliasproof.ir.errors import UserError

TABLE = Path(__file__).parent / "torch_parts.txt"
EVERYTHING = "everything"
# What a user loses without a feature, by the first word of its name.
LOST = {
    EVERYTHING: "no program can be judged",
    "target": "the target is left out",
    "patches": "known bugs of this layer are reported as new",
    "sites": "no command or campaign counts sites",
    "rules": "no program is drawn from the rules of Inductor",
    "proofs": "'prove' refuses",
    "attribution": "no layer or pass is named, and 'bisect' refuses",
    "models": "'run' and the backends of torch.compile refuse",
}


@functools.cache
def needed() -> Mapping[str, tuple[str, ...]]:
    """The features that need each private part, by the part's name: `torch.module.Class.method`."""
    rows = (line.split(": ") for line in TABLE.read_text(encoding="utf-8").splitlines())
    return {name: tuple(features.split(", ")) for name, features in rows}


@functools.cache
def missing_parts() -> tuple[str, ...]:
    """The parts that the installed torch does not have. Imports torch."""
    importlib.import_module("torch")
    return tuple(name for name in needed() if not is_there(name))


def why_off(feature: str) -> str | None:
    """In one line, why a feature is off; None if all its parts are there."""
    parts = [name for name in missing_parts() if feature in needed()[name]]
    lost = LOST[feature.partition(" ")[0]]
    return f"is off, so {lost}: {_without(parts)}" if parts else None


def require(feature: str) -> None:
    """Raises `UserError` with one line if a feature is off."""
    reason = why_off(feature)
    if reason is not None:
        raise UserError(f"{feature} {reason} (see 'aliasproof doctor')")


def off() -> list[tuple[str, str]]:
    """The features that are off, each with the reason."""
    features = sorted({feature for name in missing_parts() for feature in needed()[name]})
    return [(feature, why_off(feature) or "") for feature in features]


def why_failed(error: BaseException) -> str | None:
    """In one line, the missing part that caused an error; None if no missing part did."""
    text = f"{type(error).__name__}: {error}"
    if not re.search("ImportError|AttributeError|ModuleNotFoundError|KeyError", text):
        return None
    parts = [name for name in missing_parts() if re.search(rf"\b{name.rpartition('.')[2]}\b", text)]
    return f"{_without(parts)} (see 'aliasproof doctor')" if parts else None


def _without(parts: Any) -> str:
    more = f" and {len(parts) - 3} more" if len(parts) > 3 else ""
    return f"torch {sys.modules['torch'].__version__} has no {', '.join(parts[:3])}{more}"


def is_there(name: str) -> bool:
    """Whether torch has a part. Of an object (no class or module), one attribute is checked.

    If a module is not imported yet, its source is searched, since Inductor takes seconds to import.
    """
    module, path = _module_of(name)
    loaded = sys.modules.get(module)
    if loaded is None:
        text = _text_of(module)
        if text is None:
            return False
        if all(word.endswith("__") or re.search(rf"\b{word}\b", text) for word in path):
            return True
    value: Any = loaded or importlib.import_module(module)
    for word in path:
        is_object = not isinstance(value, type | ModuleType)
        try:
            value = getattr(value, word)
        except AttributeError:
            return False
        if is_object:
            return True
    return True


@functools.cache
def _module_of(name: str) -> tuple[str, list[str]]:
    """The module of a part, and the names below the module."""
    words = name.split(".")
    for count in range(len(words), 1, -1):
        module = ".".join(words[:count])
        if module in sys.modules or _text_of(module) is not None:
            return module, words[count:]
    return words[0], words[1:]


@functools.cache
def _text_of(module: str) -> str | None:
    """The source of a module of torch. Unlike `find_spec`, this imports no parent package."""
    base = Path(sys.modules["torch"].__path__[0]).joinpath(*module.split(".")[1:])
    files = (base.with_suffix(".py"), base / "__init__.py")
    return next((file.read_text(encoding="utf-8") for file in files if file.is_file()), None)


def is_called_so(original: object, replacement: object) -> bool:
    """Whether `replacement(original, ...)` accepts the arguments of `original`.

    Tried are all arguments, and those without defaults, by position and by name. How torch calls
    `original` is not read.
    """
    try:
        parameters = inspect.signature(original).parameters.values()  # type: ignore[arg-type]
        taken = inspect.signature(replacement)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # it is implemented in C++
        return True
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return True
    needed = [p for p in parameters if p.default is p.empty]
    forms = [
        (
            [p for p in given if p.kind is not p.KEYWORD_ONLY],
            [p for p in given if p.kind is p.KEYWORD_ONLY],
        )
        for given in ([*parameters], needed)
    ]
    forms += [
        (given[:1], given[1:]) for given in ([*parameters], needed)
    ]  # a method has its object first
    return any(_binds(taken, original, *form) for form in forms)


def _binds(taken: inspect.Signature, original: object, first: Any, named: Any) -> bool:
    try:
        taken.bind(original, *first, **{p.name: p for p in named})
    except TypeError:
        return False
    return True
