"""`RunContents`: all that a run has found, read from its store for people.

It only reads, also while the run goes on, and whichever torch made the run. It has findings of both
kinds of programs, with the text of their scripts and issues.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from aliasproof.campaigns.store.event_log import EventLog
from aliasproof.campaigns.store.finding import finding_from_json
from aliasproof.campaigns.store.finding_states import Triaged, triaged
from aliasproof.campaigns.store.python_finding import PythonFinding
from aliasproof.campaigns.store.run_folder import AnyFinding, RunFolder
from aliasproof.campaigns.store.run_view import Moment, RunReader
from aliasproof.campaigns.store.store import KNOWN, Store
from aliasproof.campaigns.store.store_schema import (
    MOST_BYTES,
    connection_to_read,
    require_form,
    require_texts,
)
from aliasproof.ir.errors import UserError, printable, printable_json

_FINDINGS = "SELECT identifier, finding, script, issue, confirmation FROM findings ORDER BY rowid"


class KeptCase(NamedTuple):
    """A finding of a run, what is said of it, its script and issue, and the folder for people.

    `ending` says how its script ended in a fresh process; empty if it did not run yet.
    """

    finding: AnyFinding
    said: Triaged
    script: str
    issue: str
    folder: Path
    ending: str = ""


@dataclass(frozen=True, slots=True)
class RunContents:
    """What a run did and found. `moments` are empty for a run that was merged from others.

    `targets` are those of its plans; `programs` and `violating` count by target, variants that the
    campaign chose among them. `known` counts the violations of known bugs.
    """

    folder: Path
    command: str
    torches: tuple[str, ...]
    seeds: tuple[int, ...]
    seconds: float
    running: bool
    programs: Mapping[str, int]
    violating: Mapping[str, int]
    cases: tuple[KeptCase, ...] = ()
    known: Mapping[str, int] = field(default_factory=dict)
    moments: tuple[Moment, ...] = ()
    targets: tuple[str, ...] = ()


def read_contents(folder: Path) -> RunContents:
    """Read a run. Raises `UserError` if the folder is no run, has not begun, or is damaged."""
    reader = RunReader.open(folder)
    with contextlib.closing(reader), _store_to_read(folder) as store:
        view = reader.view()
        try:
            cases = tuple(_cases(store))
            plans = store.all("SELECT plan, torch, elapsed FROM runs ORDER BY id")
            read = [store.json_values(plan) for plan, _, _ in plans]
            seeds = [plan.get("seed", 0) for plan in read]
            targets = (printable(str(name)) for plan in read for name in plan["targets"])
            known = Counter(
                {
                    printable(name.removeprefix(KNOWN)): times
                    for name, times in store.occurrences().items()
                    if name.startswith(KNOWN)
                }
            )
            known.update(it.finding.known or "" for it in cases if _is_known_to_hunt(it.finding))
            return RunContents(
                folder,
                view.command,
                tuple(dict.fromkeys(printable(str(torch)) for _, torch, _ in plans)),
                tuple(dict.fromkeys(int(seed) for seed in seeds)),
                sum(float(elapsed) for _, _, elapsed in plans),
                view.running,
                view.programs,
                view.violating,
                cases,
                dict(known.most_common()),
                tuple(view.moments),
                tuple(dict.fromkeys(targets)),
            )
        except sqlite3.Error as error:
            raise UserError(f"{store.file} cannot be read: {error}") from error


def _is_known_to_hunt(finding: AnyFinding) -> bool:
    """Whether it is a known bug that no occurrence counts."""
    return isinstance(finding, PythonFinding) and bool(finding.known)


@contextlib.contextmanager
def _store_to_read(folder: Path) -> Iterator[Store]:
    connection = connection_to_read(folder)
    with contextlib.closing(connection):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
        connection.execute("PRAGMA trusted_schema = OFF")
        try:
            require_form(connection, folder)
        except sqlite3.Error as error:
            raise UserError(f"{folder} cannot be read: {error}") from error
        nowhere = EventLog(os.open(os.devnull, os.O_WRONLY))
        with contextlib.closing(nowhere):
            yield Store(folder, nowhere, connection)


def _cases(store: Store) -> Iterator[KeptCase]:
    said = {each.finding: each for each in triaged(store)}
    for name, text, script, issue, confirmation in store.all(_FINDINGS):
        store.checked(require_texts, script, issue)
        finding = store.checked(_finding, store.json_values(text), str(store.file))
        shown = None if confirmation is None else store.json_values(confirmation)
        folder = store.checked(_folder, store.file, str(name), finding, shown)
        ending = "" if shown is None else printable(str(shown.get("ending", "")))
        state = said[printable(str(name))]
        yield KeptCase(finding, state, printable(script), printable(issue or ""), folder, ending)


def _finding(data: Any, where: str) -> AnyFinding:
    if "program" in data:
        return finding_from_json(data, where)
    return PythonFinding.of_json(printable_json(data["finding"]))


def _folder(
    run: Path, name: str, finding: AnyFinding, confirmation: Mapping[str, Any] | None
) -> Path:
    files = RunFolder(run)
    if getattr(finding, "latent", False):
        return files.suspicion_folder(name)
    confirmed = confirmation is not None and confirmation.get("shown")
    return files.finding_folder(name) if confirmed else files.unconfirmed_folder(name)
