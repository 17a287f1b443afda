"""`@form` puts a way to write a statement into the table."""

from __future__ import annotations

from collections.abc import Callable

from aliasproof.generators.sketch import Sketch, StatementForm
from aliasproof.ir.python_program import COMPILED

FORMS: list[StatementForm] = []


def form(
    group: str, *, place: str = COMPILED, nests: bool = False, weight: int = 1
) -> Callable[[Callable[[Sketch], None]], Callable[[Sketch], None]]:
    """Add a form with the name of the function."""

    def added(draw: Callable[[Sketch], None]) -> Callable[[Sketch], None]:
        name = draw.__name__.strip("_").replace("_", " ")
        FORMS.append(StatementForm(name, group, draw, place, nests, weight))
        return draw

    return added
