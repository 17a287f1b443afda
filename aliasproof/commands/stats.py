"""The command `stats`: what a campaign draws."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import track

from aliasproof.options import Json, whole_number
from aliasproof.reports.console import notes, results, write_json
from aliasproof.reports.drawn_table import print_drawn

if TYPE_CHECKING:
    from aliasproof.programs.python_program import PythonProgram

Programs = Annotated[int, whole_number("Draw this many programs.", 1)]
Seed = Annotated[
    int, typer.Option(metavar="NUMBER", help="Draw what a campaign with this seed draws.")
]


Python = Annotated[
    bool,
    typer.Option("--python", help="Draw Python programs, as `hunt` does: forms of statements."),
]


Frames = Annotated[
    int,
    typer.Option(
        metavar="NUMBER",
        help="Of Python programs: see which are defined, and how Dynamo cuts so many of them.",
    ),
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


def _forms(programs: int, seed: int, frames: int, json: bool) -> None:
    from aliasproof.generators.python_drawing import sample_python
    from aliasproof.generators.python_forms.form_table import FORMS
    from aliasproof.reports.forms_table import forms_json, print_cuts, print_forms
    from aliasproof.trials.worker import quiet_torch

    quiet_torch()
    counts: Counter[tuple[str, str]] = Counter()
    cuts: Counter[str] = Counter()
    every = max(programs // frames, 1) if frames else 0
    for number, program in enumerate(sample_python(seed, range(programs), counts)):
        if frames:
            _count_cut(program, cuts, compiled=number % every == 0)
    groups = {form.name: form.group for form in sorted(FORMS, key=lambda form: form.group)}
    if json:
        write_json(forms_json(counts, groups, programs) | {"cuts": dict(cuts)})
        return
    print_forms(results(), counts, groups, programs)
    if frames:
        print_cuts(results(), cuts)


def _count_cut(program: PythonProgram, cuts: Counter[str], *, compiled: bool) -> None:
    from aliasproof.trials.python_frames import cut_of, is_defined

    defined = is_defined(program)
    cuts["defined in eager" if defined else "undefined in eager"] += 1
    if defined and compiled:
        cuts["compiled"] += 1
        cuts[cut_of(program, cuts)] += 1
