"""The command `stats`: what a campaign draws."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from rich.progress import track

from aliasproof.commands.options import Json, flag, option, whole_number
from aliasproof.reports.console import notes, results, write_json
from aliasproof.reports.listings import print_drawn

Programs = Annotated[int, whole_number("Draw this many programs.", 1)]
Seed = Annotated[int, option("NUMBER", "Draw what a campaign with this seed draws.")]


Python = Annotated[
    bool,
    flag("--python", "Draw Python programs, as `hunt` does: forms of statements."),
]


Frames = Annotated[
    int,
    option("NUMBER", "Of Python programs: see which are defined, and how Dynamo cuts N of them."),
]


def stats(
    programs: Programs = 500,
    seed: Seed = 0,
    python: Python = False,
    frames: Frames = 0,
    json: Json = False,
) -> None:
    """Draw programs as a campaign does, and show what they contain.

    A share below 1 % is marked as rare. What can be drawn and was not is marked NEVER.
    """
    if python:
        _forms(programs, seed, frames, json)
        return
    from aliasproof.campaigns.run.drawn_programs import DrawnPrograms
    from aliasproof.judge.trial import quiet_torch

    quiet_torch()
    drawn = DrawnPrograms()
    _wait(drawn.draw(seed, programs), programs)
    if json:
        write_json(drawn.to_json())
    else:
        print_drawn(results(), drawn.to_json())


def _forms(programs: int, seed: int, frames: int, json: bool) -> None:
    from aliasproof.campaigns.run.drawn_programs import DrawnPython
    from aliasproof.generators.sketch import FORMS
    from aliasproof.reports.listings import forms_json, print_cuts, print_forms

    drawn = DrawnPython()
    _wait(drawn.draw(seed, programs, frames), programs)
    groups = {form.name: form.group for form in sorted(FORMS, key=lambda form: form.group)}
    if json:
        counts = forms_json(drawn.forms, groups, programs)
        write_json(counts | {"cuts": dict(drawn.cuts)})
        return
    print_forms(results(), drawn.forms, groups, programs)
    if drawn.cuts:
        print_cuts(results(), drawn.cuts)


def _wait(drawn: Iterable[object], programs: int) -> None:
    """Let the programs be drawn, and show how many are, on a terminal."""
    console = notes()
    hidden = not console.is_terminal
    for _ in track(drawn, "drawing", programs, console=console, transient=True, disable=hidden):
        pass
