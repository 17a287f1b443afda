"""Processes as a user starts them, with the aliasproof of this checkout."""

import os
import subprocess
import sys
import time
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


def started(*arguments: object, cwd: Path, **variables: str) -> subprocess.Popen[str]:
    """This Python, running in a session of its own, with pipes for what it prints."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def aliasproof(
    *arguments: object, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The result of a command of aliasproof."""
    return python("-m", "aliasproof", *arguments, cwd=cwd, **variables)


def gone(pids: list[int]) -> bool:
    """Whether these processes end within some seconds."""
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.1)
    return False
