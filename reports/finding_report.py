"""A finding: its program and evidence, the program run again, graphs, and the reproducer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console

from aliasproof.campaigns.failure.finding import AnyFinding
from aliasproof.corpus.bug_files import all_bugs
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.verdict import Violation
from aliasproof.reports.console import (
    counted,
    print_code,
    print_exactly,
    print_heading,
    print_lines,
    python_command,
    relative,
)
from aliasproof.reports.differences import print_rows, print_violation
from aliasproof.reports.program_code import print_program
from aliasproof.reports.reduction_table import print_steps
from aliasproof.reports.side_by_side import rows


def print_finding(console: Console, finding: AnyFinding, summary: str) -> None:
    """Print what a finding stores. `summary` describes its target."""
    print_lines(console, finding.identifier, "bold")
    print_lines(console, f"target {finding.target}: {summary}")
    for line in _origin(finding):
        print_lines(console, line)
    for what, text in _further(finding):
        print_lines(console, f"{what}: {text}")
    if finding.steps:
        print_heading(console, "steps of the reduction")
        print_steps(console, finding.steps)
    print_heading(console, "program")
    print_program(console, finding.program)
    print_heading(console, "violation as it was found")
    print_violation(
        console, Violation(finding.oracle, finding.kind, finding.place, finding.evidence)
    )


def _origin(finding: AnyFinding) -> Iterator[str]:
    """How often it was seen, and what was reduced."""
    if finding.on_graphs and not finding.latent:
        yield (
            f"suspicion: values match, but on {counted(finding.count, 'program')} of the run"
            f" {finding.oracle} reports '{finding.kind}'; not reduced, and this is the shortest"
            " program"
        )
        return
    how = "silent (no exception)" if finding.silent else "an exception"
    count = counted(finding.count, "violation")
    yield f"{how}; {count} of the run reduced to it, in torch {finding.torch_version}"
    yield (
        f"reduced from {counted(finding.drawn_size, finding.unit)} to {finding.size}:"
        f" {finding.tried} candidates tried, {finding.accepted} accepted"
    )


def _further(finding: AnyFinding) -> list[tuple[str, str]]:
    """What else is known of a finding."""
    lines = []
    if finding.known is not None:
        bug = all_bugs().get(finding.known)
        title = "" if bug is None else f" ({bug.title}; {bug.link or 'no issue found'})"
        lines.append(("known bug", f"{finding.known}{title}"))
    if finding.wrong_part:
        lines.append(("first wrong after", finding.wrong_part))
    if finding.cause:
        lines.append(("cause", finding.cause))
    if finding.latent:
        lines.append(("latent", "values agree on these inputs, and not on all"))
    lines += [
        (f'torch.compile(backend="{name}")', text) for name, text in finding.user_level.items()
    ]
    return lines


def print_new_run(
    console: Console, name: str, eager: Observation, target: Observation | None
) -> None:
    """Print a new run of the finding's program. `target` is None if it refused the program."""
    # The stored evidence above can come from another torch, or another machine.
    print_heading(console, f"eager beside {name}, run again in torch {torch.__version__}")
    if target is not None:
        print_rows(console, rows(eager, target), name)


def print_stage(console: Console, stage: Stage) -> None:
    print_heading(console, f"graph: {stage.name}")
    print_code(console, stage.graph.print_readable(print_output=False))


def print_reproducer(console: Console, script: Path) -> None:
    """Print the script, how to run it, and where the issue for PyTorch's tracker is."""
    print_heading(console, "reproducer")
    if not script.is_file():
        print_lines(console, f"{relative(script)} is missing", "yellow")
        return
    print_code(console, script.read_text(encoding="utf-8", errors="replace"))
    console.print()
    print_lines(console, "Run it. Exit status 1: the bug is there. Exit status 0: it is gone.")
    print_exactly(console, f"    {python_command(relative(script))}", "bold")
    issue = script.with_name("issue.md")
    if issue.is_file():
        title = issue.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        console.print()
        print_lines(console, f"For PyTorch's tracker: {relative(issue)}")
        print_exactly(console, f"    {title}", "bold")
