"""The command `stats`: what a campaign draws."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import track

from aliasproof.options import Json, whole_number
from aliasproof.reports.console import notes, results, write_json
from aliasproof.reports.drawn_table import print_drawn

Programs = Annotated[int, whole_number("Draw this many programs.", 1)]
Seed = Annotated[
    int, typer.Option(metavar="NUMBER", help="Draw what a campaign with this seed draws.")
]


def stats(programs: Programs = 500, seed: Seed = 0, json: Json = False) -> None:
    """Draw programs as a campaign does, and show what they contain.

    A share below 1 % is marked as rare. What can be drawn and was not is marked NEVER.
    """
    from aliasproof.campaigns.run.drawn_programs import DrawnPrograms
    from aliasproof.trials.worker import quiet_torch

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
    if json:
        write_json(drawn.to_json())
    else:
        print_drawn(results(), drawn.to_json())
