"""`kept`: what searches for plain matches found, so that a campaign does not search.

A search takes as long as many programs. For a version of torch that the package has a file for,
all matches are there: `tests/generators/ship_matches.py` writes it. For others, what is found
depends on torch, the processor and this code alone. So all processes of a user share it: a file of
SQLite per version of these, in the folder `ALIASPROOF_CACHE`, or in that of the user's caches. Both
have programs as JSON, which are validated. Programs are drawn on torch as it is, never while a bug
is patched. Where SQLite cannot read or write its file, each process searches for itself.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from aliasproof import eager, generators, ir
from aliasproof.ir.errors import UserError
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import from_json, to_json

Found = Program | str  # a program; or why there is none
SHARED_FOR = 30.0  # seconds that a process waits for another one to write


@dataclass(frozen=True, slots=True)
class Shipped:
    """The rules of a version of torch in their groups, and their matches as JSON values by key.

    `numbers` says how many matches a rule has of each kind.
    """

    rules: tuple[tuple[str, ...], ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    matches: Mapping[str, Any] = field(default_factory=dict)


def shipped_file() -> Path:
    """The file of the package for this version of torch, which may not be there."""
    version = torch.__version__.partition("+")[0]
    return Path(__file__).parent / f"matches-{version}.json.gz"


@functools.cache
def shipped() -> Shipped:
    """What the package has for this torch; with CUDA, torch may have other rules."""
    file = shipped_file()
    if torch.cuda.is_available() or not file.exists():
        return Shipped()
    data = json.loads(gzip.decompress(file.read_bytes()))
    return Shipped(tuple(map(tuple, data["rules"])), data["numbers"], data["matches"])


def key_of(rule: str, kind: str, number: int) -> str:
    """The name of a match in files."""
    return json.dumps([rule, kind, number])


def found_to_json(found: Found) -> dict[str, Any]:
    """What a search found, as JSON values."""
    return {"none": found} if isinstance(found, str) else {"program": to_json(found)}


def _from_json(value: Any) -> Found:
    return str(value["none"]) if "none" in value else from_json(value["program"])


def kept(search: Callable[[str, str, int], Found], rule: str, kind: str, number: int) -> Found:
    """What the search finds, from a file if it is there."""
    key = key_of(rule, kind, number)
    if key in shipped().matches:
        return _from_json(shipped().matches[key])
    file = _opened(os.getpid())
    # Without the file, each process searches; a damaged entry is written anew.
    with contextlib.suppress(sqlite3.Error, UserError, ValueError, TypeError, KeyError):
        row = file and file.execute("SELECT found FROM matches WHERE of = ?", (key,)).fetchone()
        if row:
            return _from_json(json.loads(row[0]))
    found = search(rule, kind, number)
    with contextlib.suppress(sqlite3.Error):
        if file:
            value = json.dumps(found_to_json(found))
            file.execute("INSERT OR REPLACE INTO matches VALUES (?, ?)", (key, value))
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
