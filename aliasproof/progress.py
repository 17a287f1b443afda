"""How far a campaign is: a live display in a terminal, a line every ten seconds elsewhere.

Both go to standard error.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from aliasproof.console import print_lines
from campaigns.campaign import Campaign, Listener
from campaigns.finding import Finding

REDRAWN_EVERY = 0.2  # seconds
LINE_EVERY = 10.0  # seconds
LONGEST_KIND = 90  # characters
LATEST = 5  # findings listed while a campaign runs


@contextlib.contextmanager
def display(console: Console, title: str) -> Iterator[Listener]:
    """A listener that shows a campaign while it runs, under a title that appears once it does."""
    if not console.is_terminal:
        yield _Lines(console, title)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield _Picture(live, title)


@dataclass(slots=True)
class _Picture:
    """Redraws the display a few times a second."""

    live: Live
    title: str
    drawn: float = -REDRAWN_EVERY

    def __call__(self, campaign: Campaign) -> None:
        now = time.monotonic()
        if now - self.drawn >= REDRAWN_EVERY:
            self.drawn = now
            self.live.update(_picture(campaign, self.title), refresh=True)


@dataclass(slots=True)
class _Lines:
    """Prints a line now and then, and one for each new finding."""

    console: Console
    title: str
    last: float | None = None
    known: set[str] = field(default_factory=set)

    def __call__(self, campaign: Campaign) -> None:
        now = time.monotonic()
        if self.last is None:
            self.last = now
            print_lines(self.console, self.title)
        for finding in _new(campaign, self.known):
            print_lines(self.console, f"[{clock(campaign.elapsed)}] found {in_a_line(finding)}")
        if now - self.last >= LINE_EVERY:
            self.last = now
            print_lines(self.console, f"[{clock(campaign.elapsed)}] {_status(campaign)}")


def _new(campaign: Campaign, known: set[str]) -> list[Finding]:
    new = [finding for name, finding in campaign.findings.items() if name not in known]
    known.update(campaign.findings)
    return new


def in_a_line(finding: Finding) -> str:
    """What a finding is, in short."""
    size = counted(len(finding.program), "instruction")
    return f"{finding.identifier}: {short(finding.kind)} ({finding.place}), {size}"


def short(kind: str) -> str:
    """A kind without most of an error's message, which stands in the finding."""
    return kind if len(kind) <= LONGEST_KIND else f"{kind[: LONGEST_KIND - 1].rstrip()}…"


def counted(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number} {noun}{'s' * (number != 1)}"


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def silent(campaign: Campaign) -> int:
    """How many findings raise nothing."""
    return sum(each.silent for each in campaign.findings.values())


def _status(campaign: Campaign) -> str:
    total = campaign.total
    by_target = ", ".join(f"{name} {tally.programs}" for name, tally in campaign.statistics.items())
    return ", ".join(
        (
            f"{total.programs} programs ({by_target})",
            f"{100 * total.discard_rate:.1f} % discarded",
            f"{total.violating} violating",
            f"{counted(len(campaign.findings), 'finding')} ({silent(campaign)} silent)",
            f"{campaign.reducing} being reduced",
            f"{campaign.confirming} being confirmed",
            _left(campaign),
        )
    )


def _share(campaign: Campaign) -> float:
    """How much of the campaign is over, from 0 to 1."""
    plan = campaign.plan
    shares = [campaign.elapsed / plan.seconds] if plan.seconds else []
    shares += (
        [campaign.total.programs / (plan.programs * len(plan.targets))] if plan.programs else []
    )
    return min(max(shares, default=0.0), 1.0)


def _left(campaign: Campaign) -> str:
    """The time that is left, as far as it can be told."""
    share = _share(campaign)
    if campaign.interrupted:
        return "interrupted: confirming what was found"
    if share >= 1:
        return "finishing"
    if campaign.plan.seconds:
        return f"{clock(campaign.plan.seconds - campaign.elapsed)} left"
    return (
        f"about {clock(campaign.elapsed * (1 - share) / share)} left"
        if share
        else "starting workers"
    )


# --- the live display -----------------------------------------------------------------------------


def _picture(campaign: Campaign, title: str) -> Group:
    parts: list[RenderableType] = [
        Text(title, "bold"),
        _clocks(campaign),
        _by_target(campaign),
        _findings_so_far(campaign),
    ]
    for each in list(campaign.findings.values())[-LATEST:]:
        style = "bold red" if each.silent else ""
        parts.append(Text(f"  {in_a_line(each)}", style, overflow="ellipsis", no_wrap=True))
    if campaign.total.programs == 0 and not campaign.interrupted:
        parts.append(Text("Starting workers: each loads torch, which takes some seconds.", "dim"))
    if campaign.interrupted:
        parts.append(Text("Ctrl-C again gives up what is not confirmed.", "dim"))
    else:
        parts.append(Text("Ctrl-C ends the run and keeps what was found.", "dim"))
    return Group(*parts)


def _clocks(campaign: Campaign) -> Table:
    row = Table.grid(padding=(0, 1))
    row.add_column(no_wrap=True)
    row.add_column(no_wrap=True)
    row.add_column(no_wrap=True)
    bar = ProgressBar(total=1.0, completed=_share(campaign), width=30)
    row.add_row(f"{clock(campaign.elapsed)} elapsed", bar, _left(campaign))
    return row


def _by_target(campaign: Campaign) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("target", no_wrap=True)
    for name in ("programs", "discarded", "violations"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = [*campaign.statistics.items()]
    rows += [("all", campaign.total)] if len(rows) > 1 else []
    for name, tally in rows:
        table.add_row(
            name, str(tally.programs), f"{100 * tally.discard_rate:.1f} %", str(tally.violating)
        )
    return table


def _findings_so_far(campaign: Campaign) -> Text:
    findings = f"{counted(len(campaign.findings), 'finding')}, {silent(campaign)} of them silent"
    return Text.assemble(
        (findings, "bold"),
        f"; {campaign.reducing} being reduced, {campaign.confirming} being confirmed",
    )
