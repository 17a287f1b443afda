"""`encoded` and `decoded`: values of a campaign as JSON values, by the type hints of their classes.

Nothing is pickled, so reading executes nothing. Each value is converted to the type of its hint,
because people may have edited the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from aliasproof.ir.program import Program
from aliasproof.ir.python_program import P, PythonProgram
from aliasproof.ir.serialization import from_json, to_json
from aliasproof.judge.attribution import Symptom

# How to write and read values that are not objects with one key per field.
_FORMS: dict[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    Program: (to_json, from_json),
    PythonProgram: (lambda it: it.source, lambda data: PythonProgram(str(data))),
    P: (
        lambda it: _FORMS[type(it)][0](it),
        lambda data: decoded(PythonProgram if isinstance(data, str) else Program, data),
    ),
    Symptom: (lambda it: [it.target, it.oracle, it.kind], lambda data: Symptom(*map(str, data))),
    range: (lambda it: [it.start, it.stop], lambda data: range(*map(int, data))),
    frozenset[int]: (sorted, lambda data: frozenset(map(int, data))),
    Counter[tuple[str, str]]: (
        lambda it: [[*key, times] for key, times in it.items()],
        lambda data: Counter({(str(key), str(why)): int(times) for key, why, times in data}),
    ),
    object: (lambda it: it, lambda data: data),
}


def encoded(value: Any, kind: Any = None) -> Any:
    """Convert a value to JSON values. `kind` is its type hint; by default, its class."""
    form = _FORMS.get(kind) or _FORMS.get(type(value))
    if form is not None:
        return form[0](value)
    if _has_fields(type(value)):
        hints = get_type_hints(type(value))
        return {name: encoded(getattr(value, name), hint) for name, hint in hints.items()}
    if isinstance(value, Mapping):
        return {key: encoded(item) for key, item in value.items()}
    return [*map(encoded, value)] if isinstance(value, tuple) else value


def decoded(kind: Any, data: Any) -> Any:
    """Convert what `encoded` returned back to a value of type `kind`.

    Raises `LookupError`, `TypeError`, `ValueError`, `AttributeError` or `ArithmeticError` for JSON
    values of another form.
    """
    if kind in _FORMS:
        return _FORMS[kind][1](data)
    if _has_fields(kind):
        hints = get_type_hints(kind)
        return kind(**{name: decoded(hint, data[name]) for name, hint in hints.items()})
    origin, of = get_origin(kind), get_args(kind)
    if origin is UnionType:  # `X | None`
        return None if data is None else decoded(of[0], data)
    if origin is tuple:
        kinds = (of[0],) * len(data) if of[-1] is Ellipsis else of
        return tuple(decoded(*pair) for pair in zip(kinds, data, strict=True))
    if origin is Counter:
        return Counter({decoded(of[0], key): int(times) for key, times in data.items()})
    if origin is not None:  # a mapping
        return {decoded(of[0], key): decoded(of[1], item) for key, item in data.items()}
    return kind(data)


def _has_fields(kind: Any) -> bool:
    return is_dataclass(kind) or hasattr(kind, "_fields")
