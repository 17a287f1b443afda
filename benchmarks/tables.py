"""The result type of benchmarks, and how its tables are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Protocol


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of formatted cells.

    The first column is text, the others are figures; notes are printed below.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


class Figures(Protocol):
    """The figures of one benchmark.

    It is a dataclass of plain values, so that `as_json` can make JSON of it.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def tables(self) -> list[Table]:
        """The figures for people."""
        ...


def as_json(value: object) -> Any:
    """A result as JSON types. A key with several parts is written as "part: part"."""
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {_key(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value


def _key(key: object) -> str:
    return ": ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def plain(table: Table) -> str:
    """The table as text in columns of equal width."""
    rows = [table.columns, *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [table.title]
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join((first.strip().ljust(widths[0]), *others)))
    return "\n".join([*lines, *table.notes, ""])
