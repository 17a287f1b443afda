"""Two runs beside each other, as texts, with a mark at each difference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from aliasproof.reports.console import new_table, print_table

# What it is, eager's, the target's.
Row: TypeAlias = tuple[str, str, str]


def print_rows(console: Console, found: Iterable[Row], name: str) -> None:
    """Print the rows of two runs; `name` is the target's."""
    table = new_table()
    table.add_column("")
    table.add_column("eager", overflow="fold")
    table.add_column("", style="red")
    table.add_column(name, overflow="fold")
    for place, ours, theirs in found:
        style = "" if ours == theirs else "red"
        table.add_row(Text(place, "dim"), ours, "" if ours == theirs else "≠", Text(theirs, style))
    print_table(console, table)
