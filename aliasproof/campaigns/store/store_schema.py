"""The tables of a store (docs/campaigns.md), and what a store from elsewhere must not contain."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from aliasproof.ir.errors import UserError, shown

NAME = "store.sqlite"
VERSION = 3
MOST_BYTES = 64 * 2**20  # of one value
# The exceptions of reading a value that has another form than expected.
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY, plan TEXT NOT NULL, torch TEXT NOT NULL, elapsed REAL NOT NULL,
    spent TEXT NOT NULL, merged INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS shards (
    task TEXT PRIMARY KEY, target TEXT NOT NULL, seed INTEGER NOT NULL, result TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS failures (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL, number INTEGER NOT NULL, target TEXT NOT NULL,
    oracle TEXT NOT NULL, kind TEXT NOT NULL, failure TEXT NOT NULL,
    deaths TEXT NOT NULL DEFAULT '[]', reduction TEXT, UNIQUE (task, number));
CREATE TABLE IF NOT EXISTS findings (
    identifier TEXT PRIMARY KEY, state TEXT NOT NULL, finding TEXT NOT NULL, script TEXT NOT NULL,
    issue TEXT, confirmation TEXT, torch_compile TEXT);
CREATE TABLE IF NOT EXISTS occurrences (
    finding TEXT NOT NULL, task TEXT NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (finding, task, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throughput (
    run INTEGER NOT NULL, elapsed REAL NOT NULL, programs INTEGER NOT NULL,
    violating INTEGER NOT NULL, findings INTEGER NOT NULL, kib INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS triage (
    finding TEXT PRIMARY KEY, state TEXT NOT NULL, link TEXT NOT NULL, note TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS replays (
    finding TEXT NOT NULL, torch TEXT NOT NULL, shown INTEGER NOT NULL,
    PRIMARY KEY (finding, torch)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS workers (
    elapsed REAL NOT NULL, processes INTEGER NOT NULL, kib INTEGER NOT NULL,
    largest_kib INTEGER NOT NULL);
"""
TABLES = tuple(re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", SCHEMA))
# By target, the programs that end their worker by themselves. No result of a shard has them.
DEADLY = """
SELECT target, count(*) FROM failures
WHERE number = -1 AND NOT json_extract(failure, '$.of_group') GROUP BY target
"""


def require_texts(script: object, issue: object) -> None:
    """Raises `TypeError` unless the script and the issue of a finding are texts."""
    if not isinstance(script, str) or not isinstance(issue, str | None):
        raise TypeError("a script or an issue is no text")


def connection_to_read(folder: Path) -> sqlite3.Connection:
    """A read-only connection, also while another process writes. Raises `UserError`."""
    file = folder / NAME
    if not file.is_file():
        raise UserError(f"{folder} has no {NAME}; name the folder of a run")
    # A run that ended has no write-ahead log, so the reader need not create files beside it.
    ended = not file.with_name(f"{NAME}-wal").exists()
    uri = f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if ended else ''}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10.0)


def require_form(connection: sqlite3.Connection, file: Path) -> None:
    """Raises `UserError` if a store has another version, lacks a table, or has what runs as code.

    A new store has no table, and version 0. The connection then reads no value that is too large.
    """
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
    connection.execute("PRAGMA trusted_schema = OFF")
    try:
        schema = connection.execute("SELECT name, type FROM sqlite_master").fetchall()
    except UnicodeDecodeError as error:  # SQLite's message quotes the file
        raise UserError(f"{file} is damaged: its tables have no names in UTF-8") from error
    code = next((name for name, kind in schema if kind not in ("table", "index")), None)
    if code is not None:
        raise UserError(f"{file} is no store: it has the view or trigger {shown(code)}")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, VERSION):
        raise UserError(
            f"{file} has version {version}; this aliasproof reads {VERSION}: use the one that made"
            " it"
        )
    tables = {name for name, kind in schema if kind == "table"}
    lacking = [name for name in TABLES if name not in tables]
    if lacking and (version == VERSION or tables):
        raise UserError(f"{file} is damaged: it has no table {', '.join(lacking)}")
