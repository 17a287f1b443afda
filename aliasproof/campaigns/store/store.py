"""`Store`: all that a run has found, in one SQLite file.

The store is authoritative; `run.json` and the folders of findings are views of it. What is written
here is durable at once: each method is a transaction, and SQLite waits for the disk.

A campaign is a fold over the results of *tasks*: attempts at shards, and reductions. The store has
the result of each task by its description, so a resumed campaign takes stored results instead of
running the tasks, and reaches the same state (see `campaigns.run.tasks`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from aliasproof.campaigns.failure.codec import decoded, encoded
from aliasproof.campaigns.failure.failure import AnyFailure, Failure
from aliasproof.campaigns.failure.finding import (
    AnyFinding,
    finding_from_json,
    finding_to_json,
)
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.run_lock import FINDINGS, SUSPICIONS, UNCONFIRMED
from aliasproof.campaigns.store.store_schema import (
    DAMAGE,
    NAME,
    SCHEMA,
    TABLES,
    VERSION,
    require_form,
    require_texts,
)
from aliasproof.ir.errors import UserError

T = TypeVar("T")

EVENTS = "events.jsonl"
_FINDINGS = "SELECT finding, script, issue, confirmation, torch_compile FROM findings "

KNOWN = "known-"  # prefix of the identifiers of known bugs


class KeptFailure(NamedTuple):
    """A failure in the store. `number` is its index within its task.

    `deaths` says how workers ended that reduced it.
    """

    id: int
    task: str
    number: int
    failure: AnyFailure
    deaths: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The target that it was drawn for, which may attribute it to a layer below."""
        return str(json.loads(self.task)["target"])


class KeptFinding(NamedTuple):
    """A finding in the store, and its results so far."""

    finding: AnyFinding
    script: str
    issue: str | None
    confirmation: dict[str, Any] | None
    torch_compile: dict[str, str] | None

    @property
    def kind(self) -> str:
        """The kind of its folder."""
        if self.finding.latent:
            return SUSPICIONS
        return FINDINGS if (self.confirmation or {}).get("shown") else UNCONFIRMED


