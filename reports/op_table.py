"""The table of ops: what is drawn, and of the views and writes of ATen what is not, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from aliasproof.reports.console import print_lines, print_table, table_of

NAMES = ("op", "kind", "status", "writes", "detail")
STATUSES = ("drawn", "reachable", "not applicable", "undrawn")
LEGEND = (
    "detail: the group of a drawn op, which is a swarm switch; the op through which a"
    " reachable one is reached; or the reason. Kind and writes come from the schema."
)


def print_ops(console: Console, ops: Sequence[Mapping[str, Any]], total: int) -> None:
    """Print one row per op, and the counts; `ops` are JSON values, of `total` listed ones."""
    rows = [_row(op) for op in ops]
    if _fits(console, NAMES, rows):
        _print_table(console, NAMES, rows)
    else:  # a narrow terminal would cut the names
        for op, kind, status, writes, detail in rows:
            what = f"{kind}, writes {writes or 'nothing'}, {status}"
            print_lines(console, f"{op}: {what}{detail and ': '}{detail}")
    console.print()
    names, counted = _counts(ops)
    if _fits(console, names, counted):
        _print_table(console, names, counted)
    else:
        for kind, *numbers in counted:
            pairs = zip(numbers, STATUSES, strict=True)
            print_lines(console, f"{kind}: {', '.join(' '.join(pair) for pair in pairs)}")
    console.print()
    print_lines(console, f"{len(rows)} of {total} ops. {LEGEND}")


def _fits(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    columns = zip(names, *rows, strict=True)
    return sum(max(map(len, column)) + 2 for column in columns) <= console.width


def _counts(ops: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """How many ops of each kind have each status: the names of the columns, and the rows."""
    counted = Counter((op["kind"], op["status"]) for op in ops)
    rows = [
        (kind, *(str(counted[kind, status]) for status in STATUSES))
        for kind in dict.fromkeys(op["kind"] for op in ops)
    ]
    return ("kind", *STATUSES), rows


def _row(op: Mapping[str, Any]) -> tuple[str, ...]:
    return (op["op"], op["kind"], op["status"], ", ".join(op["writes"]), op["detail"])


def _print_table(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print_table(console, table_of(names, rows, texts=len(names)))
