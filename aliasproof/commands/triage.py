"""The command `triage`: lists the states of findings, and sets them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from aliasproof.campaigns.publish.replaying import NOT_RUN, REGRESSED, STILL, Replayed
from aliasproof.campaigns.run.full_disk import explained
from aliasproof.campaigns.store.finding_states import (
    STATES,
    History,
    Triaged,
    keep_replay,
    set_state,
    triaged,
)
from aliasproof.campaigns.store.run_lock import RunLock
from aliasproof.campaigns.store.store import NAME, Store
from aliasproof.programs.errors import UserError
from aliasproof.reports.console import new_table, print_lines, print_table, results, write_json


def triage_run(
    run: Path, finding: str | None, state: str | None, words: tuple[str, str], *, as_json: bool
) -> None:
    """Set the state of a finding, if one is given, and list all. `words` are link and note."""
    if (finding is None) != (state is None):
        raise UserError("give a finding and --state, or neither to list all")
    with _opened(run) as store:
        if finding is not None and state is not None:
            set_state(store, finding, state, *words)
        found = triaged(store)
    if as_json:
        write_json({"findings": [each._asdict() for each in found]})
    else:
        _print(found)


def history_of(run: Path) -> History:
    """What was said of the findings of a run. Raises `UserError` if it is no run, or in use."""
    with _opened(run) as store:
        return History.of(store)


def keep_replays(run: Path, found: Sequence[Replayed]) -> None:
    """Keep what replays showed: the states of findings follow from them."""
    with _opened(run) as store:
        for each in found:
            if each.word == NOT_RUN:
                continue
            shown = each.word in (STILL, REGRESSED)
            keep_replay(store, each.finding, each.torch, each.ending, shown=shown)


@contextlib.contextmanager
def _opened(run: Path) -> Iterator[Store]:
    if not (run / NAME).is_file():
        raise UserError(f"{run} has no {NAME}; name the folder of a run")
    with contextlib.ExitStack() as stack:
        stack.callback(RunLock.take(run).release)
        stack.enter_context(explained(run))
        store = Store.open(run)
        stack.callback(store.close)
        yield store


def _print(found: list[Triaged]) -> None:
    table = new_table()
    for name in ("finding", "state", "link", "note"):
        table.add_column(name, overflow="fold")
    table.add_column("count", justify="right", no_wrap=True)
    for finding, state, link, note, times in found:
        table.add_row(finding, state, link, note, str(times))
    print_table(results(), table)
    for state in dict.fromkeys(each.state for each in found):
        print_lines(
            results(), f"{state}: {STATES.get(state, 'no state that is known here')}", "dim"
        )
