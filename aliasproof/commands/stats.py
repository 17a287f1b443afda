"""The command `stats`: what a campaign draws."""

from __future__ import annotations

from rich.progress import track

from aliasproof.campaigns.run.drawn_programs import DrawnPrograms
from aliasproof.programs.errors import UserError
from aliasproof.reports.console import notes, results, write_json
from aliasproof.reports.drawn_table import print_drawn
from aliasproof.trials.worker import quiet_torch


def show_drawn(programs: int, seed: int, *, as_json: bool) -> None:
    """Draw programs as a campaign does, and print what they contain.

    Raises `UserError` for a number below 1.
    """
    if programs < 1:
        raise UserError(f"--programs {programs}: give at least 1")
    quiet_torch()
    drawn, console = DrawnPrograms(), notes()
    wait = track(
        drawn.draw(seed, programs),
        "drawing",
        programs,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    for _ in wait:
        pass
    if as_json:
        write_json(drawn.to_json())
    else:
        print_drawn(results(), drawn.to_json())
