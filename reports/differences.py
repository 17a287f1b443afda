"""The differences of a target from eager: where, the evidence, and both runs side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from aliasproof.oracles.check_result import Check, Row, TargetResult
from aliasproof.oracles.verdict import Limitation, Violation
from aliasproof.reports.console import in_lines, listed, new_table, print_lines, print_table

LONG_EVIDENCE = 60  # characters; longer evidence has lines of its own
MOST_EVIDENCE_LINES = 8
MOST_PLACES = 4  # named locations with one kind of difference
# Both runs side by side: all rows if they are few, else some of those that differ.
FEW_ROW_LINES, MOST_ROWS, MOST_LINES_OF_ROW = 8, 3, 3


def print_differences(
    console: Console, check: Check, result: TargetResult, *, documented: bool
) -> None:
    """Print the violations of a target, with `documented` also documented ones, then both runs.

    Of the differences of one kind, only the first has its evidence.
    """
    if part := check.wrong_part(result):
        print_lines(console, f"first wrong after: {part}")
    new, labels = False, {}
    for limitation, alike in _by_kind(result, documented=documented):
        violation = alike[0]
        others = listed([other.place for other in alike[1:]], MOST_PLACES)
        earlier = check.already_in(result, violation)
        # The evidence was printed with the earlier target.
        if earlier is not None:
            print_lines(console, f"{violation.oracle}: {violation.describe()}, as in {earlier}")
            continue
        new = True
        # All violations with a label have the same reason for it, so print it once.
        if reason := violation.evidence.get(violation.label):
            labels[violation.label] = reason
            evidence = {k: v for k, v in violation.evidence.items() if k != violation.label}
            violation = replace(violation, evidence=evidence)
        print_violation(console, violation, limitation, MOST_EVIDENCE_LINES)
        if others:
            print_lines(console, f"  the same in {others}")
    for label, reason in labels.items():
        print_lines(console, f"{label}: {reason}")
    if new and (rows := _on_screen(result)):
        console.print()
        print_rows(console, rows, result.target)


def _by_kind(
    result: TargetResult, *, documented: bool
) -> Iterable[tuple[Limitation | None, list[Violation]]]:
    """The differences of each kind, with their common limitation.

    Disputed ones come last: a reader looks for the clearest violation first.
    """
    violations = sorted(result.violations, key=lambda violation: violation.label)
    shown: list[tuple[Limitation | None, Violation]] = [(None, it) for it in violations]
    if documented:
        shown += [(it.limitation, it.difference) for it in result.documented]
    groups: dict[object, tuple[Limitation | None, list[Violation]]] = {}
    for limitation, violation in shown:
        kind = violation.oracle, violation.kind, violation.label, limitation
        groups.setdefault(kind, (limitation, []))[1].append(violation)
    return groups.values()


def _on_screen(result: TargetResult) -> Sequence[Row]:
    """The rows of both runs if they are few, else those that differ, wrong ones first."""
    lines = (max(text.count("\n") for text in row[1:]) + 1 for row in result.rows)
    if sum(lines) <= FEW_ROW_LINES:
        return result.rows
    wrong = {violation.place for violation in result.violations}

    def is_wrong(row: Row) -> bool:
        return any(place in row[0] for place in wrong)

    # Values that differ by a bit or two look equal.
    differing = [row for row in result.rows if is_wrong(row) or row[1] != row[2]]
    differing.sort(key=is_wrong, reverse=True)
    shown = [
        (place, in_lines(ours, MOST_LINES_OF_ROW), in_lines(theirs, MOST_LINES_OF_ROW))
        for place, ours, theirs in differing[:MOST_ROWS]
    ]
    left = len(differing) - len(shown)
    return [*shown, (f"and {left} more", "", "")] if left else shown


def print_rows(console: Console, rows: Iterable[Row], target: str) -> None:
    """Print two runs side by side, with a mark at each difference."""
    table = new_table()
    table.add_column("")
    table.add_column("eager", overflow="fold")
    table.add_column("", style="red")
    table.add_column(target, overflow="fold")
    for place, ours, theirs in rows:
        style = "" if ours == theirs else "red"
        table.add_row(Text(place, "dim"), ours, "" if ours == theirs else "≠", Text(theirs, style))
    print_table(console, table)


def print_violation(
    console: Console,
    violation: Violation,
    limitation: Limitation | None = None,
    most_lines: int | None = None,
) -> None:
    """Print what differs, where, and the evidence. A documented difference has a limitation.

    Long evidence is cut to `most_lines` lines.
    """
    label = f" [{violation.label}]" if violation.label else ""
    style = "bold red" if limitation is None else "red"
    print_lines(console, f"{violation.oracle}: {violation.describe()}{label}", style)
    if limitation is not None:
        print_lines(console, f"  documented: {limitation.name}: {limitation.reason}")
    short = [f"{key} {value}" for key, value in violation.evidence.items() if not _long(value)]
    if short:
        print_lines(console, f"  {', '.join(short)}")
    for key, value in violation.evidence.items():
        if _long(value):
            text = str(value).strip()
            text = text if most_lines is None else in_lines(text, most_lines)
            print_lines(console, textwrap.indent(f"{key}:\n{textwrap.indent(text, '  ')}", "  "))


def _long(value: object) -> bool:
    return len(str(value)) > LONG_EVIDENCE or "\n" in str(value)
