"""`confirmed`: whether a reproducer shows what the campaign saw, and its control shows nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.publish.confirmation_server import ENVIRONMENT, TIMEOUT
from aliasproof.campaigns.publish.reproducer import CHECKS, Compiler, Reproducer
from aliasproof.ir.program import Program
from aliasproof.oracles.verdict import Violation
from aliasproof.targets import inductor
from aliasproof.targets.registry import target

SCRIPT = "reproducer.py"
OTHER_EVIDENCE = "shows other evidence than the campaign saw"
SHOWS_EAGER = "shows a difference also with eager in the place of the compiler"


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
        """The result of a process with this exit status; None if killed after `timeout` s."""
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

    The bug is shown if the script exits 1 and its last line says so. `timeout` is in seconds.
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
    """Run a reproducer, and then its control: the same script with eager instead of the compiler.

    The bug is shown if the reproducer shows the evidence of its violation and the control does not.
    """
    confirmation = run_text(reproducer.script, run)
    if not confirmation.shown:
        return confirmation
    if not shows(reproducer.violation, confirmation.output):
        return replace(confirmation, shown=False, ending=OTHER_EVIDENCE)
    control = run_text(reproducer.control, run)
    if control.ending != "exits 0":
        return replace(confirmation, shown=False, ending=f"{SHOWS_EAGER} ({control.ending})")
    return confirmation


def shows(violation: Violation, output: str) -> bool:
    """Whether the output of a reproducer has the evidence of a violation."""
    return CHECKS[violation.oracle].of_kind(violation.kind).shows(violation, output)


def run_text(script: str, run: Run = confirm) -> Confirmation:
    with tempfile.TemporaryDirectory(prefix="aliasproof-") as folder:
        path = Path(folder) / SCRIPT
        path.write_text(script, encoding="utf-8")
        return run(path)


# --- user level -----------------------------------------------------------------------------------
#
# Whether a finding also shows under `torch.compile`, which is what users call.
#
# Once per finding, after it is confirmed: Inductor compiles C++, which takes seconds.


BACKENDS = ("aot_eager", "inductor")
SHOWS, DOES_NOT_SHOW = "shows", "does not show"
NOT_RUN = "not run, since the bug is known"


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A script that showed a finding, and what it printed."""

    script: str
    output: str


def at_user_level(
    finding: Finding[Program],
    shown: Reproduced,
    run: Run = confirm,
    backends: Sequence[str] = BACKENDS,
) -> tuple[Finding[Program], Reproduced]:
    """Run the finding under these backends, each time in a fresh process.

    Returns the finding with the answer of each backend: "shows", "does not show", or what happened
    instead. Without `backends`, there are none. A known bug that has an issue is run under one
    backend only. Also returns the script to publish: by `torch.compile` if the finding shows there.
    `shown` is the reproducer that confirmed it. If no backend shows the finding, the reproducer is
    tried again in ordinary syntax.
    """
    answers = dict.fromkeys(BACKENDS if backends else (), NOT_RUN)
    reproduced: Reproduced | None = None
    for backend in backends:
        reason = inductor.unavailable() if backend == "inductor" else None
        if reason is not None:
            answers[backend] = f"not run, since it {reason}"
            continue
        for reproducer in of_backend(finding, backend):
            confirmation = confirmed(reproducer, run)
            answers[backend] = answer(finding.violation, confirmation)
            if confirmation.shown:
                reproduced = reproduced or Reproduced(reproducer.script, confirmation.output)
                break
    reproducer = of_target(finding, near=True)
    if reproduced is None and reproducer.script != shown.script:
        confirmation = confirmed(reproducer, run)
        if confirmation.shown:
            reproduced = Reproduced(reproducer.script, confirmation.output)
    return replace(finding, user_level=answers), reproduced or shown


def of_target(
    finding: Finding[Program], *, near: bool = False, literal: bool = False
) -> Reproducer:
    compiler = replace(Compiler.of_target(target(finding.target)), near=near)
    return Reproducer(finding.program, compiler, finding.violation, finding.exact, literal)


def of_backend(finding: Finding[Program], backend: str) -> list[Reproducer]:
    """The reproducer as a user would write it, and the exact one if that differs."""
    compilers = (Compiler.of_backend(backend, finding.target, near=near) for near in (True, False))
    reproducers = (
        Reproducer(finding.program, compiler, finding.violation, finding.exact)
        for compiler in compilers
    )
    return list({reproducer.script: reproducer for reproducer in reproducers}.values())


def answer(violation: Violation, confirmation: Confirmation) -> str:
    """What a run of a script with `torch.compile` says about a violation."""
    if confirmation.shown:
        return SHOWS
    if confirmation.ending == "exits 0":
        return DOES_NOT_SHOW
    if confirmation.ending.startswith(SHOWS_EAGER):
        return 'shows, as it does with `backend="eager"`'
    lines = [line.strip() for line in confirmation.output.splitlines() if line.strip()]
    if confirmation.ending == OTHER_EVIDENCE:
        what = "raises another error" if violation.oracle == "errors" else "shows another result"
        start = "differs:" if any(line.startswith("differs:") for line in lines) else "actual:"
        seen = next((line for line in lines if line.startswith(start)), "")
        return f"{what}: {seen.removeprefix(start).strip()}"
    # The script raised where it should compare values: Python prints the error last.
    return f"the script {confirmation.ending}" + (f": {lines[-1]}" if lines else "")
