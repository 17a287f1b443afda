"""What each step of a reduction cost and gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rich.console import Console

from aliasproof.reports.console import new_table, print_table


class StepCost(Protocol):
    """Candidates that one step asked about, how many were accepted, and seconds."""

    candidates: int
    accepted: int
    seconds: float


def print_steps(console: Console, steps: Mapping[str, StepCost]) -> None:
    """Print a table with a row per step that asked about a candidate, in the order of the steps."""
    table = new_table()
    table.add_column("step")
    for title in ("candidates", "accepted", "seconds"):
        table.add_column(title, justify="right")
    for name, spent in steps.items():
        row = (str(spent.candidates), str(spent.accepted), f"{spent.seconds:.1f}")
        table.add_row(name.replace("_", " "), *row)
    print_table(console, table)
