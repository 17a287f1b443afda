"""The command `show`: all that there is to see of a finding, run again in the installed torch."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from rich.console import Console

from aliasproof.console import (
    print_code,
    print_exactly,
    print_heading,
    print_lines,
    relative,
    results,
)
from aliasproof.progress import counted
from aliasproof.side_by_side import print_side_by_side
from aliasproof.verdicts import print_violation
from campaigns.finding import Finding
from campaigns.reproducer import DEATHS, confirm
from campaigns.store import read_finding
from oracles.verdict import Violation
from programs.errors import Rejected, UserError, did_you_mean
from programs.printing import inputs_source, source
from targets.registry import target as target_named
from trials.trial import Case, Trial, run_trial
from trials.worker import quiet_torch

RUNS = Path("runs")


def locate(finding: str) -> Path:
    """The folder of a finding, given as a path to it or to a file in it, or as its name: then the newest of that name."""
    path = Path(finding)
    if path.is_file():
        path = path.parent
    if path.is_dir():
        if (path / "findings").is_dir():
            names = sorted(each.name for each in (path / "findings").iterdir())
            raise UserError(
                f"{path} is a run; name one of its findings: {', '.join(names) or 'it has none'}"
            )
        return path
    folders = sorted(RUNS.glob("*/findings/*/"), key=lambda each: each.stat().st_mtime)
    named = [each for each in folders if each.name == finding]
    if named:
        return named[-1]
    names = [each.name for each in folders]
    advice = "give its folder, such as runs/<run>/findings/<name>"
    hint = did_you_mean(finding, names, otherwise=advice)
    raise UserError(f"no finding '{finding}' here or under {RUNS}/*/findings{hint}")


def show_finding(given: str) -> None:
    """Print a finding."""
    folder = locate(given)
    try:
        finding = read_finding(folder)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{folder} cannot be read: {error}") from error
    target = target_named(finding.target)
    quiet_torch()
    console = results()
    _print_head(console, finding, target.summary)
    print_heading(console, "program")
    print_code(
        console,
        f"aten = torch.ops.aten\n\n{source(finding.program)}\n{inputs_source(finding.program)}",
    )
    print_heading(console, "violation, as it was found")
    print_violation(
        console, Violation(finding.oracle, finding.kind, finding.place, finding.evidence)
    )
    still = _print_again(console, finding, folder)
    print_heading(console, "reproducer")
    _print_reproducer(console, folder / "reproducer.py")
    console.print()
    print_lines(console, *still)


def _print_head(console: Console, finding: Finding, summary: str) -> None:
    how = "silent: no exception" if finding.silent else "not silent"
    print_lines(console, finding.identifier, "bold")
    print_lines(console, f"target {finding.target}: {summary}")
    shown = f"{counted(finding.count, 'violation')} of its run came down to it, with torch {finding.torch_version}"
    print_lines(console, f"{how}; {shown}")
    reduced = f"reduced from {len(finding.original)} instructions to {len(finding.program)}"
    print_lines(console, f"{reduced}: {finding.tried} candidates tried, {finding.accepted} taken")


def _print_again(console: Console, finding: Finding, folder: Path) -> tuple[str, str]:
    """Run the program again, print what both sides do and the graphs, and say whether it still fails."""
    if finding.kind.startswith(DEATHS):  # it would take this process with it
        return _again_in_a_process_of_its_own(folder / "reproducer.py")
    target = target_named(finding.target)
    try:
        trial = run_trial(Case.of(finding.program), target)
    except Rejected as reason:
        return (
            f"Not judged in torch {torch.__version__}: eager gives the program no single meaning: {reason}.",
            "yellow",
        )
    print_heading(console, f"eager against {target.name}, now, in torch {torch.__version__}")
    if trial.target is not None:
        print_side_by_side(console, trial.eager, trial.target, target.name)
    _print_stages(console, trial)
    return _still(finding, trial)


def _again_in_a_process_of_its_own(script: Path) -> tuple[str, str]:
    if not script.is_file():
        return "Not run again: the reproducer is missing.", "yellow"
    done = confirm(script)
    if done.shown:
        return f"Still there in torch {torch.__version__}.", "bold red"
    return f"Gone in torch {torch.__version__}: the reproducer {done.ending}.", "bold green"


def _print_stages(console: Console, trial: Trial) -> None:
    for stage in trial.build.stages if trial.build is not None else []:
        print_heading(console, f"graph: {stage.name}")
        print_code(console, stage.graph.print_readable(print_output=False))


def _still(finding: Finding, trial: Trial) -> tuple[str, str]:
    here, violations = f"in torch {torch.__version__}", trial.judgement.violations
    if any((each.oracle, each.kind) == (finding.oracle, finding.kind) for each in violations):
        return f"Still there {here}.", "bold red"
    if violations:
        return (
            f"Another violation {here}: {violations[0].oracle}: {violations[0].describe()}.",
            "bold red",
        )
    if trial.judgement.refused is not None:
        return f"Not judged {here}: {trial.judgement.refused}.", "yellow"
    return f"Gone {here}: target and eager do the same.", "bold green"


def _print_reproducer(console: Console, script: Path) -> None:
    if not script.is_file():
        print_lines(console, f"{relative(script)} is missing", "yellow")
        return
    print_code(console, script.read_text(encoding="utf-8", errors="replace"))
    console.print()
    print_lines(console, "Run it; it exits 1 while the bug is there, 0 when it is gone:")
    print_exactly(console, f"    {python()} {relative(script)}", "bold")


def python() -> str:
    """The interpreter, as a person here would type it."""
    return str(relative(Path(sys.executable)))
