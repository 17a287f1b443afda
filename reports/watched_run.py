"""A run as `watch` shows it: progress, findings by target and state, throughput and memory."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from aliasproof.campaigns.store.run_view import RunView
from aliasproof.reports.console import clock, counted, shortened, sites_fired, table_of

LATEST = 8  # findings that are named
PARTS = 60  # columns of a chart over time
_BARS = " ▁▂▃▄▅▆▇█"


def picture(view: RunView) -> Group:
    """The whole display."""
    now = f"running ({view.holder.name})" if view.running else "ended"
    if view.holder.killed:
        go_on = f"aliasproof {view.command} --run {view.folder}"
        now = f"killed ({view.holder.name}); to go on: {go_on}"
    parts: list[RenderableType] = [
        Text(f"{view.folder}: {now}", "bold"),
        Text(_progress(view)),
        Text(sites_fired(*view.sites)),
        Text(),
        _targets(view),
        Text(),
        *_over_time(view),
        *_memory(view),
        Text(),
        *_latest(view),
    ]
    return Group(*parts)


def _progress(view: RunView) -> str:
    elapsed = view.moments[-1].elapsed if view.moments else 0.0
    programs = sum(view.programs.values())
    parts = [f"{clock(elapsed)} elapsed", counted(programs, "program")]
    if elapsed:
        parts.append(f"{programs / elapsed:.1f} per second")
    parts += [f"{sum(view.violating.values())} with a violation"]
    parts += [counted(view.confirmed, "finding")]
    if waiting := len(view.findings) - view.confirmed:
        parts.append(f"{waiting} not confirmed")
    if view.seconds is not None:
        parts.append(f"of {clock(view.seconds)}")
    if view.limit is not None:
        parts.append(f"of {view.limit} programs per target")
    return ", ".join(parts)


def _targets(view: RunView) -> Table:
    """Programs and violations of each target, and its findings by state."""
    states = list(dict.fromkeys(finding.state for finding in view.findings))
    rows = (
        (
            target,
            str(view.programs.get(target, 0)),
            str(view.violating.get(target, 0)),
            *(str(by_state[state]) if by_state[state] else "" for state in states),
        )
        for target, by_state in view.states.items()
    )
    return table_of(("target", "programs", "violations", *states), rows)


def _over_time(view: RunView) -> list[Text]:
    if len(view.moments) < 2:
        return []
    rates, findings = view.rates(PARTS), view.found(PARTS)
    return [
        Text(f"programs per second {bars(rates)} {min(rates):.1f} to {max(rates):.1f}"),
        Text(f"new findings        {bars(findings)} {sum(findings)}"),
    ]


def bars(numbers: Sequence[float]) -> str:
    """A bar chart in one line."""
    most = max(numbers, default=0) or 1
    # Every number above 0 must be visible.
    return "".join(
        _BARS[max(round(number / most * 8), 1) if number > 0 else 0] for number in numbers
    )


def _memory(view: RunView) -> list[Text]:
    lines = []
    if view.moments:
        sizes = [moment.kib for moment in view.moments]
        lines.append(f"memory of the driver: {_mib(sizes[0])} at first, {_mib(sizes[-1])} now")
    workers = [then for then in view.workers if then.processes]
    if workers:
        last, most = workers[-1], max(then.kib for then in workers)
        largest = max(then.largest_kib for then in workers)
        lines.append(
            f"memory of the workers: {_mib(last.kib)} in {last.processes} at last,"
            f" {_mib(most)} at most; the largest had {_mib(largest)}"
        )
    return [Text(line) for line in lines]


def _mib(kib: int) -> str:
    return f"{kib / 1024:.0f} MiB"


def _latest(view: RunView) -> list[Text]:
    if not view.findings:
        return [Text("No findings so far." if view.running else "No findings.")]
    return [
        Text(
            f"{finding.identifier} ({finding.state}, {finding.times}x): {shortened(finding.kind)}",
            overflow="ellipsis",
            no_wrap=True,
        )
        for finding in view.findings[-LATEST:]
    ]
