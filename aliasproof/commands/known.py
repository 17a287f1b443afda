"""The command `known`: the known bugs of compilers, and the versions of torch that have them."""

from __future__ import annotations

from aliasproof.options import Json
from aliasproof.reports.console import results, write_json


def known(json: Json = False) -> None:
    """List the known bugs: title, issue, program, versions, targets that show them."""
    from aliasproof.corpus.known_bugs import KNOWN_BUGS
    from aliasproof.reports.known_bug_table import known_bug_json, print_known_bugs
    from aliasproof.trials.worker import quiet_torch

    quiet_torch()
    if json:
        write_json({"known": [known_bug_json(bug) for bug in KNOWN_BUGS.values()]})
    else:
        print_known_bugs(results(), KNOWN_BUGS.values())
