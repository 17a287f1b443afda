"""The states of findings: what the campaign saw, what a person says, and what replays show.

What is said last wins. A person's word ends what replays showed before. A replay in a newer torch
shows that a finding is fixed, or that one that was fixed has regressed; so does a campaign in which
it shows again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aliasproof.campaigns.store.store import Store
from aliasproof.ir.errors import UserError, did_you_mean, printable

STATES = {
    "new": "kept as it was drawn, since its reduction ends workers",
    "reduced": "reduced, and its reproducer did not run yet",
    "reproduced": "its reproducer shows it",
    "known": "has an issue",
    "fixed": "is gone in a newer torch",
    "regressed": "was fixed, and shows again",
    "flaky": "its reproducer did not show it",
    "documented": "is what the target promises",
    "latent": "values agree, and the graph is wrong for others",
}


class Triaged(NamedTuple):
    """A finding, its state, the link of its issue, a note, and how many failures it has."""

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
    """The findings that a person calls fixed, and the replays of each, the newest torch last."""

    called_fixed: frozenset[str]
    replays: Mapping[str, Sequence[Replay]]

    @classmethod
    def of(cls, store: Store) -> History:
        """The history of a store."""
        replays: defaultdict[str, list[Replay]] = defaultdict(list)
        for finding, torch, shown in store.all("SELECT finding, torch, shown FROM replays"):
            replays[finding].append(Replay(torch, bool(shown)))
        for its_replays in replays.values():
            its_replays.sort(key=lambda replay: _version(replay.torch))
        said = store.all("SELECT finding FROM triage WHERE state = 'fixed'")
        return cls(frozenset(finding for (finding,) in said), replays)

    def was_fixed(self, finding: str, torch: str) -> bool:
        """Whether a finding was fixed before this version of torch, which then should be right."""
        return finding in self.called_fixed or any(
            not replay.shown and _version(replay.torch) < _version(torch)
            for replay in self.replays.get(finding, ())
        )

    def state(self, finding: str, said: str, made_with: set[str]) -> tuple[str, str]:
        """The state after all replays, and what they showed in words.

        `said` is the state without them, `made_with` are the torches in which it was found.
        """
        replays = self.replays.get(finding, ())
        if not replays:
            return said, ""
        newest = replays[-1]
        if not newest.shown:
            # Where it was found, a reproducer that shows nothing depends on chance.
            flaky = newest.torch in made_with
            return "flaky" if flaky else "fixed", f"gone in torch {newest.torch}"
        if self.was_fixed(finding, newest.torch):
            return "regressed", f"shows again in torch {newest.torch}"
        return said, ""


def triaged(store: Store) -> list[Triaged]:
    """All findings of a store, with what was said of each last."""
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

    One that neither shows the finding nor exits 0 tells nothing about it.
    """
    if shown or ending == "exits 0":
        store.write("INSERT OR REPLACE INTO replays VALUES (?, ?, ?)", finding, torch, shown)
        store.events.note("replayed", finding=finding, torch=torch, shown=shown)


def set_state(store: Store, finding: str, state: str, link: str, note: str) -> None:
    """Keep what a person says of a finding. Raises `UserError` for unknown names."""
    names = [seen.finding for seen in triaged(store)]
    if finding not in names:
        raise UserError(f"no finding '{finding}' in {store.file}{did_you_mean(finding, names)}")
    if state not in STATES:
        advice = f"give one of {', '.join(STATES)}"
        raise UserError(f"--state {state}: no such state{did_you_mean(state, STATES, advice)}")
    store.write("INSERT OR REPLACE INTO triage VALUES (?, ?, ?, ?)", finding, state, link, note)
    store.write("DELETE FROM replays WHERE finding = ?", finding)
    store.events.note("triage", finding=finding, state=state, link=link)
