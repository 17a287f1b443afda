"""The table of ops that programs are drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from reports.console import new_table, print_lines, print_table

NAMES = ("op", "kind", "group", "writes")


def print_ops(console: Console, ops: Sequence[Mapping[str, Any]]) -> None:
    """Print one row per op; `ops` are JSON values. `group` is a swarm switch."""
    rows = [(*(str(op[name]) for name in NAMES[:-1]), ", ".join(op["writes"])) for op in ops]
    columns = zip(NAMES, *rows, strict=True)
    if sum(max(map(len, column)) + 2 for column in columns) <= console.width:
        table = new_table()
        for name in NAMES:
            table.add_column(name, no_wrap=True)
        for row in rows:
            table.add_row(*row)
        print_table(console, table)
    else:  # a narrow terminal would cut the names
        for op, kind, group, writes in rows:
            what = f"{kind}, group {group}, writes {writes or 'nothing'}"
            print_lines(console, f"{op}: {what}")
    console.print()
    print_lines(
        console,
        f"{len(rows)} ops. Kind and writes come from the schema. Each shard of a campaign leaves"
        " some groups out, at random.",
    )
