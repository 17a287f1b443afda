"""The progress of a reduction, and what each of its steps cost and achieved."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from aliasproof.reports.console import (
    LINE_EVERY,
    REDRAWN_EVERY,
    clock,
    print_lines,
    print_table,
    table_of,
)


class StepCost(Protocol):
    """The candidates that a step tried, how many were accepted, and seconds."""

    candidates: int
    accepted: int
    seconds: float


def print_steps(console: Console, steps: Mapping[str, StepCost]) -> None:
    """Print a table with a row per step that tried candidates, in the order of the steps."""
    rows = (
        (name.replace("_", " "), str(it.candidates), str(it.accepted), f"{it.seconds:.1f}")
        for name, it in steps.items()
    )
    print_table(console, table_of(("step", "candidates", "accepted", "seconds"), rows))


@contextlib.contextmanager
def print_progress(console: Console) -> Iterator[Callable[[str], None]]:
    """Show the progress of a reduction: a line that changes, or a new line every ten seconds."""
    started, drawn = time.monotonic(), -REDRAWN_EVERY
    every = REDRAWN_EVERY if console.is_terminal else LINE_EVERY
    with contextlib.ExitStack() as stack:
        live = Live(console=console, auto_refresh=False, transient=True)
        if console.is_terminal:
            stack.enter_context(live)

        def show(status: str) -> None:
            nonlocal drawn
            now = time.monotonic() - started
            if now - drawn < every:
                return
            drawn = now
            if console.is_terminal:
                live.update(Text(f"{clock(now)}  {status}"), refresh=True)
            else:
                print_lines(console, f"{clock(now)}  {status}")

        yield show
