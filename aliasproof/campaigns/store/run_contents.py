"""`RunContents`: all that a run has found, read from its store for people.

It only reads, also while the run continues, and whichever version of torch made the run. It has
findings in both languages, with the text of their scripts and issues.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aliasproof.campaigns.failure.finding import AnyFinding
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.campaigns.store.run_view import RunReader, RunView
from aliasproof.campaigns.store.store import EventLog, Store
from aliasproof.ir.errors import UserError, did_you_mean, printable

# --- finding states -------------------------------------------------------------------------------
#
# The states of findings: from what the campaign saw, what a person said, and what replays showed.
# The latest wins. What a person says overrides earlier replays. A replay in a newer torch shows
# that a finding is fixed, or that a fixed one has regressed; so does a campaign in which it shows
# again.


STATES = {
    "new": "kept as it was drawn, since its reduction ends workers",
    "reduced": "reduced, and its reproducer did not run yet",
    "reproduced": "its reproducer shows it",
    "known": "has an issue",
    "fixed": "its reproducer shows it no more",
    "regressed": "was fixed, and shows again",
    "flaky": "its reproducer did not show it",
    "documented": "is what the target promises",
    "latent": "graphs were not shown equal, and no values that were tried differ",
}


class Triaged(NamedTuple):
    """A finding, its state, the link of its issue, a note, and the number of its failures."""

    finding: str
    state: str
    link: str
    note: str
    times: int


class Replay(NamedTuple):
    """Whether the reproducer of a finding showed it in a version of torch."""

    torch: str
    shown: bool


def _version(torch: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", torch.partition("+")[0])))


@dataclass(frozen=True, slots=True)
class History:
    """The findings that a person called fixed, and the replays of each, the newest torch last."""

    called_fixed: frozenset[str]
    replays: Mapping[str, Sequence[Replay]]

    @classmethod
    def of(cls, store: Store) -> History:
        replays: defaultdict[str, list[Replay]] = defaultdict(list)
        for finding, torch, shown in store.all("SELECT finding, torch, shown FROM replays"):
            replays[finding].append(Replay(torch, bool(shown)))
        for its_replays in replays.values():
            its_replays.sort(key=lambda replay: _version(replay.torch))
        said = store.all("SELECT finding FROM triage WHERE state = 'fixed'")
        return cls(frozenset(finding for (finding,) in said), replays)

    def was_fixed(self, finding: str, torch: str) -> bool:
        """Whether a finding was fixed before this version of torch, which should then be right."""
        return finding in self.called_fixed or any(
            not replay.shown and _version(replay.torch) < _version(torch)
            for replay in self.replays.get(finding, ())
        )

    def state(self, finding: str, said: str, made_with: set[str]) -> tuple[str, str]:
        """The state after all replays, and in words what they showed.

        `said` is the state without replays, `made_with` the versions of torch that it was found
        with.
        """
        replays = self.replays.get(finding, ())
        if not replays:
            return said, ""
        newest = replays[-1]
        if not newest.shown:
            # If the reproducer shows nothing in the version it was found with, it is flaky.
            flaky = newest.torch in made_with
            return "flaky" if flaky else "fixed", f"gone in torch {newest.torch}"
        if self.was_fixed(finding, newest.torch):
            return "regressed", f"shows again in torch {newest.torch}"
        return said, ""


def read_triage(store: Store) -> list[Triaged]:
    """All findings of a store, each with its latest state."""
    times, history = store.occurrences(), History.of(store)
    made_with = {torch for (torch,) in store.all("SELECT torch FROM runs")}
    rows = store.all(
        "SELECT f.identifier, coalesce(t.state, f.state), coalesce(t.link, ''),"
        " coalesce(t.note, '') FROM findings f LEFT JOIN triage t ON t.finding = f.identifier"
        " ORDER BY f.rowid"
    )
    findings = []
    for finding, said, link, note in rows:
        state, seen = history.state(finding, said, made_with)
        notes = "; ".join(filter(None, (note, seen)))
        name, state, link, notes = (printable(str(x)) for x in (finding, state, link, notes))
        findings.append(Triaged(name, state, link, notes, times.get(finding, 0)))
    return findings


def keep_replay(store: Store, finding: str, torch: str, ending: str, *, shown: bool) -> None:
    """Keep what the reproducer of a finding did in a version of torch.

    Ignored if it neither shows the finding nor exits 0, since that says nothing about it.
    """
    if shown or ending == "exits 0":
        store.write("INSERT OR REPLACE INTO replays VALUES (?, ?, ?)", finding, torch, shown)
        store.events.note("replayed", finding=finding, torch=torch, shown=shown)


def set_state(store: Store, finding: str, state: str, link: str, note: str) -> None:
    """Keep what a person says about a finding. Raises `UserError` for unknown names."""
    names = [seen.finding for seen in read_triage(store)]
    if finding not in names:
        raise UserError(f"no finding '{finding}' in {store.file}{did_you_mean(finding, names)}")
    if state not in STATES:
        advice = f"give one of {', '.join(STATES)}"
        raise UserError(f"--state {state}: no such state{did_you_mean(state, STATES, advice)}")
    store.write("INSERT OR REPLACE INTO triage VALUES (?, ?, ?, ?)", finding, state, link, note)
    store.write("DELETE FROM replays WHERE finding = ?", finding)
    store.events.note("triage", finding=finding, state=state, link=link)


class KeptCase(NamedTuple):
    """A finding of a run, its state, its script and issue, and its folder for people.

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
    """What a run did and found. The `view` has no moments if the run was merged from others.

    `targets` are those of its plans; the `view` counts by target, including variants that the
    campaign chose. `known` counts the violations of known bugs.
    """

    view: RunView
    torches: tuple[str, ...]
    seeds: tuple[int, ...]
    seconds: float
    cases: tuple[KeptCase, ...]
    known: Mapping[str, int]
    targets: tuple[str, ...]


def read_contents(folder: Path) -> RunContents:
    """Read a run. Raises `UserError` if the folder has no run, has not begun, or is damaged."""
    with contextlib.closing(RunReader.open(folder)) as reader:
        view = reader.view()
        nowhere = EventLog(-1)  # the store is only read
        store = Store(folder, nowhere, reader.connection)
        try:
            cases = tuple(_cases(store))
            plans = store.all("SELECT plan, torch, elapsed FROM runs ORDER BY id")
            read = [store.json_values(plan) for plan, _, _ in plans]
            seeds = [plan.get("seed", 0) for plan in read]
            targets = (printable(str(name)) for plan in read for name in plan["targets"])
            return RunContents(
                view,
                tuple(dict.fromkeys(printable(str(torch)) for _, torch, _ in plans)),
                tuple(dict.fromkeys(int(seed) for seed in seeds)),
                sum(float(elapsed) for _, _, elapsed in plans),
                cases,
                {printable(name): times for name, times in store.known().most_common()},
                tuple(dict.fromkeys(targets)),
            )
        except sqlite3.Error as error:
            raise UserError(f"{store.file} cannot be read: {error}") from error


def _cases(store: Store) -> Iterator[KeptCase]:
    said = {each.finding: each for each in read_triage(store)}
    for kept in store.findings():
        name, script, issue = kept.finding.identifier, printable(kept.script), kept.issue or ""
        folder = RunFolder(store.file).path(store.checked(lambda it: it.kind, kept), name)
        ending = printable(str((kept.confirmation or {}).get("ending", "")))
        state = store.checked(said.__getitem__, printable(name))
        yield KeptCase(kept.finding, state, script, printable(issue), folder, ending)
