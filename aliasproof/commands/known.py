"""The command `known`: the known bugs of compilers, and their programs."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from aliasproof.commands.options import Json
from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.reports.console import results, write_json

Names = Annotated[
    list[str] | None,
    Argument(metavar="[BUG]...", help="Show these in full.", show_default=False),
]
Shown = Annotated[
    str | None,
    Option("--target", "-t", metavar="TARGET", help="Only those that show on this target."),
]


def known(names: Names = None, target: Shown = None, json: Json = False) -> None:
    """List the known bugs; with names, show the programs, versions and targets."""
    from aliasproof.corpus.known_bugs import KNOWN_BUGS
    from aliasproof.judge.trial import quiet_torch
    from aliasproof.reports.known_bug_table import known_bug_json, print_known_bugs, print_titles
    from aliasproof.targets.names import refuse_unknown

    if target is not None:
        refuse_unknown(target)
    for name in names or ():
        if name not in KNOWN_BUGS:
            raise UserError(f"no known bug has the name '{name}'{did_you_mean(name, KNOWN_BUGS)}")
    quiet_torch()
    bugs = [KNOWN_BUGS[name] for name in names or KNOWN_BUGS]
    bugs = [bug for bug in bugs if target is None or target in bug.targets]
    if json:
        write_json({"known": [known_bug_json(bug) for bug in bugs]})
    elif names:
        print_known_bugs(results(), bugs)
    else:
        print_titles(results(), bugs)
