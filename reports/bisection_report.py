"""What `bisect` found: the layers, the pass, and the graph before and after it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from aliasproof.reports.console import (
    new_table,
    print_exactly,
    print_heading,
    print_lines,
    print_table,
    results,
)
from aliasproof.reports.wording import counted

if TYPE_CHECKING:  # it imports torch
    from aliasproof.bisecting import Bisection
    from aliasproof.campaigns.publish.replaying import Replayed

_STYLES = {"-": "red", "+": "green"}
STILL, FIXED = "still failing", "fixed"  # as `replay` calls them


def print_bisection(given: str, bisection: Bisection, replays: Sequence[Replayed]) -> None:
    """Print it to standard output."""
    console, symptom = results(), bisection.symptom
    table = new_table()
    for name in ("target", "", "difference"):
        table.add_column(name, overflow="fold")
    for layer in bisection.layers:
        table.add_row(layer.target, layer.state, layer.detail)
    print_table(console, table)
    part = bisection.part
    if part is None:
        named = "no experiment names a part of it"
    else:
        named = f"the part at fault is {part.name}"
    console.print()
    print_lines(console, f"{given}: {symptom.target} is wrong first; {named}.", style="bold")
    if part is not None and part.before and part.after:
        _print_change(part.before, part.after, part.name)
    if replays:
        _print_versions(replays)


def changed_lines(before: str, after: str) -> Iterator[str]:
    """The lines of two graphs around what differs, each with '-', '+' or a space in front."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    for line in lines:
        if line[:3] not in ("---", "+++"):
            yield "..." if line.startswith("@@") else line


def _print_change(before: str, after: str, name: str) -> None:
    console = results()
    lines = list(changed_lines(before, after))
    count = counted(sum(line[:1] in _STYLES for line in lines), "line")
    print_heading(console, f"the graph before and after {name}: {count} differ")
    for line in lines:
        print_exactly(console, line, style=_STYLES.get(line[:1], ""))


def first_wrong(replays: Sequence[Replayed]) -> str | None:
    """The oldest torch that is wrong, if older ones were asked and all are right."""
    words = [replayed.word for replayed in replays]
    first = words.index(STILL) if STILL in words else 0
    return replays[first].torch if first and set(words[:first]) == {FIXED} else None


def _print_versions(replays: Sequence[Replayed]) -> None:
    console = results()
    print_heading(console, "versions of torch")
    table = new_table(header=False)
    words = {STILL: "wrong", FIXED: "right"}
    for replayed in replays:
        table.add_row(f"torch {replayed.torch}", words.get(replayed.word, replayed.ending))
    print_table(console, table)
    first = first_wrong(replays)
    if first is not None:
        print_lines(console, f"The first that is wrong is torch {first}.")
