"""`RunReader`: what a run has found so far, read from its store while another process writes it.

It only reads, and imports nothing of torch, so that a view of a run starts immediately.
"""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from aliasproof.campaigns.store.run_lock import Holder, require_own_files
from aliasproof.campaigns.store.store_schema import DEADLY, connection_to_read, require_form
from aliasproof.campaigns.store.store_schema import NAME as STORE
from aliasproof.ir.errors import UserError, printable

# For each attempt at a shard: target, programs, programs with a violation, programs by site.
_SHARDS = """
SELECT rowid, target, json_extract(result, '$.statistics.programs'),
    json_extract(result, '$.statistics.violating'), json_extract(result, '$.statistics.fired')
    FROM shards WHERE rowid > ? ORDER BY rowid
"""
_FINDINGS = """
SELECT f.identifier, json_extract(f.finding, '$.finding.target'), coalesce(t.state, f.state),
    json_extract(f.finding, '$.finding.kind'), (SELECT count(*) FROM occurrences o
    WHERE o.finding = f.identifier) FROM findings f LEFT JOIN triage t ON t.finding = f.identifier
ORDER BY f.rowid
"""

# States of findings that no script has shown, as campaigns count them (`run_contents.STATES`).
NOT_SHOWN = ("new", "reduced", "flaky", "latent")


class Moment(NamedTuple):
    """A moment of a run: seconds since its start, counts so far, and its driver's memory in KiB."""

    elapsed: float
    programs: int
    violating: int
    findings: int
    kib: int


class WorkersThen(NamedTuple):
    """The workers at a moment: their number, and the KiB of all together and of the largest."""

    elapsed: float
    processes: int
    kib: int
    largest_kib: int


class FiredSoFar(NamedTuple):
    """How many sites of the compiler fired, and how many of them only in the last quarter."""

    fired: int
    new: int

    @classmethod
    def of(cls, firsts: Collection[int], programs: int) -> FiredSoFar:
        """`firsts` has per site how many of all `programs` had run when it first fired."""
        return cls(len(firsts), sum(4 * first >= 3 * programs for first in firsts))


class FoundSoFar(NamedTuple):
    """A finding in one row; `times` counts its failures."""

    identifier: str
    target: str
    state: str
    kind: str
    times: int


@dataclass(frozen=True, slots=True)
class RunView:
    """What a run has done and found so far. `holder` runs it, or was killed, or is empty.

    `command` resumes it. From its plan, `seconds` is for the whole run, and `limit` is in programs
    per target. `moments` and `workers` are in order of time.
    """

    folder: Path
    holder: Holder
    command: str
    seconds: float | None
    limit: int | None
    programs: dict[str, int]
    violating: dict[str, int]
    findings: list[FoundSoFar]
    moments: list[Moment]
    workers: list[WorkersThen]
    sites: FiredSoFar

    @property
    def running(self) -> bool:
        return bool(self.holder.name) and not self.holder.killed

    @property
    def confirmed(self) -> int:
        """How many findings are confirmed."""
        return sum(finding.state not in NOT_SHOWN for finding in self.findings)

    @property
    def states(self) -> dict[str, Counter[str]]:
        """By target, how many findings are in each state."""
        counts: dict[str, Counter[str]] = {name: Counter() for name in self.programs}
        for finding in self.findings:
            counts.setdefault(finding.target, Counter())[finding.state] += 1
        return counts

    def rates(self, parts: int) -> list[float]:
        """Programs per second in each of `parts` equally long parts of the run."""
        return [
            (after.programs - before.programs) / max(after.elapsed - before.elapsed, 1e-9)
            for before, after in self._parts(parts)
        ]

    def found(self, parts: int) -> list[int]:
        """How many new findings there were in each of these parts of the run."""
        return [after.findings - before.findings for before, after in self._parts(parts)]

    def _parts(self, parts: int) -> list[tuple[Moment, Moment]]:
        moments = [Moment(0.0, 0, 0, 0, 0), *self.moments]
        last, ends = moments[-1].elapsed, [moments[0]]
        for part in range(1, parts + 1):
            passed = [moment for moment in moments if moment.elapsed <= last * part / parts]
            if passed[-1] is not ends[-1]:  # a part may be shorter than the time between two rows
                ends.append(passed[-1])
        return list(itertools.pairwise(ends))


