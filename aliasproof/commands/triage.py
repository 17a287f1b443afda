"""The command `triage`: lists the states of findings, and sets them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aliasproof.campaigns.store.full_disk import explain_full_disk
from aliasproof.campaigns.store.run_lock import RunLock
from aliasproof.commands.options import Json, Run, argument, option
from aliasproof.ir.errors import UserError
from aliasproof.reports.console import print_lines, print_table, results, table_of, write_json

if TYPE_CHECKING:  # it imports torch
    from aliasproof.campaigns.store.store import Store

FindingName = Annotated[str | None, argument("FINDING", "Name of a finding to set.")]
State = Annotated[
    str | None,
    option("STATE", "new, reduced, known, fixed, documented, flaky, ..."),
]
Link = Annotated[str, option("URL", "The issue of the finding.")]
Note = Annotated[str, option("TEXT", "A note for readers.")]


def triage(
    run: Run,
    finding: FindingName = None,
    state: State = None,
    link: Link = "",
    note: Note = "",
    json: Json = False,
) -> None:
    """List the findings of a run with their states, or set the state of one."""
    from aliasproof.campaigns.store.run_contents import STATES, read_triage, set_state

    if (finding is None) != (state is None):
        raise UserError("give a finding and --state, or neither to list all")
    with open_store(run) as store:
        if finding is not None and state is not None:
            set_state(store, finding, state, link, note)
        entries = read_triage(store)
    if json:
        write_json({"findings": [entry._asdict() for entry in entries]})
        return
    columns = ("finding", "state", "link", "note", "count")
    rows = (map(str, entry) for entry in entries)
    print_table(results(), table_of(columns, rows, texts=4, fold=True))
    for word in dict.fromkeys(entry.state for entry in entries):
        print_lines(results(), f"{word}: {STATES.get(word, 'no state that is known here')}", "dim")


@contextlib.contextmanager
def open_store(run: Path) -> Iterator[Store]:
    """The store of a run. Raises `UserError` if it is no run, has not begun, or is in use."""
    from aliasproof.campaigns.store.store import Store
    from aliasproof.campaigns.store.store_schema import NAME

    if not (run / NAME).is_file():
        raise UserError(f"{run} has no {NAME}; name the folder of a run")
    with contextlib.ExitStack() as stack:
        stack.callback(RunLock.take(run).release)
        stack.enter_context(explain_full_disk(run))
        store = Store.open(run)
        stack.callback(store.close)
        if not store.has_begun():
            raise UserError(f"{run} has not begun")
        yield store
