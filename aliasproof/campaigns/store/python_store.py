"""`PythonStore`: the results of a hunt, in the tables that every run has.

A row of `shards` is a call that judges programs, one of `failures` a program that fails, with the
result of its reduction. So `watch`, `triage`, `replay` and `merge` need no second mechanism.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from aliasproof.campaigns.store.finding import PythonFinding
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.store import Store
from aliasproof.campaigns.store.store_schema import require_texts
from aliasproof.ir.errors import UserError
from aliasproof.judge.python_trial import Cause

_FAILURES = "SELECT task, number, target, oracle, kind, deaths FROM failures"
_FINDINGS = "SELECT finding, script, issue, confirmation FROM findings "


@dataclass(slots=True)
class JudgedPrograms:
    """What became of the programs of one call: counts, causes by number, and mistakes in words.

    With `split`, the call ended its process, and each of its programs has a call of its own.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    failing: list[tuple[int, Cause]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    split: bool = False


class ReducedProgram(NamedTuple):
    """What became of a reduction; no finding if the program does not fail any more.

    `documented` says why it is no violation: the documentation allows what it shows. `mistake` is
    the message of an error of ours. `ended` says how the workers ended that tried.
    """

    finding: PythonFinding | None = None
    documented: str = ""
    mistake: str = ""
    ended: str = ""


class FailingPython(NamedTuple):
    """A program that fails, by its number, and the task that judged it.

    `deaths` says how workers ended that reduced it.
    """

    task: str
    number: int
    cause: Cause
    deaths: tuple[str, ...] = ()


def task_of(plan: Plan, numbers: range) -> str:
    """The name of a call that judges these programs: equal ones have equal results."""
    (target,) = plan.targets
    asked = {"target": target, "seed": plan.seed, "past_known": plan.past_known}
    return json.dumps({"python": [numbers.start, numbers.stop], **asked})


@dataclass(frozen=True, slots=True)
class PythonStore:
    """Reads and writes what a hunt found. Each method that writes is a transaction."""

    store: Store

    # --- programs ---

    def judged(self, task: str) -> JudgedPrograms | None:
        """The result of a call, as it was kept."""
        stored = self.store.result(task)
        if stored is None:
            return None
        judged = self.store.checked(_judged, stored)
        judged.failing = [(it.number, it.cause) for it in self.failing(task)]
        return judged

    def keep_judged(self, task: str, plan: Plan, judged: JudgedPrograms) -> None:
        """Keep the result of a call with the programs that fail."""
        (target,) = plan.targets
        counts = {"programs": judged.outcomes.total(), "violating": judged.outcomes["violated"]}
        said = {"notes": judged.notes, "split": judged.split}
        result = {"statistics": counts, "outcomes": judged.outcomes, **said}
        with self.store.transaction():
            text = json.dumps(result)
            self.store.write(
                "INSERT INTO shards VALUES (?, ?, ?, ?)", task, target, plan.seed, text
            )
            for number, cause in judged.failing:
                failure = json.dumps({"seed": plan.seed, "number": number, "cause": cause})
                self.store.write(
                    "INSERT INTO failures (task, number, target, oracle, kind, failure)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    *(task, number, *cause, failure),
                )
        for number, (at_fault, oracle, kind) in judged.failing:
            it = {"target": at_fault, "oracle": oracle, "kind": kind, "number": number}
            self.store.events.note("failure", **it)

    def failing(self, task: str) -> list[FailingPython]:
        """The programs of a call that fail, in order."""
        rows = self.store.all(f"{_FAILURES} WHERE task = ? ORDER BY number", task)
        return [self.store.checked(_failing, *row) for row in rows]

    def all_judged(self) -> Iterator[JudgedPrograms]:
        """The results of all calls, without the programs that fail."""
        for (text,) in self.store.all("SELECT result FROM shards ORDER BY rowid"):
            yield self.store.checked(_judged, self.store.json_values(text))

    # --- reductions ---

    def reduced(self, failing: FailingPython) -> ReducedProgram | None:
        """The result of a reduction, as it was kept."""
        ((text,),) = self.store.all(
            "SELECT reduction FROM failures WHERE task = ? AND number = ?",
            failing.task,
            failing.number,
        )
        return None if text is None else self.store.checked(_reduced, self.store.json_values(text))

    def all_reduced(self) -> Iterator[tuple[int, ReducedProgram]]:
        """The results of all reductions, each with the number of its program."""
        for row in self.store.all(_FAILURES):
            failing = self.store.checked(_failing, *row)
            reduced = self.reduced(failing)
            if reduced is not None:
                yield failing.number, reduced

    def keep_reduced(self, failing: FailingPython, reduced: ReducedProgram) -> None:
        """Keep the result of a reduction."""
        finding = reduced.finding and reduced.finding.to_json()
        self._update(failing, "reduction", reduced._asdict() | {"finding": finding})

    def keep_death(self, failing: FailingPython, death: str) -> FailingPython:
        """Keep that a worker ended while it reduced a program."""
        failing = failing._replace(deaths=(*failing.deaths, death))
        self._update(failing, "deaths", failing.deaths)
        self.store.events.note("a worker ended in a reduction", death=death, number=failing.number)
        return failing

    def _update(self, failing: FailingPython, column: str, value: object) -> None:
        self.store.write(
            f"UPDATE failures SET {column} = ? WHERE task = ? AND number = ?",  # noqa: S608
            *(json.dumps(value), *failing[:2]),
        )

    # --- findings ---

    def keep_finding(self, finding: PythonFinding, script: str, failing: FailingPython) -> None:
        """Keep that a program shows a finding, and the finding, if it is not there yet."""
        name, text = finding.identifier, json.dumps({"finding": finding.to_json()})
        known = self.store.all("SELECT 1 FROM findings WHERE identifier = ?", name)
        with self.store.transaction():
            self.store.write(
                "INSERT OR IGNORE INTO findings VALUES (?, 'reduced', ?, ?, NULL, NULL, NULL)",
                *(name, text, script),
            )
            self.keep_occurrence(name, failing)
        if not known:
            self.store.events.note("reduced", finding=name, lines=finding.program.lines)

    def keep_occurrence(self, identifier: str, failing: FailingPython) -> None:
        """Keep that a program shows a finding."""
        self.store.keep_occurrence(identifier, failing.task, failing.number)

    def keep_confirmation(
        self, finding: PythonFinding, confirmation: Mapping[str, object], issue: str | None
    ) -> None:
        """Keep what the script of a finding showed, and the issue that tells it."""
        shown = "known" if finding.known else "reproduced"
        state, name = shown if finding.confirmed else "flaky", finding.identifier
        with self.store.transaction():
            self.store.write("UPDATE findings SET issue = ? WHERE identifier = ?", issue, name)
            self.store.keep_confirmation(name, state, confirmation)

    def finding(self, identifier: str) -> StoredFinding | None:
        """The finding of that name, if it is there."""
        return next(self._findings("WHERE identifier = ?", identifier), None)

    def findings(self) -> Iterator[StoredFinding]:
        """All findings, in the order in which they were found."""
        return self._findings("ORDER BY rowid")

    def _findings(self, which: str, *values: object) -> Iterator[StoredFinding]:
        rows = self.store.all(_FINDINGS + which, *values)
        for text, script, issue, shown in rows:
            data = self.store.json_values(text)
            confirmation = None if shown is None else self.store.json_values(shown)
            yield self.store.checked(_stored_finding, data, script, issue, confirmation)


class StoredFinding(NamedTuple):
    """A finding with its script and issue; it is not `confirmed` or refuted yet if that is None."""

    finding: PythonFinding
    script: str
    issue: str | None


def _judged(data: Mapping[str, Any]) -> JudgedPrograms:
    counts = Counter({str(name): int(count) for name, count in data["outcomes"].items()})
    return JudgedPrograms(counts, [], [str(note) for note in data["notes"]], bool(data["split"]))


def _failing(
    task: str, number: object, target: object, oracle: object, kind: object, deaths: str
) -> FailingPython:
    ended = tuple(map(str, json.loads(deaths)))
    return FailingPython(task, int(str(number)), Cause(str(target), str(oracle), str(kind)), ended)


def _reduced(data: Mapping[str, Any]) -> ReducedProgram:
    finding = None if data["finding"] is None else _finding(data["finding"])
    return ReducedProgram(finding, *(str(data[name]) for name in ReducedProgram._fields[1:]))


def _stored_finding(
    data: Mapping[str, Any], script: str, issue: str | None, confirmation: Mapping[str, Any] | None
) -> StoredFinding:
    require_texts(script, issue)
    shown = None if confirmation is None else bool(confirmation["shown"])
    return StoredFinding(replace(_finding(data["finding"]), confirmed=shown), script, issue)


def _finding(data: object) -> PythonFinding:
    try:
        return PythonFinding.of_json(data)
    except UserError as reason:  # which does not say where it was
        raise ValueError(str(reason)) from reason
