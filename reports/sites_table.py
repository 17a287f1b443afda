"""The sites of the compiler: how often programs fired each, and why others never fired."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from aliasproof.reports.console import print_heading, print_lines, print_table, table_of

GAP = "no reason: a gap"
SHOWN = 8  # names of sites that never fired, of one reason


def print_sites(console: Console, figures: Mapping[str, Any], *, every: bool = False) -> None:
    """Print the sites; `figures` are JSON values. With `every`, no list of names is cut."""
    sites: Sequence[Mapping[str, Any]] = figures["sites"]
    _print_summary(console, sites)
    for kind in dict.fromkeys(site["kind"] for site in sites):
        of_kind = [site for site in sites if site["kind"] == kind]
        print_heading(console, kind)
        _print_fired(console, of_kind)
        _print_never(console, of_kind, every=every)
    if figures["unlisted"]:
        print_heading(console, "fired, and in no list: torch has made them since it was read")
        for name, count in figures["unlisted"].items():
            print_lines(console, f"{count} {name}")
    console.print()
    fired = sum(site["fired"] > 0 for site in sites)
    print_lines(
        console,
        f"{fired} of {len(sites)} sites fired: {figures['programs']} programs of seed"
        f" {figures['seed']} on target {figures['target']}, {figures['discarded']} discarded,"
        f" {figures['lost']} ended their process",
        "bold",
    )


def _print_summary(console: Console, sites: Sequence[Mapping[str, Any]]) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for site in sites:
        counts[site["kind"]][_state(site)] += 1
    rows = (
        (kind, str(states.total()), *(str(states[it]) for it in ("fired", "reason", "gap")))
        for kind, states in counts.items()
    )
    columns = ("kind", "sites", "fired", "never, with a reason", "never: gaps")
    print_table(console, table_of(columns, rows))


def _state(site: Mapping[str, Any]) -> str:
    return "fired" if site["fired"] else "gap" if site["reason"] is None else "reason"


def _print_fired(console: Console, sites: Sequence[Mapping[str, Any]]) -> None:
    fired = sorted((site for site in sites if site["fired"]), key=lambda site: -site["fired"])
    for site in fired:
        _print_wrapped(console, f"{site['fired']:5} {_short(site)} {site['location']}")


def _print_never(console: Console, sites: Sequence[Mapping[str, Any]], *, every: bool) -> None:
    by_reason: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for site in sites:
        if not site["fired"]:
            by_reason[site["reason"] or GAP].append(site)
    for reason, silent in sorted(by_reason.items(), key=lambda item: item[0] == GAP):
        shown = silent if every else silent[:SHOWN]
        names = ", ".join(map(_short, shown))
        more = f", and {len(silent) - len(shown)} more" if len(shown) < len(silent) else ""
        _print_wrapped(console, f"{len(silent)} never, {reason}: {names}{more}")


def _short(site: Mapping[str, Any]) -> str:
    """The name without its kind, and how often its check refused."""
    refused = f" (refused {site['refused']})" if site["refused"] else ""
    return str(site["name"]).removeprefix(f"{site['kind']}/") + refused


def _print_wrapped(console: Console, text: str) -> None:
    print_lines(
        console,
        textwrap.fill(text, console.width - 1, subsequent_indent="      ", break_long_words=False),
    )
