"""What a store from elsewhere may not have: code, and values of another form."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from aliasproof.programs.errors import UserError, shown

MOST_BYTES = 64 * 2**20  # of one value
# What reading a value of another form than expected raises.
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


def require_texts(script: object, issue: object) -> None:
    """Raises `TypeError` for the script and the issue of a finding that are no texts."""
    if not isinstance(script, str) or not isinstance(issue, str | None):
        raise TypeError("a script or an issue is no text")


def require_tables(connection: sqlite3.Connection, file: Path) -> None:
    """Raises `UserError` if a store has what runs as code: a view or a trigger."""
    statement = "SELECT name FROM sqlite_master WHERE type NOT IN ('table', 'index')"
    try:
        found = connection.execute(statement).fetchone()
    except UnicodeDecodeError as error:  # SQLite's message quotes the file
        raise UserError(f"{file} is damaged: its tables have no names in UTF-8") from error
    if found is not None:
        raise UserError(f"{file} is no store: it has the view or trigger {shown(found[0])}")
