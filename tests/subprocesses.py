"""Processes as a user starts them, with the aliasproof of this checkout."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def ran(
    *words: object, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The result of a command, with these environment variables."""
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
    """The result of this Python."""
    return ran(sys.executable, *arguments, cwd=cwd, **variables)


def aliasproof(
    *arguments: object, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The result of a command of aliasproof."""
    return python("-m", "aliasproof", *arguments, cwd=cwd, **variables)
