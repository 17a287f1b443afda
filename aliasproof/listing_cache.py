"""Listings that need torch, kept on disk: to import torch takes far longer than to print them.

The name of a file is a hash of all that a listing depends on: the version of torch and of Python,
and the paths, sizes and times of the source files of aliasproof. So no listing is out of date.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pkgutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
# The packages that a listing is computed from, beside the modules of this folder.
PACKAGES = ("commands", "generators", "oracles", "programs", "reference_pass", "reports", "targets")


def listing(name: str) -> dict[str, Any]:
    """The listing that a function of `aliasproof.listings` returns, from the cache if it is there.

    A cache that cannot be read or written only costs time.
    """
    compute = f"aliasproof.listings:{name}"
    # What is registered in this process is in no file, and torch costs nothing more.
    if "torch" in sys.modules:
        return _computed(compute)
    file = folder() / f"{name}-{_state()}.json"
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found
    found = _computed(compute)
    with contextlib.suppress(OSError):
        _write(file, name, json.dumps(found))
    return found


def _computed(function: str) -> dict[str, Any]:
    found: dict[str, Any] = pkgutil.resolve_name(function)()
    return found


def folder() -> Path:
    """The folder of the cache; `XDG_CACHE_HOME` says where it is, as for other programs."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "aliasproof"


def _state() -> str:
    """A hash of what listings depend on."""
    parts = [sys.version, version("torch"), str(ROOT)]
    files = [*ROOT.glob("*.py")]
    for package in PACKAGES:
        files += (ROOT / package).rglob("*.py")
    for path in sorted(files):
        status = path.stat()
        parts.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _write(file: Path, name: str, text: str) -> None:
    """Write a file in one step, and remove those of earlier states."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    for old in file.parent.glob(f"{name}-*.json"):
        old.unlink(missing_ok=True)
    partial.replace(file)
