"""Processes as a user starts them, with the aliasproof of this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def ran(
    *words: object, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """What a command leaves, with these variables of the environment."""
    return subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def python(
    *arguments: object, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The same of this Python."""
    return ran(sys.executable, *arguments, cwd=cwd, **variables)


def aliasproof(
    *arguments: object, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The same of a command of aliasproof."""
    return python("-m", "aliasproof", *arguments, cwd=cwd, **variables)
