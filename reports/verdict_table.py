"""The outcome of a check: a table of verdicts, reasons, violations with evidence, both runs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console

from oracles.check_result import Check, TargetResult
from oracles.verdict import Report, Verdict, Violation
from reports.console import new_table, print_heading, print_lines, print_table
from reports.shown_runs import ShownCheck, ShownEager, ShownTarget
from reports.two_runs import Row, print_rows
from reports.verdict_matrix import VerdictMatrix

if TYPE_CHECKING:  # see reports/shown_runs.py
    from oracles.missed import Opportunity

LONG_EVIDENCE = 60  # characters; longer evidence has lines of its own


@dataclass(slots=True)
class CheckPrinter:
    """Prints a check while it runs: eager, a row per target when it ends, and then the evidence."""

    console: Console
    name: str
    targets: Sequence[str]
    found: ShownCheck
    _matrix: VerdictMatrix = field(init=False)

    def __post_init__(self) -> None:
        self._matrix = VerdictMatrix(self.console, self.targets, self.found.eager.oracles)

    def begin(self) -> None:
        """Print the eager run."""
        print_lines(self.console, f"{self.name} in torch {self.found.eager.torch}", "bold")
        eager = self.found.eager
        _print_eager(self.console, eager)
        if eager.unjudged is not None:
            print_lines(self.console, f"\nNothing was compared: {eager.unjudged}.", "yellow")
        else:
            self.console.print()

    def target(self, shown: ShownTarget) -> None:
        """Print the row of a target."""
        if self.found.eager.unjudged is None:
            self._matrix.print_row(shown.result.target, shown.result.reports)

    def end(self, found: ShownCheck) -> None:
        """Print the reasons, each violation with its evidence, and both runs."""
        if found.eager.unjudged is not None:
            return
        check = found.check
        _print_reasons(self.console, check.results)
        for name, result in check.results.items():
            if result.violated:
                _print_violations(self.console, check, result, found.targets[name].rows)
            elif result.missed is not None:
                _print_missed(self.console, result.target, result.missed)
        self.console.print()
        print_lines(self.console, *_summary(check))


def print_check(console: Console, name: str, found: ShownCheck) -> None:
    """Print a check that has ended: verdicts, reasons, violations with evidence, both runs."""
    printer = CheckPrinter(console, name, list(found.targets), found)
    printer.begin()
    for shown in found.targets.values():
        printer.target(shown)
    printer.end(found)


def _print_eager(console: Console, eager: ShownEager) -> None:
    if eager.raised is not None:
        print_lines(console, f"eager raises {eager.raised}")
        return
    table = new_table(header=False)
    table.add_column("", style="dim")
    table.add_column("", overflow="fold")
    for index, output in enumerate(eager.outputs):
        table.add_row(f"eager output {index}", output)
    print_table(console, table)


def _print_reasons(console: Console, found: Mapping[str, TargetResult]) -> None:
    """Print why oracles did not decide, once for all oracles and targets with the same reason."""
    targets: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, result in found.items():
        # Often all oracles have one reason, such as a precondition that is not met.
        reasons = [report.reason for report in result.reports.values() if report.reason]
        for reason in dict.fromkeys(reasons):
            oracles = tuple(
                oracle for oracle, report in result.reports.items() if report.reason == reason
            )
            targets.setdefault((reason, oracles), []).append(name)
    for (reason, oracles), names in targets.items():
        which = "" if len(oracles) == len(found[names[0]].reports) else f" ({', '.join(oracles)})"
        console.print()
        print_lines(console, f"{', '.join(names)}{which}: {reason}", "dim")


def _print_missed(console: Console, target: str, missed: Sequence[Opportunity]) -> None:
    """Print what could have been in place. It is not a bug, but memory that could be saved."""
    console.print()
    if not missed:
        print_lines(console, f"{target} missed nothing that could be in place.")
        return
    nbytes = sum(opportunity.nbytes for opportunity in missed)
    count = "1 opportunity" if len(missed) == 1 else f"{len(missed)} opportunities"
    print_lines(console, f"{target} missed {count} to save memory, {nbytes} bytes:", "bold")
    for opportunity in missed:
        print_lines(
            console,
            f"    {opportunity.node} = {opportunity.op} → {opportunity.instead}"
            f" ({opportunity.nbytes} bytes)",
        )


def _print_violations(
    console: Console, found: Check, result: TargetResult, beside: Sequence[Row]
) -> None:
    print_heading(console, result.target)
    new = 0
    for violation in result.violations:
        earlier = found.already_in(result, violation)
        # Its evidence was printed with the earlier target.
        if earlier is not None:
            print_lines(console, f"{violation.oracle}: {violation.describe()}, as in {earlier}")
            continue
        new += 1
        print_violation(console, violation)
    if new and beside:
        console.print()
        print_rows(console, beside, result.target)


def print_violation(console: Console, violation: Violation) -> None:
    """Print what is wrong, where, and the evidence."""
    print_lines(console, f"{violation.oracle}: {violation.describe()}", "bold red")
    short = [f"{key} {value}" for key, value in violation.evidence.items() if not _long(value)]
    if short:
        print_lines(console, f"  {', '.join(short)}")
    for key, value in violation.evidence.items():
        if _long(value):
            body = textwrap.indent(str(value).strip(), "  ")
            print_lines(console, textwrap.indent(f"{key}:\n{body}", "  "))


def _long(value: object) -> bool:
    return len(str(value)) > LONG_EVIDENCE or "\n" in str(value)


def _summary(found: Check) -> tuple[str, str]:
    """The last line and its style."""
    wrong = [name for name, result in found.results.items() if result.violated]
    if wrong:
        return f"Wrong: {', '.join(wrong)}.", "bold red"
    # A target that raises too is right, but no values were compared.
    if found.eager.raised is not None:
        return "Nothing wrong, but eager raises, so there are no results to compare.", "yellow"
    judged = [name for name, result in found.results.items() if _judged(result)]
    if not judged:
        return "Nothing wrong was found, but no target could be judged.", "yellow"
    others = [name for name in found.results if name not in judged]
    rest = f" Not judged: {', '.join(others)}." if others else ""
    return f"Nothing wrong: {', '.join(judged)}.{rest}", "bold green"


def _judged(result: TargetResult) -> bool:
    # Without a verdict that holds, "nothing wrong" would claim what nobody checked.
    return any(report.verdict is Verdict.HOLDS for report in result.reports.values())


# --- as JSON --------------------------------------------------------------------------------------


def check_json(shown: ShownCheck) -> dict[str, object]:
    """The outcome of a check as JSON values."""
    found = shown.check
    return {
        "torch": shown.eager.torch,
        "notes": list(found.notes),
        "eager": _eager_json(shown.eager),
        "targets": {
            name: {
                "oracles": {
                    oracle: _report_json(report) for oracle, report in result.reports.items()
                },
                "violated": result.violated,
                "missed": None if result.missed is None else list(map(asdict, result.missed)),
            }
            for name, result in found.results.items()
        },
        "violated": found.violated,
    }


def _eager_json(eager: ShownEager) -> dict[str, object]:
    return {
        "judged": eager.unjudged is None,
        "reason": eager.unjudged or "",
        "raises": eager.raised,
        "outputs": list(eager.outputs),
        "inputs afterwards": list(eager.inputs),
        "compared with tolerance since": eager.rounded,
    }


def _report_json(report: Report) -> dict[str, object]:
    violations = [
        {
            "kind": violation.kind,
            "place": violation.place,
            "evidence": dict(violation.evidence),
        }
        for violation in report.violations
    ]
    return {"verdict": report.verdict.value, "reason": report.reason, "violations": violations}
