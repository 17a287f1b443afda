"""What a campaign draws, as tables: groups of ops, inputs, programs, scenarios, what was dropped.

A share below 1 % is marked as rare, and what can be drawn and was not is marked as never drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from aliasproof.reports.console import new_table, print_heading, print_lines, print_table

RARE = 0.01
SHOWN_OPS = 3  # the most frequent ones of a group, and the rarest
SHOWN_REASONS = 12


def print_drawn(console: Console, drawn: Mapping[str, Any]) -> None:
    """Print what was drawn; `drawn` are JSON values."""
    counts, programs = drawn["instructions"], drawn["programs"]
    print_lines(
        console,
        f"{programs} programs of {counts['kept'] / programs:.1f} instructions and"
        f" {drawn['inputs'] / programs:.1f} inputs",
        "bold",
    )
    _print_groups(console, drawn)
    _print_shares(console, "scenarios played, by program", drawn["scenarios"], programs)
    for name in ("dtypes", "layouts", "ranks", "sizes"):
        _print_shares(console, f"{name} of inputs", drawn[name], drawn["inputs"])
    _print_shares(console, "programs with", drawn["contents"], programs)
    _print_dropped(console, drawn)


def _print_groups(console: Console, drawn: Mapping[str, Any]) -> None:
    print_heading(console, "instructions by group")
    table = new_table()
    for name in ("group", "ops", "instructions", "dropped", ""):
        table.add_column(name, justify="left" if name in ("group", "") else "right", no_wrap=True)
    kept = drawn["instructions"]["kept"]
    for name, group in drawn["groups"].items():
        count, dropped = group["instructions"], group["dropped"]
        table.add_row(
            name,
            str(len(group["ops"])),
            _percent(count, kept),
            _percent(dropped, count + dropped),
            _mark(count, kept),
        )
    print_table(console, table)
    console.print()
    for name, group in drawn["groups"].items():
        _print_ops(console, name, group["ops"])


def _print_ops(console: Console, group: str, ops: Mapping[str, int]) -> None:
    """The most frequent ops of a group, the rarest, and those that were never drawn."""
    ordered = sorted(ops.items(), key=lambda item: -item[1])
    drawn = [f"{_short(op)} {count}" for op, count in ordered if count]
    parts = [f"most {', '.join(drawn[:SHOWN_OPS])}" if drawn else "most none"]
    if rest := drawn[SHOWN_OPS:][-SHOWN_OPS:]:
        parts.append(f"least {', '.join(rest)}")
    if never := [_short(op) for op, count in ordered if not count]:
        parts.append(f"NEVER {', '.join(never)}")
    _print_wrapped(console, f"{group}: {'; '.join(parts)}")


def _short(op: str) -> str:
    return op.removeprefix("aten.").removesuffix(".default")


def _print_shares(console: Console, title: str, counts: Mapping[str, int], whole: int) -> None:
    print_heading(console, title)
    table = new_table(header=False)
    table.add_column("", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name, count in counts.items():
        table.add_row(name, _percent(count, whole), _mark(count, whole))
    print_table(console, table)


def _print_dropped(console: Console, drawn: Mapping[str, Any]) -> None:
    print_heading(console, "discarded and dropped")
    counts, programs = drawn["instructions"], drawn["programs"]
    ended = drawn["discarded"]
    print_lines(
        console,
        f"programs discarded: {_percent(sum(ended.values()), programs)}"
        f" (undefined {_percent(ended['undefined'], programs)},"
        f" raise {_percent(ended['raises'], programs)})",
    )
    parts = ", ".join(
        f"{name} {_percent(counts[name], counts['drawn'])}"
        for name in ("raised", "undefined", "too large")
    )
    dropped = counts["drawn"] - counts["kept"]
    print_lines(console, f"instructions dropped: {_percent(dropped, counts['drawn'])} ({parts})")
    for reason in drawn["reasons"][:SHOWN_REASONS]:
        share = _percent(reason["instructions"], counts["drawn"])
        _print_wrapped(console, f"{share} {_short(reason['op'])}: {reason['reason']}")


def _print_wrapped(console: Console, text: str) -> None:
    print_lines(console, textwrap.fill(text, console.width - 1, subsequent_indent="  "))


def _percent(count: int, whole: int) -> str:
    return f"{100 * count / whole:.1f} %" if whole else "-"


def _mark(count: int, whole: int) -> str:
    if not count:
        return "NEVER"
    return "rare" if count < RARE * whole else ""
