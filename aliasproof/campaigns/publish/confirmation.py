"""`confirmed`: whether a reproducer shows what the campaign saw, and its control shows nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from aliasproof.campaigns.publish.confirmation_server import ENVIRONMENT, TIMEOUT
from aliasproof.campaigns.publish.reproducer import Reproducer
from aliasproof.oracles.judge import ORACLES
from aliasproof.oracles.verdict import Violation

OTHER_EVIDENCE = "shows other evidence than the campaign saw"
SHOWS_EAGER = "shows a difference also with eager in the place of the compiler"
_SHOWS = {oracle.name: oracle.check for oracle in ORACLES if oracle.check is not None}


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The result of a reproducer in a fresh process.

    `shown` says whether it showed the bug, `output` is what it printed, `ending` how it ended.
    """

    shown: bool
    output: str
    ending: str

    @classmethod
    def of(cls, status: int | None, stdout: str, stderr: str, timeout: float) -> Confirmation:
        """The result of a process with this exit status; None if it was ended after `timeout`."""
        if status is None:
            return cls(False, "", f"hangs: no end after {timeout:.0f} s")
        ending = f"dies of signal {-status}" if status < 0 else f"exits {status}"
        lines = stdout.strip().splitlines()
        # Python itself exits 1 after an uncaught exception, so the exit code alone is not enough.
        shown = status == 1 and bool(lines) and lines[-1].startswith("BUG: ")
        return cls(shown, stdout + stderr, ending)


def confirm(
    script: Path, timeout: float = TIMEOUT, interpreter: Path = Path(sys.executable)
) -> Confirmation:
    """Run a reproducer in a fresh interpreter, isolated from this project's packages and settings.

    It shows a bug if it exits 1 and its last line says so. `timeout` is in seconds.
    """
    # -I ignores PYTHONPATH, the working folder and the user's packages.
    command = [str(interpreter), "-I", script.name]
    try:
        done = subprocess.run(
            command,
            cwd=script.parent,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            errors="replace",
            env=os.environ | ENVIRONMENT,
            # A session of its own: Ctrl-C ends the search, not the confirmation of its findings.
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return Confirmation.of(None, "", "", timeout)
    return Confirmation.of(done.returncode, done.stdout, done.stderr, timeout)


# Runs a script, at its path, in a fresh process.
Run: TypeAlias = Callable[[Path], Confirmation]


def confirmed(reproducer: Reproducer, run: Run = confirm) -> Confirmation:
    """Run a reproducer, and then its control: the same script with eager for the compiler.

    The bug is shown if the reproducer shows the evidence of its violation, and the control nothing.
    """
    confirmation = _run_text(reproducer.script, run)
    if not confirmation.shown:
        return confirmation
    if not shows(reproducer.violation, confirmation.output):
        return replace(confirmation, shown=False, ending=OTHER_EVIDENCE)
    control = _run_text(reproducer.control, run)
    if control.ending != "exits 0":
        return replace(confirmation, shown=False, ending=f"{SHOWS_EAGER} ({control.ending})")
    return confirmation


def shows(violation: Violation, output: str) -> bool:
    """Whether the output of a reproducer has the evidence of a violation."""
    return _SHOWS[violation.oracle].of_kind(violation.kind).shows(violation, output)


def _run_text(script: str, run: Run) -> Confirmation:
    with tempfile.TemporaryDirectory(prefix="aliasproof-") as folder:
        path = Path(folder) / "reproducer.py"
        path.write_text(script, encoding="utf-8")
        return run(path)
