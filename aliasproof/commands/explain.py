"""The command `explain`: what the reference pass does to a user's function or program, and why."""

from __future__ import annotations

from pathlib import Path

from aliasproof.explaining import VIEWS, explain
from aliasproof.programs.errors import UserError
from aliasproof.programs.program import Program
from aliasproof.reports.console import print_notes, results, write_json
from aliasproof.reports.explanation import Explanation, explanation_json, print_explanation
from aliasproof.trials.worker import quiet_torch
from aliasproof.user_code import user_file
from aliasproof.user_code.user_file import FileNames, UserFunction


def explain_file(path: Path, views: str, names: FileNames, *, as_json: bool) -> None:
    """Explain the function or program in a file, and print the explanation."""
    if views not in VIEWS:
        raise UserError(f"--views {views}: give one of {', '.join(VIEWS)}")

    def action(given: UserFunction | Program) -> Explanation:
        if isinstance(given, Program):
            return explain(given, views=VIEWS[views])
        return explain(given.function, given.inputs, VIEWS[views], file=path)

    quiet_torch()
    found = user_file.apply_to(path, names, action)
    print_notes(found.notes)
    if as_json:
        write_json({"file": str(path), "views": views} | explanation_json(found))
    else:
        print_explanation(results(), str(path), found)
