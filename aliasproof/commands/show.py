"""The command `show`: print a finding, and run it again in the installed torch."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console

from campaigns.finding import Finding
from campaigns.reproducer import DEATHS, confirm
from campaigns.store import read_finding
from programs.errors import Rejected, UserError, did_you_mean
from reports.console import print_lines, results
from reports.finding_report import print_finding, print_new_run, print_reproducer, print_stage
from targets.registry import target as target_named
from targets.target import Target
from trials.trial import Case, Trial, run_trial
from trials.worker import quiet_torch

RUNS = Path("runs")


def show_finding(given: str) -> None:
    """Print a finding, its program run again, its reproducer, and whether it still fails."""
    folder = locate(given)
    try:
        finding = read_finding(folder)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{folder} cannot be read: {error}") from error
    # A finding can be older than this version, and its target gone.
    target = target_named(finding.target)
    quiet_torch()
    console = results()
    print_finding(console, finding, target.summary)
    script = folder / "reproducer.py"
    if finding.kind.startswith(DEATHS):
        # The program would end this process too.
        verdict = _run_reproducer(script)
    else:
        verdict = _run_again(console, finding, target)
    print_reproducer(console, script)
    console.print()
    print_lines(console, *verdict)


def locate(finding: str) -> Path:
    """The folder of a finding, from its path, the path of a file in it, or its name.

    If several runs have a finding of that name, the newest is taken. Raises `UserError`.
    """
    path = Path(finding)
    if path.is_file():
        if not (path.parent / "finding.json").is_file():
            raise UserError(
                f"{finding} is not a file of a finding; give the folder or the name of one"
            )
        path = path.parent
    if path.is_dir():
        if (path / "findings").is_dir():
            names = sorted(folder.name for folder in (path / "findings").iterdir())
            raise UserError(
                f"{path} is a run; name one of its findings: {', '.join(names) or 'it has none'}"
            )
        return path
    # By time: a name is the same in every run that found the bug.
    folders = sorted(RUNS.glob("*/findings/*/"), key=lambda folder: folder.stat().st_mtime)
    named = [folder for folder in folders if folder.name == finding]
    if named:
        return named[-1]
    names = [folder.name for folder in folders]
    advice = "give its folder, such as runs/<run>/findings/<name>"
    hint = did_you_mean(finding, names, otherwise=advice)
    raise UserError(f"no finding '{finding}' here or under {RUNS}/*/findings{hint}")


def _run_again(console: Console, finding: Finding, target: Target) -> tuple[str, str]:
    """Run the program in eager and through the target, print both, and say if it still fails."""
    try:
        trial = run_trial(Case.of(finding.program), target)
    except Rejected as reason:
        here = f"Not judged in torch {torch.__version__}"
        return f"{here}: the program is undefined in eager: {reason}.", "yellow"
    print_new_run(console, target.name, trial.eager, trial.target)
    for stage in trial.build.stages if trial.build is not None else []:
        print_stage(console, stage)
    return _still(finding, trial)


def _run_reproducer(script: Path) -> tuple[str, str]:
    """Run the reproducer in a process of its own, and say if it still fails."""
    if not script.is_file():
        return "Not run again: the reproducer is missing.", "yellow"
    done = confirm(script)
    if done.shown:
        return f"Still there in torch {torch.__version__}.", "bold red"
    return f"Gone in torch {torch.__version__}: the reproducer {done.ending}.", "bold green"


def _still(finding: Finding, trial: Trial) -> tuple[str, str]:
    """Whether a new run shows the finding, as a line and its style."""
    here, violations = f"in torch {torch.__version__}", trial.judgement.violations
    # The place and the evidence can change with the version of torch.
    kind = (finding.oracle, finding.kind)
    if any((violation.oracle, violation.kind) == kind for violation in violations):
        return f"Still there {here}.", "bold red"
    if violations:
        other = f"{violations[0].oracle}: {violations[0].describe()}"
        return f"Another violation {here}: {other}.", "bold red"
    documented = trial.judgement.documented
    if documented:
        found, limitation = documented[0].difference, documented[0].limitation
        return f"Documented {here}: {found.describe()}: {limitation.reason}.", "yellow"
    return f"Gone {here}: target and eager do the same.", "bold green"
