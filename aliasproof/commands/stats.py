"""The command `stats`: what a campaign draws."""

from __future__ import annotations

from collections import Counter
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


Python = Annotated[
    bool,
    typer.Option("--python", help="Draw Python programs, as `hunt` does: forms of statements."),
]


def stats(
    programs: Programs = 500, seed: Seed = 0, python: Python = False, json: Json = False
) -> None:
    """Draw programs as a campaign does, and show what they contain.

    A share below 1 % is marked as rare. What can be drawn and was not is marked NEVER.
    """
    if python:
        _forms(programs, seed, json)
        return
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


def _forms(programs: int, seed: int, json: bool) -> None:
    from aliasproof.generators.python_drawing import sample_python
    from aliasproof.generators.python_forms.form_table import FORMS
    from aliasproof.reports.forms_table import forms_json, print_forms
    from aliasproof.trials.worker import quiet_torch

    quiet_torch()
    counts: Counter[tuple[str, str]] = Counter()
    for _ in sample_python(seed, range(programs), counts):
        pass
    groups = {form.name: form.group for form in sorted(FORMS, key=lambda form: form.group)}
    if json:
        write_json(forms_json(counts, groups, programs))
    else:
        print_forms(results(), counts, groups, programs)
