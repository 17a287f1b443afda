"""The states of findings: what the campaign saw, and what a person says of them."""

from __future__ import annotations

from typing import NamedTuple

from campaigns.store import Store
from programs.errors import UserError, did_you_mean, printable

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


def triaged(store: Store) -> list[Triaged]:
    """All findings of a store. What a person said wins over what the campaign saw."""
    times = store.occurrences()
    rows = store.all(
        "SELECT f.identifier, coalesce(t.state, f.state), coalesce(t.link, ''),"
        " coalesce(t.note, '') FROM findings f LEFT JOIN triage t ON t.finding = f.identifier"
        " ORDER BY f.rowid"
    )
    return [
        Triaged(
            printable(str(finding)),
            printable(str(state)),
            printable(str(link)),
            printable(str(note)),
            times.get(finding, 0),
        )
        for finding, state, link, note in rows
    ]


def set_state(store: Store, finding: str, state: str, link: str, note: str) -> None:
    """Keep what a person says of a finding. Raises `UserError` for unknown names."""
    names = [each.finding for each in triaged(store)]
    if finding not in names:
        raise UserError(f"no finding '{finding}' in {store.file}{did_you_mean(finding, names)}")
    if state not in STATES:
        advice = f"give one of {', '.join(STATES)}"
        raise UserError(f"--state {state}: no such state{did_you_mean(state, STATES, advice)}")
    store.write("INSERT OR REPLACE INTO triage VALUES (?, ?, ?, ?)", finding, state, link, note)
    store.events.note("triage", finding=finding, state=state, link=link)
