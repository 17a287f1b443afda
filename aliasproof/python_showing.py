"""`show` of a finding of `hunt`: what is stored, and what it does in the installed torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from aliasproof.campaigns.publish.confirmation import Confirmation
from aliasproof.campaigns.publish.python_issue import SCRIPT, confirm_python, title
from aliasproof.campaigns.store.finding import PythonFinding
from aliasproof.corpus.known_bugs import KNOWN_BUGS, mended
from aliasproof.corpus.python_bugs import python_bugs
from aliasproof.ir.errors import Rejected
from aliasproof.judge.python_trial import examine_python
from aliasproof.judge.trial import quiet_torch
from aliasproof.oracles.verdict import Violation
from aliasproof.reports.console import (
    output_for_results,
    print_code,
    print_heading,
    print_lines,
    relative,
    results,
    write_json,
)
from aliasproof.reports.differences import print_violation
from aliasproof.reports.status import Status


def show_python(folder: Path, *, as_json: bool) -> None:
    """Print a finding, its program run again, and whether it still fails."""
    finding = PythonFinding.load(folder)
    quiet_torch()
    with output_for_results():
        status, violations = _run_again(finding)
    # Eager beside the compiled program, each in a process of its own.
    confirmation = confirm_python(finding)
    if as_json:
        write_json(
            {
                "folder": str(folder),
                "stored as": "finding" if finding.confirmed else "unconfirmed",
                "stored": finding.to_json(),
                "program": finding.program.source,
                "reproducer": str(folder / SCRIPT),
                "torch": str(torch.__version__),
                "status": status.word,
                "explanation": status.text,
                "eager beside target": confirmation.output.splitlines(),
            }
        )
        return
    _print(finding, confirmation, violations)
    if (folder / SCRIPT).is_file():
        print_lines(results(), f"reproducer: {relative(folder / SCRIPT)}")
    results().print()
    print_lines(results(), status.text, status.style)


def _run_again(finding: PythonFinding) -> tuple[Status, tuple[Violation, ...]]:
    """Whether a new run shows the stored violation, and what else it shows."""
    here = f"in torch {torch.__version__}"
    try:
        examination = examine_python(finding.program, finding.target)
        # It may have been found behind a known bug of another layer.
        if examination.main is not None and examination.target != finding.target:
            with mended(KNOWN_BUGS.values()):
                examination = examine_python(finding.program, finding.target)
    except Rejected as reason:
        return Status("not judged", f"Not judged {here}: undefined in eager: {reason}."), ()
    violations = tuple(examination.violations)
    return python_status(finding, examination.target, violations), violations


def python_status(finding: PythonFinding, target: str, violations: Sequence[Violation]) -> Status:
    """Whether the violations of a new run through a target are those of the finding."""
    here = f"in torch {torch.__version__}"
    kinds = {(target, one.oracle, one.kind) for one in violations}
    # The place and the evidence can change with the version of torch.
    if (finding.target, finding.oracle, finding.kind) in kinds:
        return Status("still there", f"Still there {here}.")
    if violations:
        other = f"{target}: {violations[0].oracle}: {violations[0].describe()}"
        return Status("another violation", f"Another violation {here}: {other}.")
    return Status("gone", f"Gone {here}: target and eager do the same.")


def _print(
    finding: PythonFinding, confirmation: Confirmation, violations: tuple[Violation, ...]
) -> None:
    console = results()
    print_lines(console, finding.identifier, "bold")
    print_lines(console, title(finding))
    how = "silent (no exception)" if finding.silent else "an exception"
    part = f" ({finding.part})" if finding.part else ""
    print_lines(console, f"target {finding.target}{part}; {how}; in torch {finding.torch}")
    print_lines(
        console,
        f"reduced from {finding.drawn_lines} lines to {finding.program.lines}: {finding.tried}"
        f" candidates tried, {finding.compiled} compiled",
    )
    titles = {bug.identifier: (bug.title, bug.link) for bug in python_bugs()}
    titles |= {name: (bug.title, bug.link or "") for name, bug in KNOWN_BUGS.items()}
    if finding.known in titles:
        print_lines(console, f"known bug: {' '.join(titles[finding.known])}".rstrip())
    print_heading(console, "program")
    print_code(console, finding.program.source.strip())
    print_heading(console, "violation as it was found")
    print_violation(console, finding.violation)
    print_heading(console, "eager beside the compiled program, now")
    print_lines(console, confirmation.output.strip() or confirmation.ending)
    for violation in violations[1:]:
        print_violation(console, violation)
