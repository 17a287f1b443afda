"""`look_up`: results of searches for plain matches, so that a campaign need not search.

A search takes as long as many programs. For some versions of torch, the package has a file with all
matches, written by `tests/generators/ship_matches.py`. For other versions, the result of a search
depends only on torch, the processor and this code. So all processes of a user share it in a SQLite
file per combination of these, in the folder `ALIASPROOF_CACHE`, or in the user's cache folder. Both
files have programs as JSON, which are validated. Programs are drawn with torch as it is, never
while a bug is patched. If SQLite cannot read or write its file, each process searches for itself.
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

Found = Program | str  # a program, or the reason why there is none
SHARED_FOR = 30.0  # seconds that a process waits for another one to write


@dataclass(frozen=True, slots=True)
class Shipped:
    """The rules of a version of torch in their groups, and their matches as JSON values by key.

    `numbers` has the number of matches of each kind, by rule.
    """

    rules: tuple[tuple[str, ...], ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    matches: Mapping[str, Any] = field(default_factory=dict)


def shipped_file() -> Path:
    """The package's file for this version of torch; it may not exist."""
    version = torch.__version__.partition("+")[0]
    return Path(__file__).parent / f"matches-{version}.json.gz"


@functools.cache
def shipped() -> Shipped:
    """The package's matches for this torch; none with CUDA, where torch may have other rules."""
    file = shipped_file()
    if torch.cuda.is_available() or not file.exists():
        return Shipped()
    data = json.loads(gzip.decompress(file.read_bytes()))
    return Shipped(tuple(map(tuple, data["rules"])), data["numbers"], data["matches"])


def key_of(rule: str, kind: str, number: int) -> str:
    """The key of a match in files."""
    return json.dumps([rule, kind, number])


def found_to_json(found: Found) -> dict[str, Any]:
    """The result of a search, as JSON values."""
    return {"none": found} if isinstance(found, str) else {"program": to_json(found)}


def _from_json(value: Any) -> Found:
    return str(value["none"]) if "none" in value else from_json(value["program"])


def look_up(search: Callable[[str, str, int], Found], rule: str, kind: str, number: int) -> Found:
    """The result of the search, from a file if it is there."""
    key = key_of(rule, kind, number)
    if key in shipped().matches:
        return _from_json(shipped().matches[key])
    file = _opened(os.getpid())
    # Without the file, each process searches; a damaged entry is replaced.
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
    """The file, opened by this process: a fork must not use its parent's connection."""
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
    """The folder of the files; None, so that nothing is stored, if `ALIASPROOF_CACHE` is empty."""
    own = os.environ.get("ALIASPROOF_CACHE")
    if own is not None:
        return Path(own) if own else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aliasproof"


def _version() -> str:
    """A digest of what a search depends on: torch, the processor, sources of three packages."""
    digest = hashlib.sha256()
    about = (torch.__version__, torch.version.git_version, torch.backends.cpu.get_cpu_capability())
    digest.update(repr((*about, torch.cuda.is_available())).encode())
    for package in (eager, generators, ir):
        for source in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
