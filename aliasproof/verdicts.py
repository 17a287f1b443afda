"""The command `check`: a file of the user, checked; and its outcome as a person reads it."""

from __future__ import annotations

import contextlib
import faulthandler
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aliasproof.checking import DEFAULT_TARGETS, Check, Eager, TargetResult, check
from aliasproof.console import notes, print_heading, print_lines, print_table, results, write_json
from aliasproof.side_by_side import print_side_by_side, text
from aliasproof.user_file import read
from oracles.judge import ON_GRAPHS, ON_RESULTS
from oracles.missed import Opportunity
from oracles.verdict import Verdict, Violation
from programs.errors import UserError
from programs.program import Program
from targets.registry import target as target_named
from trials.worker import quiet_torch

STYLES = {
    Verdict.HOLDS: "green",
    Verdict.VIOLATED: "bold red",
    Verdict.UNKNOWN: "yellow",
    Verdict.NOT_APPLICABLE: "dim",
}
WORDS = {each: each.value for each in Verdict} | {
    Verdict.NOT_APPLICABLE: "n/a",
    Verdict.VIOLATED: "wrong",
}


def check_file(
    path: Path,
    targets: Sequence[str] | None,
    function: str,
    inputs: str,
    *,
    missed: bool,
    as_json: bool,
) -> bool:
    """Check what a file defines, print the outcome, and say whether a target broke a promise."""
    chosen = list(targets or DEFAULT_TARGETS)
    for each in chosen:
        target_named(each)  # before the file is run
    quiet_torch()
    with (
        contextlib.redirect_stdout(sys.stderr),
        _stack_of_crashes(),
    ):  # what the user's code prints is no result
        given = read(path, function, inputs)
        try:
            if isinstance(given, Program):
                found = check(given, targets=chosen, missed=missed)
            else:
                found = check(given.function, given.inputs, chosen, file=path, missed=missed)
        except SystemExit as exit_of_user:
            raise UserError(
                f"{path}: {function} calls sys.exit({exit_of_user.code!r})"
            ) from exit_of_user
    for note in found.notes:
        print_lines(notes(), f"note: {note}")
    if as_json:
        write_json({"file": str(path)} | found.to_json())
    else:
        print_check(results(), str(path), found)
    return found.violated


@contextlib.contextmanager
def _stack_of_crashes() -> Iterator[None]:
    """A target that crashes takes this process with it; then at least the Python stack is printed."""
    ours = not faulthandler.is_enabled()
    if ours:
        faulthandler.enable()
    try:
        yield
    finally:
        if ours:
            faulthandler.disable()


def print_check(console: Console, name: str, found: Check) -> None:
    """Verdicts as a table, then reasons, then each violation with its evidence and both runs."""
    print_lines(console, f"{name} in torch {torch.__version__}", "bold")
    _print_eager(console, found.eager)
    if found.eager.unjudged is not None:
        print_lines(console, f"\nNothing was compared: {found.eager.unjudged}.", "yellow")
        return
    console.print()
    _print_matrix(console, found.results)
    _print_reasons(console, found.results)
    for result in found.results.values():
        if result.violated:
            _print_violations(console, found, result)
        elif result.missed is not None:
            _print_missed(console, result.target.name, result.missed)
    console.print()
    print_lines(console, *_summary(found))


def _print_eager(console: Console, eager: Eager) -> None:
    if eager.raised is not None:
        print_lines(console, f"eager raises {eager.raised}")
    elif eager.observation is not None:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        table.add_column("", style="dim")
        table.add_column("", overflow="fold")
        for index, each in enumerate(eager.observation.outputs):
            table.add_row(f"eager output {index}", text(each))
        print_table(console, table)


def _print_matrix(console: Console, found: Mapping[str, TargetResult]) -> None:
    table = Table(
        box=None, padding=(0, 1, 0, 0), header_style="bold"
    )  # eight oracles in 80 columns
    table.add_column("target", no_wrap=True)
    for oracle in (*ON_RESULTS, *ON_GRAPHS):
        table.add_column(oracle, no_wrap=True)
    for name, result in found.items():
        verdicts = [result.reports[oracle].verdict for oracle in (*ON_RESULTS, *ON_GRAPHS)]
        table.add_row(name, *(Text(WORDS[each], STYLES[each]) for each in verdicts))
    print_table(console, table)


def _print_reasons(console: Console, found: Mapping[str, TargetResult]) -> None:
    """Why an oracle did not decide: once for all oracles and targets that say the same."""
    said: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, result in found.items():
        for reason in dict.fromkeys(each.reason for each in result.reports.values() if each.reason):
            oracles = tuple(
                oracle for oracle, each in result.reports.items() if each.reason == reason
            )
            said.setdefault((reason, oracles), []).append(name)
    for (reason, oracles), names in said.items():
        which = (
            "" if len(oracles) == len(ON_RESULTS) + len(ON_GRAPHS) else f" ({', '.join(oracles)})"
        )
        console.print()
        print_lines(console, f"{', '.join(names)}{which}: {reason}", "dim")


def _print_missed(console: Console, target: str, missed: Sequence[Opportunity]) -> None:
    """What could have been in place: no bug, but memory that could be saved."""
    nbytes = sum(each.nbytes for each in missed)
    opportunities = "1 opportunity" if len(missed) == 1 else f"{len(missed)} opportunities"
    console.print()
    if not missed:
        print_lines(console, f"{target} missed nothing that could be in place.")
        return
    print_lines(console, f"{target} missed {opportunities}, {nbytes} bytes:", "bold")
    for each in missed:
        print_lines(console, f"    {each.node} = {each.op}: {each.instead} ({each.nbytes} bytes)")


def _print_violations(console: Console, found: Check, result: TargetResult) -> None:
    print_heading(console, result.target.name)
    new = 0
    for violation in result.violations:
        earlier = found.already_in(result, violation)
        if earlier is not None:
            print_lines(
                console, f"{violation.oracle}: {violation.describe()}, as in {earlier.name}"
            )
            continue
        new += 1
        print_violation(console, violation)
    if new and result.trial is not None and result.trial.target is not None:
        console.print()
        print_side_by_side(console, result.trial.eager, result.trial.target, result.target.name)


def print_violation(console: Console, violation: Violation) -> None:
    """What is wrong, where, and the evidence."""
    print_lines(console, f"{violation.oracle}: {violation.describe()}", "bold red")
    short = [f"{key} {value}" for key, value in violation.evidence.items() if not _long(value)]
    if short:
        print_lines(console, f"  {', '.join(short)}")
    for key, value in violation.evidence.items():
        if _long(value):
            print_lines(
                console,
                textwrap.indent(f"{key}:\n{textwrap.indent(str(value).strip(), '  ')}", "  "),
            )


def _long(value: object) -> bool:
    return len(str(value)) > 60 or "\n" in str(value)


def _summary(found: Check) -> tuple[str, str]:
    wrong = [name for name, each in found.results.items() if each.violated]
    if wrong:
        return f"Wrong: {', '.join(wrong)}.", "bold red"
    if found.eager.raised is not None:
        return "Nothing wrong, but eager raises, so there were no results to compare.", "yellow"
    judged = [name for name, each in found.results.items() if _said_something(each)]
    if not judged:
        return "Nothing wrong was found, but no target could be judged.", "yellow"
    others = [name for name in found.results if name not in judged]
    rest = f" Not judged: {', '.join(others)}." if others else ""
    return f"Nothing wrong: {', '.join(judged)}.{rest}", "bold green"


def _said_something(result: TargetResult) -> bool:
    return any(each.verdict is Verdict.HOLDS for each in result.reports.values())
