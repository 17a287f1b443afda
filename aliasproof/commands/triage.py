"""The command `triage`: lists the states of findings, and sets them."""

from __future__ import annotations

from typing import Annotated

from aliasproof.commands.options import Json, Run, argument, option
from aliasproof.ir.errors import UserError
from aliasproof.reports.console import print_lines, print_table, results, table_of, write_json

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
    from aliasproof.campaigns.store.run_folder import open_store

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
