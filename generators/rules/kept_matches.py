"""`kept`: what a search for a plain match found, kept from process to process.

A search takes as long as many programs, and its result depends on torch, the processor and this
code alone. So all processes of a user share what they found: a file of SQLite per version of these,
in the folder `ALIASPROOF_CACHE`, or in that of the user's caches. It has programs as JSON, which
are validated. Programs are drawn on torch as it is, never while a bug is mended. Where the file
cannot be read or written, each process searches for itself.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import torch

from aliasproof import eager, generators, ir
from aliasproof.ir.errors import UserError
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import from_json, to_json

Found = Program | str  # a program; or why there is none
SHARED_FOR = 30.0  # seconds that a process waits for another one to write


def kept(search: Callable[[str, str, int], Found], rule: str, kind: str, number: int) -> Found:
    """What the search finds, from the file if it is there."""
    key, file = json.dumps([rule, kind, number]), _opened(os.getpid())
    # Without the file, each process searches; a damaged entry is written anew.
    with contextlib.suppress(sqlite3.Error, UserError, ValueError, TypeError, KeyError):
        row = file and file.execute("SELECT found FROM matches WHERE of = ?", (key,)).fetchone()
        if row:
            value = json.loads(row[0])
            return str(value["none"]) if "none" in value else from_json(value["program"])
    found = search(rule, kind, number)
    value = {"none": found} if isinstance(found, str) else {"program": to_json(found)}
    with contextlib.suppress(sqlite3.Error):
        if file:
            file.execute("INSERT OR REPLACE INTO matches VALUES (?, ?)", (key, json.dumps(value)))
    return found


@functools.cache
def _opened(process: int) -> sqlite3.Connection | None:
    """The file, opened by this process: a connection is none of a fork's."""
    with contextlib.suppress(sqlite3.Error, OSError, RuntimeError):
        folder = _folder()
        if folder is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(
            folder / f"matches-{_version()}.sqlite", timeout=SHARED_FOR, isolation_level=None
        )
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute("CREATE TABLE IF NOT EXISTS matches (of TEXT PRIMARY KEY, found TEXT)")
        return file
    return None


def _folder() -> Path | None:
    """The folder of the files; None if `ALIASPROOF_CACHE` is empty, and nothing is kept."""
    own = os.environ.get("ALIASPROOF_CACHE")
    if own is not None:
        return Path(own) if own else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aliasproof"


def _version() -> str:
    """What a search depends on: torch, what the processor can, and the sources of both rooms."""
    digest = hashlib.sha256()
    about = (torch.__version__, torch.version.git_version, torch.backends.cpu.get_cpu_capability())
    digest.update(repr((*about, torch.cuda.is_available())).encode())
    for package in (eager, generators, ir):
        for source in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
