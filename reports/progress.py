"""Progress: a live display in a terminal, a line every ten seconds elsewhere.

Both go to standard error.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from aliasproof.campaigns.failure.finding import AnyFinding
from aliasproof.campaigns.run.campaign import Campaign, Listener
from aliasproof.reports.console import (
    LINE_EVERY,
    REDRAWN_EVERY,
    clock,
    counted,
    print_lines,
    print_table,
    shortened,
    table_of,
)

LATEST = 5  # findings listed in the live display
STARTING = "Starting workers. Each imports torch, which takes some seconds."


@contextlib.contextmanager
def display(console: Console, title: str) -> Iterator[Listener]:
    """A listener that shows a running campaign. The title appears when the campaign starts.

    A terminal has a display that is redrawn; elsewhere, each new finding has a line, and the status
    every ten seconds.
    """
    # No refresh thread: the campaign calls the listener several times per second anyway.
    live = Live(console=console, auto_refresh=False, transient=True)
    shown, printed, known = -math.inf, 0, set[str]()

    def listener(campaign: Campaign) -> None:
        nonlocal shown, printed
        now = time.monotonic()
        # The first call comes when the campaign runs: after bad options, there is no title.
        if shown < 0 and not console.is_terminal:
            shown = now
            print_lines(console, title)
        for note in campaign.notes[printed:]:
            print_lines(console, note)
        printed = len(campaign.notes)
        if console.is_terminal:
            if now - shown >= REDRAWN_EVERY:
                shown = now
                live.update(_picture(campaign, title), refresh=True)
            return
        for name, finding in campaign.findings.items():
            if name not in known:
                known.add(name)
                print_lines(console, f"[{clock(campaign.elapsed)}] found {in_a_line(finding)}")
        if now - shown >= LINE_EVERY:
            shown = now
            print_lines(console, f"[{clock(campaign.elapsed)}] {_status(campaign)}")

    with live if console.is_terminal else contextlib.nullcontext():
        yield listener


def in_a_line(finding: AnyFinding) -> str:
    size = counted(finding.size, finding.unit)
    known = f" (known: {finding.known})" if finding.known else ""
    return f"{finding.identifier}{known}: {shortened(finding.kind)} ({finding.place}), {size}"


def _status(campaign: Campaign) -> str:
    total = campaign.total
    if not total.programs and not campaign.interrupted:
        return f"{STARTING} {_time_left(campaign)}."
    waiting = {"to reduce": campaign.reducing, "to confirm": campaign.confirming}
    parts = (
        counted(total.programs, "program"),
        counted(total.wrong, "violation"),
        *_known_bugs(campaign),
        counted(len(campaign.new_findings), "new finding"),
        *(f"{count} {what}" for what, count in waiting.items() if count),
        _time_left(campaign),
    )
    return ", ".join(parts)


def _known_bugs(campaign: Campaign) -> list[str]:
    """How many violations are known bugs, if any."""
    total = campaign.known.total()
    return [f"{total} by {counted(len(campaign.known), 'known bug')}"] if total else []


def _share(campaign: Campaign) -> float:
    """How much of the campaign is done, from 0 to 1."""
    plan = campaign.plan
    shares = [campaign.elapsed / plan.seconds] if plan.seconds else []
    if plan.programs:
        shares.append(campaign.total.programs / (plan.programs * len(plan.targets)))
    # A plan can limit both. The campaign ends at whichever limit comes first.
    return min(max(shares, default=0.0), 1.0)


def _time_left(campaign: Campaign) -> str:
    """The time that is left, an estimate if the plan counts programs."""
    share = _share(campaign)
    if campaign.interrupted:
        return "interrupted: confirming findings"
    if share >= 1:
        return "finishing"
    if campaign.plan.seconds:
        return f"{clock(campaign.plan.seconds - campaign.elapsed)} left"
    if not share:
        return "waiting for the first programs"
    return f"about {clock(campaign.elapsed * (1 - share) / share)} left"


def _picture(campaign: Campaign, title: str) -> Group:
    clocks = Table.grid(padding=(0, 1))
    for _ in range(3):
        clocks.add_column(no_wrap=True)
    bar = ProgressBar(total=1.0, completed=_share(campaign), width=30)
    clocks.add_row(f"{clock(campaign.elapsed)} elapsed", bar, _time_left(campaign))
    parts: list[RenderableType] = [Text(title, "bold"), clocks]
    parts += [_by_target(campaign), _findings_so_far(campaign)]
    for finding in list(campaign.findings.values())[-LATEST:]:
        style = "bold red" if finding.silent else ""
        parts.append(Text(f"  {in_a_line(finding)}", style, overflow="ellipsis", no_wrap=True))
    if campaign.total.programs == 0 and not campaign.interrupted:
        parts.append(Text(STARTING, "dim"))
    again, first = "again to drop what is not confirmed yet.", "to end the run. Findings are kept."
    hint = f"Press Ctrl-C {again if campaign.interrupted else first}"
    return Group(*parts, Text(hint, "dim"))


def _by_target(campaign: Campaign) -> Table:
    rows = [*campaign.statistics.items()]
    # With one target, a row of totals would be the same.
    rows += [("all", campaign.total)] if len(rows) > 1 else []
    cells = (
        (name, str(tally.programs), f"{100 * tally.discard_rate:.1f} %", str(tally.wrong))
        for name, tally in rows
    )
    return table_of(("target", "programs", "discarded", "violations"), cells)


def _findings_so_far(campaign: Campaign) -> Text:
    new = campaign.new_findings
    silent = sum(finding.silent for finding in new)
    return Text.assemble(
        (f"{counted(len(new), 'new finding')}, {silent} of them silent", "bold"),
        f"; {campaign.reducing} being reduced, {campaign.confirming} being confirmed"
        + "".join(f"; {text}" for text in _known_bugs(campaign)),
    )


# --- reduction ------------------------------------------------------------------------------------


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
    live = Live(console=console, auto_refresh=False, transient=True)

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

    with live if console.is_terminal else contextlib.nullcontext():
        yield show
