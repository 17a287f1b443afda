"""`opened_run`: the folder and the store of a run, new or to go on with, for one campaign."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from aliasproof.campaigns.store.full_disk import explained
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.campaigns.store.run_lock import RunLock
from aliasproof.campaigns.store.store import Store
from aliasproof.campaigns.store.store_schema import NAME as STORE


class OpenedRun(NamedTuple):
    """A run that no other process may change. `notes` say how it begins, for people."""

    files: RunFolder
    store: Store
    notes: list[str]


def stored_plan(folder: Path) -> Plan | None:
    """The plan of a run that can go on; None if the folder has none. Raises `UserError`."""
    if not (folder / STORE).is_file():
        return None
    with explained(folder):
        store = Store.open(folder)
        try:
            return store.plan()
        finally:
            store.close()


@contextlib.contextmanager
def opened_run(plan: Plan, folder: Path) -> Iterator[OpenedRun]:
    """Make the run of a plan, or open it to go on; it is closed at the end of the context.

    Raises `UserError` if the folder cannot be used, if another campaign uses it, if its run is of
    another plan, or if the disk is full.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(explained(folder))
        files = RunFolder.create(folder)
        lock = RunLock.take(folder)
        stack.callback(lock.release)
        store = Store.open(folder)
        stack.callback(store.close)
        before = store.plan()
        plan.require_same_programs(before, folder)
        store.keep_plan(plan)
        files.prepare()
        notes = [f"{lock.stale} ended without a word; its lock is taken"] if lock.stale else []
        if before is not None:
            notes.append(f"going on with the run of {folder}")
        store.events.note("started", again=before is not None, stale=lock.stale)
        yield OpenedRun(files, store, notes)
