"""The command `explain`: what the reference pass does to a user's function or program, and why."""

from __future__ import annotations

from typing import Annotated

from aliasproof.commands.options import File, FunctionName, InputsName, Json, flag, option
from aliasproof.ir.errors import UserError
from aliasproof.reports.console import print_notes, results, write_json
from aliasproof.user_code.given_path import GivenFile

VIEWS = ("alias", "copy")
Views = Annotated[
    str,
    option("alias|copy", "Views in the functional graph: view ops, or view-copy ops."),
]
Plan = Annotated[
    bool,
    flag(
        "--plan", "Plan the memory: where each result is, the peak, and a timeline of the storages."
    ),
]


def explain(
    file: File,
    views: Views = "alias",
    plan: Plan = False,
    function: FunctionName = None,
    inputs: InputsName = "inputs",
    json: Json = False,
) -> None:
    """Show a program, its functional graph and its reinplaced graph.

    For each op, say why it is in place or why not. With --plan, its planned graph, and where each
    result is.

    Exit status: 0, or 2 for bad input and for programs that the reference pass refuses.
    """
    if views not in VIEWS:
        raise UserError(f"--views {views}: give one of {', '.join(VIEWS)}")
    from aliasproof.checks import explaining
    from aliasproof.judge.trial import quiet_torch
    from aliasproof.reports.explanation import explanation_json, print_explanation

    quiet_torch()
    given = GivenFile.of(file)
    names, path = given.names(function, inputs), given.path
    explanation = explaining.explain_file(path, names, explaining.VIEWS[views], plan=plan)
    print_notes(explanation.notes)
    if json:
        write_json({"file": str(path), "views": views} | explanation_json(explanation))
    else:
        print_explanation(results(), str(path), explanation)
