"""How often Python programs write each form of statement, by the memory that it meets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console

from aliasproof.reports.console import print_heading, print_table, table_of


def forms_json(
    counts: Mapping[tuple[str, str], int], groups: Mapping[str, str], programs: int
) -> dict[str, object]:
    """As JSON values: forms by group, each with its counts by aliasing situation."""
    by_form: dict[str, dict[str, int]] = {name: {} for name in groups}
    for (name, situation), count in sorted(counts.items()):
        by_form[name][situation] = count
    forms = [
        {"group": groups[name], "form": name, "situations": situations}
        for name, situations in by_form.items()
    ]
    return {"programs": programs, "forms": forms}


def print_forms(
    console: Console,
    counts: Mapping[tuple[str, str], int],
    groups: Mapping[str, str],
    programs: int,
) -> None:
    """One row for each form, one column for each aliasing situation."""
    totals: Counter[str] = Counter()
    for (_, situation), count in counts.items():
        totals[situation] += count
    situations = [name for name, _ in totals.most_common()]
    print_heading(console, f"{programs} Python programs: forms of statements by aliasing situation")
    rows = (
        (group, form, *_row([counts.get((form, it), 0) for it in situations]))
        for form, group in groups.items()
    )
    print_table(console, table_of(("group", "form", *situations, "all"), rows, texts=2))


def print_cuts(console: Console, cuts: Mapping[str, int]) -> None:
    """How many programs are defined, and how Dynamo cuts those that were compiled."""
    print_heading(console, "what eager defines, and how Dynamo cuts it")
    rows = ((name, str(count)) for name, count in cuts.items())
    print_table(console, table_of(("programs, frames, graphs", "count"), rows))


def _row(counts: Sequence[int]) -> list[str]:
    """The counts and their sum; what was never drawn is marked."""
    return [*(str(count) if count else "-" for count in counts), str(sum(counts) or "NEVER")]