@dataclass(slots=True)
class RunReader:
    """Reads the store of a run repeatedly. Shards that were counted are not read again."""

    folder: Path
    connection: sqlite3.Connection
    _row: int = 0
    _programs: Counter[str] = field(default_factory=Counter)
    _violating: Counter[str] = field(default_factory=Counter)
    _first_fired: dict[str, int] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> RunReader:
        """Raises `UserError` if the folder has no run, or files that no run makes."""
        if folder.is_dir():  # a pipe in place of the lock would be read without end
            require_own_files(folder)
        return cls(folder, connection_to_read(folder))

    def close(self) -> None:
        self.connection.close()

    def view(self) -> RunView:
        """The current state. Raises `UserError` if the store cannot be read."""
        holder = Holder.of(self.folder)  # first: if it ends now, its last rows are read
        try:
            require_form(self.connection, self.folder / STORE)
            return self._view(holder)
        except sqlite3.Error as error:
            raise UserError(f"{self.folder / STORE} cannot be read: {error}") from error
        except (TypeError, ValueError) as error:  # anybody may have written the store
            raise UserError(f"{self.folder / STORE} is damaged: {error}") from error

    def _view(self, holder: Holder) -> RunView:
        if not self._all("SELECT 1 FROM sqlite_master"):  # its driver has not made the tables yet
            raise UserError(f"{self.folder} has not begun")
        for row, target, programs, violating, fired in self._all(_SHARDS, self._row):
            self._row = row
            for site in json.loads(fired or "{}"):
                self._first_fired.setdefault(site, self._programs.total())
            self._programs[target] += int(programs or 0)  # none if the worker ended in the attempt
            self._violating[target] += int(violating or 0)
        deadly = Counter(dict(self._all(DEADLY)))
        plans = self._all(
            "SELECT json_extract(plan, '$.targets'), json_extract(plan, '$.seconds'),"
            " json_extract(plan, '$.programs'), json_extract(plan, '$.language')"
            " FROM runs ORDER BY id"
        )
        if not plans:
            raise UserError(f"{self.folder} has not begun")
        _, seconds, limit, language = plans[0]
        targets = [name for row in plans for name in re.findall(r'"(.*?)"', row[0])]
        # A campaign gives variants to some shards, which count as targets of their own.
        ran = (*targets, *self._programs, *deadly)
        names = {printable(name): name for name in ran}
        return RunView(
            self.folder,
            holder,
            "hunt" if language == "python" else "fuzz",
            seconds,
            limit,
            {name: self._programs[raw] + deadly[raw] for name, raw in names.items()},
            {name: self._violating[raw] + deadly[raw] for name, raw in names.items()},
            [_finding_so_far(*row) for row in self._all(_FINDINGS)],
            [
                Moment(*row)
                for row in self._all(
                    "SELECT elapsed, programs, violating, findings, kib FROM throughput"
                    " ORDER BY rowid"
                )
            ],
            [WorkersThen(*row) for row in self._all("SELECT * FROM workers ORDER BY rowid")],
            FiredSoFar.of(self._first_fired.values(), self._programs.total()),
        )

    def _all(self, statement: str, *values: object) -> list[Any]:
        return self.connection.execute(statement, values).fetchall()


def _finding_so_far(identifier: str, target: str, state: str, kind: str, times: int) -> FoundSoFar:
    name, tested, now, what = (printable(str(text)) for text in (identifier, target, state, kind))
    return FoundSoFar(name, tested, now, what, int(times))