@dataclass(slots=True)
class EventLog:
    """Appends to `events.jsonl`. Each line is written at once, so that a reader sees it whole."""

    _descriptor: int

    @classmethod
    def open(cls, folder: Path) -> EventLog:
        """Open the log of a run folder to append to it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        log = cls(os.open(folder / EVENTS, flags, 0o644))
        size = os.fstat(log._descriptor).st_size
        # A full disk can leave an incomplete line.
        if size and os.pread(log._descriptor, 1, size - 1) != b"\n":
            os.write(log._descriptor, b"\n")
        return log

    def note(self, event: str, **details: object) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, "event": event, **details})
        os.write(self._descriptor, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


@dataclass(slots=True)
class Store:
    """The store of one run folder, opened by one process that writes."""

    file: Path
    events: EventLog
    _connection: sqlite3.Connection

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open or create the store of a folder. Raises `UserError` if it has another form."""
        connection = sqlite3.connect(folder / NAME, isolation_level=None)
        require_form(connection, folder / NAME)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT")
        return cls(folder / NAME, EventLog.open(folder), connection)

    def close(self) -> None:
        """Close the file, after the contents of the write-ahead log are moved into it."""
        self._connection.close()
        self.events.close()

    # --- the run ---

    def has_begun(self) -> bool:
        """Whether a campaign, or `merge`, has stored a plan."""
        return self._one("SELECT 1 FROM runs LIMIT 1") is not None

    def is_a_run(self) -> bool:
        """Whether a campaign made this store, rather than `merge`."""
        return self._one("SELECT 1 FROM runs WHERE merged = 0") is not None

    def copy(self, other: Path, statements: str) -> None:
        """Copy rows of another store, which the statements call `other`, in one transaction."""
        self.write("ATTACH ? AS other", str(other))
        try:
            with self._connection:
                self._connection.executescript(f"BEGIN; {statements}")
        finally:
            self._connection.execute("DETACH other")

    def plan(self, *, also_merged: bool = False) -> Plan | None:
        """The plan of the run; None if the store is new.

        Raises `UserError` if another torch made it: its programs may behave differently in this
        one.
        """
        row = self._one("SELECT plan, torch, merged FROM runs ORDER BY id LIMIT 1")
        if row is None:
            return None
        plan, version, merged = row
        if merged and not also_merged:
            raise UserError(
                f"{self.file.parent} was merged from other runs; go on with one of them"
            )
        if version != torch.__version__:
            raise UserError(
                f"{self.file.parent} was made with torch {version}, and this is torch"
                f" {torch.__version__}; use the former, or name another folder"
            )
        return self.checked(Plan.from_json, self.json_values(plan))

    def keep_plan(self, plan: Plan) -> None:
        """Keep the plan of this run, or the one that resumes it."""
        text = json.dumps(encoded(plan))
        if self._one("SELECT id FROM runs") is None:
            version = str(torch.__version__)
            self.write("INSERT INTO runs VALUES (NULL, ?, ?, 0, '{}', 0)", text, version)
        else:
            self.write("UPDATE runs SET plan = ?", text)

    def elapsed(self) -> tuple[float, dict[str, float]]:
        """The seconds of the run so far, and the processor seconds by part."""
        rows = self.all("SELECT elapsed, spent FROM runs")
        spent: Counter[str] = Counter()
        for _, parts in rows:
            spent.update(self.json_values(parts))
        return sum(float(seconds) for seconds, _ in rows), dict(spent)

    def note_progress(
        self,
        elapsed: float,
        spent: dict[str, float],
        counts: tuple[int, int, int],
        kib: int,
        workers: tuple[int, int, int],
    ) -> None:
        """Keep the progress of the run: programs, those with a violation, findings; and its memory.

        `workers` are their number, and the KiB of all together and of the largest.
        """
        with self.transaction():
            self.write("UPDATE runs SET elapsed = ?, spent = ?", elapsed, json.dumps(spent))
            self.write("INSERT INTO throughput VALUES (1, ?, ?, ?, ?, ?)", elapsed, *counts, kib)
            self.write("INSERT INTO workers VALUES (?, ?, ?, ?)", elapsed, *workers)

    # --- shards and their failures ---

    def result(self, task: str) -> dict[str, Any] | None:
        """The stored result of an attempt at a shard; None if it has not run."""
        row = self._one("SELECT result FROM shards WHERE task = ?", task)
        return None if row is None else self.json_values(row[0])

    def failures(self, task: str) -> list[KeptFailure]:
        """The failures of an attempt at a shard, in order."""
        rows = self.all(
            "SELECT id, number, failure, deaths FROM failures WHERE task = ? ORDER BY number", task
        )
        return [
            KeptFailure(
                id_,
                task,
                number,
                self.checked(decoded, Failure, self.json_values(text)),
                self.checked(tuple, self.json_values(deaths)),
            )
            for id_, number, text, deaths in rows
        ]

    def keep_result(
        self,
        task: str,
        shard: tuple[str, int],
        result: Mapping[str, object],
        failures: Sequence[AnyFailure] = (),
    ) -> None:
        """Keep the result of an attempt at a shard (its target and seed) with its failures."""
        with self.transaction():
            self.write("INSERT INTO shards VALUES (?, ?, ?, ?)", task, *shard, json.dumps(result))
            for number, failure in enumerate(failures):
                self._keep_failure(task, number, failure)
                if failure.known is not None:
                    self.keep_occurrence(f"{KNOWN}{failure.known}", task, number)
        for failure in failures:
            self._note_failure(failure)

    def keep_failure(self, task: str, failure: AnyFailure) -> KeptFailure:
        """Keep, once, the failure that ended the worker of a task."""
        number = -1  # failures of the task itself count from 0
        if not any(kept.number == number for kept in self.failures(task)):
            self._keep_failure(task, number, failure)
            self._note_failure(failure)
        return self.failures(task)[0]

    def _keep_failure(self, task: str, number: int, failure: AnyFailure) -> None:
        symptom = failure.symptom
        self.write(
            "INSERT INTO failures (task, number, target, oracle, kind, failure)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            task,
            number,
            symptom.target,
            symptom.oracle,
            symptom.kind,
            json.dumps(encoded(failure)),
        )

    def _note_failure(self, failure: AnyFailure) -> None:
        symptom = failure.symptom
        self.events.note(
            "failure",
            target=symptom.target,
            oracle=symptom.oracle,
            kind=symptom.kind,
            seed=failure.seed,
            known=failure.known,
        )

    # --- reductions ---

    def reduction(self, kept: KeptFailure) -> dict[str, Any] | None:
        row = self._one("SELECT reduction FROM failures WHERE id = ?", kept.id)
        return None if row is None or row[0] is None else self.json_values(row[0])

    def keep_reduction(self, kept: KeptFailure, result: Mapping[str, object]) -> None:
        self.write("UPDATE failures SET reduction = ? WHERE id = ?", json.dumps(result), kept.id)

    def keep_death(self, kept: KeptFailure, death: str) -> KeptFailure:
        """Keep that a worker ended while it reduced a failure."""
        deaths = (*kept.deaths, death)
        self.write("UPDATE failures SET deaths = ? WHERE id = ?", json.dumps(deaths), kept.id)
        self.events.note(
            "a worker ended in a reduction", death=death, kind=kept.failure.symptom.kind
        )
        return kept._replace(deaths=deaths)

    # --- findings ---

    def keep_finding(self, finding: AnyFinding, script: str, state: str) -> None:
        """Keep a finding that is not in the store yet."""
        if self.finding(finding.identifier) is None:
            self.write(
                "INSERT INTO findings VALUES (?, ?, ?, ?, NULL, NULL, NULL)",
                finding.identifier,
                state,
                json.dumps(finding_to_json(finding)),
                script,
            )
            self.events.note("reduced", finding=finding.identifier, size=finding.size)

    def remove_finding(self, identifier: str) -> None:
        """Remove a finding, but not its occurrences: it will get other evidence."""
        self.write("DELETE FROM findings WHERE identifier = ?", identifier)

    def keep_occurrence(self, identifier: str, task: str, number: int) -> None:
        """Keep that the failure with this number of a task is an occurrence of a finding."""
        new = self._connection.execute(
            "INSERT OR IGNORE INTO occurrences VALUES (?, ?, ?)", (identifier, task, number)
        )
        if new.rowcount:  # unless the row is from before the campaign was resumed
            self.write(
                "UPDATE triage SET state = 'regressed', note = note || ' (shows again)'"
                " WHERE finding = ? AND state = 'fixed'",
                identifier,
            )

    def occurrences(self) -> dict[str, int]:
        """How many failures each finding has."""
        return dict(self.all("SELECT finding, count(*) FROM occurrences GROUP BY finding"))

    def known(self) -> Counter[str]:
        """How many failures are each known bug."""
        counts = self.occurrences().items()
        return Counter(
            {name.removeprefix(KNOWN): times for name, times in counts if name.startswith(KNOWN)}
        )

    def keep_script(self, identifier: str, script: str) -> None:
        """Keep another script for a finding that is not confirmed."""
        self.write("UPDATE findings SET script = ? WHERE identifier = ?", script, identifier)

    def keep_confirmation(
        self, identifier: str, state: str, confirmation: Mapping[str, object]
    ) -> None:
        """Keep what the reproducer of a finding showed."""
        self.write(
            "UPDATE findings SET state = ?, confirmation = ? WHERE identifier = ?",
            state,
            json.dumps(confirmation),
            identifier,
        )
        self.events.note("confirmed", finding=identifier, state=state)

    def keep_torch_compile(
        self, finding: AnyFinding, answers: dict[str, str], script: str, issue: str | None
    ) -> None:
        """Keep what `torch.compile` does with a finding, with the script and issue that show it."""
        self.write(
            "UPDATE findings SET finding = ?, torch_compile = ?, script = ?, issue = ?"
            " WHERE identifier = ?",
            json.dumps(finding_to_json(finding)),
            json.dumps(answers),
            script,
            issue,
            finding.identifier,
        )

    def finding(self, identifier: str) -> KeptFinding | None:
        """A finding with its results so far; None if the store has none of this name."""
        return next(self._findings("WHERE identifier = ?", identifier), None)

    def identifiers(self) -> list[str]:
        return [name for (name,) in self.all("SELECT identifier FROM findings")]

    def findings(self) -> Iterator[KeptFinding]:
        """All findings, in the order in which they were found."""
        return self._findings("ORDER BY rowid")

    def _findings(self, which: str, *values: object) -> Iterator[KeptFinding]:
        for text, script, issue, *said in self.all(_FINDINGS + which, *values):
            finding = self.checked(finding_from_json, self.json_values(text), str(self.file))
            self.checked(require_texts, script, issue)
            shown, answers = (None if it is None else self.json_values(it) for it in said)
            yield KeptFinding(finding, script, issue, shown, answers)

    # --- rows ---

    def read_all(self) -> None:
        """Read each row once. Raises `sqlite3.Error` if one cannot be read."""
        for table in TABLES:
            for _ in self._connection.execute(f"SELECT * FROM {table}"):  # noqa: S608
                pass

    def all(self, statement: str, *values: object) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def _one(self, statement: str, *values: object) -> Any:
        return self._connection.execute(statement, values).fetchone()

    def write(self, statement: str, *values: object) -> None:
        self._connection.execute(statement, values)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all rows of the context, or none."""
        with self._connection:
            self._connection.execute("BEGIN")
            yield

    def json_values(self, text: str) -> Any:
        return self.checked(json.loads, text)

    def checked(self, read: Callable[..., T], *values: object) -> T:
        """Read a value. Raises `UserError` that names the store if it is malformed."""
        try:
            return read(*values)
        except DAMAGE as reason:
            raise UserError(
                f"{self.file} is damaged: {type(reason).__name__}: {reason}; name another folder"
            ) from reason
