"""The command `show`: print what a run has stored, and run it again in the installed torch."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

import torch

from aliasproof.campaigns.publish.confirmation import confirm
from aliasproof.campaigns.publish.reproducer import render
from aliasproof.campaigns.store.finding import Finding, is_of_python
from aliasproof.campaigns.store.stored import StoredSuspicion, locate, read_stored
from aliasproof.ir.devices import require_device
from aliasproof.ir.errors import UserError
from aliasproof.ir.printing import source
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case, quiet_torch
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.outcome import DEATHS, DEVICE_LOST
from aliasproof.python_showing import show_python
from aliasproof.reports.console import output_for_results, print_lines, results, write_json
from aliasproof.reports.differences import print_violation
from aliasproof.reports.finding_report import (
    print_finding,
    print_new_run,
    print_reproducer,
    print_stage,
    print_suspicion,
)
from aliasproof.reports.side_by_side import rows
from aliasproof.reports.status import Status
from aliasproof.reports.verdict_json import report_json
from aliasproof.targets.registry import is_importable
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Target
from aliasproof.targets.user_names import grant


def show_finding(given: str, own: str | None = None, *, as_json: bool) -> None:
    """Print a stored case, its program run again, its reproducer, and whether it still fails.

    `own` is the target that the user named: nothing else that is code of theirs is imported.
    """
    folder = locate(given)
    grant([] if own is None else [own])
    if is_of_python(folder):
        show_python(folder, as_json=as_json)
        return
    stored = read_stored(folder)
    if own is not None and target_named(own).name != stored.target:
        raise UserError(f"{given} is of the target {stored.target}, and not of {own}")
    script = folder / "reproducer.py"
    if is_importable(stored.target):
        # It can be older than this version, and its target gone.
        target = target_named(stored.target)
        quiet_torch()
        summary = target.summary
        examination, status = _run_again(stored, target)
    else:
        summary, examination = "your own code", None
        advice = shlex.join(["aliasproof", "show", given, "--target", stored.target])
        status = Status("not run", f"Not run, since a file names its code. To run it: {advice}")
    if as_json:
        write_json(_to_json(stored, folder, examination, status))
        return
    _print(stored, summary, script, examination)
    results().print()
    print_lines(results(), status.text, status.style)


def _run_again(
    stored: Finding | StoredSuspicion, target: Target
) -> tuple[Examination | None, Status]:
    """Run a stored case again, where its device is. None where it could end this process."""
    try:
        require_device(stored.program.device)
    except UserError as reason:
        return None, Status("not run", f"Not run again: {reason}.")
    # What a worker reported dead would end this process too.
    if stored.kind.startswith((*DEATHS, DEVICE_LOST)):
        return None, _run_reproducer(stored, target)
    with output_for_results():
        examination = examine(Case.of(stored.program), target, every_oracle=True, attribute=False)
    return examination, status_of(stored, examination)


def _print(
    stored: Finding | StoredSuspicion, summary: str, script: Path, examination: Examination | None
) -> None:
    console = results()
    if isinstance(stored, Finding):
        print_finding(console, stored, summary)
    else:
        print_suspicion(console, stored, summary)
    if examination is not None and examination.trial is not None:
        print_new_run(
            console, examination.target.name, examination.trial.eager, examination.trial.target
        )
        # A stored finding has the evidence of its own violation; of a suspicion, nobody wrote it.
        for violation in () if isinstance(stored, Finding) else examination.violations:
            print_violation(console, violation)
        for stage in examination.trial.build.stages if examination.trial.build is not None else []:
            print_stage(console, stage)
    # A script with torch alone cannot show what only oracles on graphs see.
    if isinstance(stored, Finding):
        print_reproducer(console, script)


def _run_reproducer(stored: Finding | StoredSuspicion, target: Target) -> Status:
    """Run a reproducer in a process of its own, and say if it still fails.

    It is written anew: what a folder has as reproducer is shown, and never run.
    """
    if not isinstance(stored, Finding):
        return Status("not run", "Not run again: it would end this process.")
    with tempfile.TemporaryDirectory(prefix="aliasproof-") as folder:
        script = Path(folder) / "reproducer.py"
        script.write_text(render(stored.program, target, stored.violation, exact=stored.exact))
        done = confirm(script)
    if done.shown:
        return Status("still there", f"Still there in torch {torch.__version__}.")
    return Status("gone", f"Gone in torch {torch.__version__}: the reproducer {done.ending}.")


def status_of(stored: Finding | StoredSuspicion, examination: Examination) -> Status:
    """Whether a new run shows the stored violation."""
    here = f"in torch {torch.__version__}"
    if examination.rejected is not None:
        return Status(
            "not judged",
            f"Not judged {here}: the program is undefined in eager: {examination.rejected}.",
        )
    # The place and the evidence can change with the version of torch.
    kind, violations = (stored.oracle, stored.kind), examination.violations
    if any((violation.oracle, violation.kind) == kind for violation in violations):
        return Status("still there", f"Still there {here}.")
    if violations:
        other = _violation_text(violations[0])
        return Status("another violation", f"Another violation {here}: {other}.")
    if examination.documented:
        first = examination.documented[0]
        reason = f"{first.difference.describe()}: {first.limitation.reason}"
        return Status("documented", f"Documented {here}: {reason}.")
    return Status("gone", f"Gone {here}: target and eager do the same.")


def _violation_text(violation: Violation) -> str:
    return f"{violation.oracle}: {violation.describe()}"


def _to_json(
    stored: Finding | StoredSuspicion, folder: Path, examination: Examination | None, status: Status
) -> dict[str, object]:
    trial = examination.trial if examination is not None else None
    script = folder / "reproducer.py"
    stages = trial.build.stages if trial is not None and trial.build is not None else []
    return {
        "folder": str(folder),
        "stored as": "finding" if isinstance(stored, Finding) else "suspicion",
        "stored": stored.to_json(),
        "program": source(stored.program),
        "reproducer": str(script) if script.is_file() else None,
        "torch": str(torch.__version__),
        "status": status.word,
        "explanation": status.text,
        "oracles": {name: report_json(report) for name, report in examination.reports.items()}
        if examination is not None
        else {},
        "eager beside target": [
            {"what": what, "eager": ours, "target": theirs}
            for what, ours, theirs in (rows(trial.eager, trial.target) if trial is not None else ())
        ],
        "graphs": {stage.name: stage.graph.print_readable(print_output=False) for stage in stages},
    }
