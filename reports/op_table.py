"""The table of ops that programs are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

from reports.console import new_table, print_lines, print_table


@dataclass(frozen=True, slots=True)
class OpRow:
    """An op. `group` is a swarm switch, `writes` are the arguments that the op writes."""

    op: str
    kind: str
    group: str
    writes: Sequence[str]
    schema: str

    def to_json(self) -> dict[str, object]:
        """The row as JSON values."""
        return asdict(self)


def print_ops(console: Console, rows: Sequence[OpRow]) -> None:
    """Print one row per op."""
    table = new_table()
    for name in ("op", "kind", "group", "writes"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(row.op, row.kind, row.group, ", ".join(row.writes))
    print_table(console, table)
    console.print()
    print_lines(
        console,
        f"{len(rows)} ops. Kind and writes come from the schema. Each shard of a campaign leaves"
        " some groups out, at random.",
    )
