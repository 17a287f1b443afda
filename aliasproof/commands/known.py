"""The command `known`: the known bugs of compilers, and their files."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from aliasproof.commands.options import Json, option
from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.reports.console import print_exactly, results, write_json

Names = Annotated[
    list[str] | None,
    Argument(metavar="[BUG]...", help="Print the files of these.", show_default=False),
]
Shown = Annotated[
    str | None,
    option("TARGET", "Only those that show on this target.", "--target", "-t"),
]


def known(names: Names = None, target: Shown = None, json: Json = False) -> None:
    """List the known bugs; with names, print their files: program, versions, targets and notes."""
    from aliasproof.corpus.bug_files import all_bugs, bug_json
    from aliasproof.judge.trial import quiet_torch
    from aliasproof.reports.listings import print_bugs
    from aliasproof.targets.names import refuse_unknown

    if target is not None:
        refuse_unknown(target)
    known = all_bugs()
    for name in names or ():
        if name not in known:
            raise UserError(f"no known bug has the name '{name}'{did_you_mean(name, known)}")
    quiet_torch()
    bugs = [known[name] for name in names or known]
    bugs = [bug for bug in bugs if target is None or target in bug.targets]
    if json:
        write_json({"known": [bug_json(bug) for bug in bugs]})
    elif names:
        texts = (bug.file.read_text(encoding="utf-8") for bug in bugs)
        print_exactly(results(), "\n".join(texts).rstrip("\n"))
    else:
        print_bugs(results(), bugs)
