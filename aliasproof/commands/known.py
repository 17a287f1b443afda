"""The command `known`: the known bugs of torch, and the versions that have them."""

from __future__ import annotations

from aliasproof.corpus.known_bugs import KNOWN_BUGS
from aliasproof.reports.console import results, write_json
from aliasproof.reports.known_bug_table import known_bug_json, print_known_bugs
from aliasproof.trials.worker import quiet_torch


def list_known_bugs(*, as_json: bool) -> None:
    """Print each known bug."""
    quiet_torch()
    if as_json:
        write_json({"known": [known_bug_json(bug) for bug in KNOWN_BUGS.values()]})
    else:
        print_known_bugs(results(), KNOWN_BUGS.values())
