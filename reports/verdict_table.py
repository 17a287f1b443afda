"""The outcome of a check: a table of verdicts, reasons, violations with evidence, both runs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import torch
from rich.console import Console
from rich.text import Text

from oracles.check_result import Check, EagerResult, TargetResult
from oracles.judge import EVERY_ORACLE
from oracles.missed import Opportunity
from oracles.verdict import Report, Verdict, Violation
from reports.console import new_table, print_heading, print_lines, print_table
from reports.side_by_side import print_side_by_side, value_text

STYLES = {
    Verdict.HOLDS: "green",
    Verdict.VIOLATED: "bold red",
    Verdict.UNKNOWN: "yellow",
    Verdict.NOT_APPLICABLE: "dim",
}
# Short words: one column per oracle has to fit a terminal.
WORDS = {verdict: verdict.value for verdict in Verdict} | {
    Verdict.NOT_APPLICABLE: "n/a",
    Verdict.VIOLATED: "wrong",
}
LONG_EVIDENCE = 60  # characters; longer evidence has lines of its own


def print_check(console: Console, name: str, found: Check) -> None:
    """Print the verdicts, the reasons, each violation with its evidence, and both runs."""
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
            _print_missed(console, result.target, result.missed)
    console.print()
    print_lines(console, *_summary(found))


def _print_eager(console: Console, eager: EagerResult) -> None:
    if eager.raised is not None:
        print_lines(console, f"eager raises {eager.raised}")
    elif eager.observation is not None:
        table = new_table(header=False)
        table.add_column("", style="dim")
        table.add_column("", overflow="fold")
        for index, output in enumerate(eager.observation.outputs):
            table.add_row(f"eager output {index}", value_text(output))
        print_table(console, table)


def _print_matrix(console: Console, found: Mapping[str, TargetResult]) -> None:
    table = new_table(gap=1)
    table.pad_edge = False
    table.add_column("target", no_wrap=True)
    # In less than 84 columns a heading is broken in two, so that no verdict is cut off.
    for oracle in EVERY_ORACLE:
        table.add_column(oracle, overflow="fold")
    for name, result in found.items():
        verdicts = [result.reports[oracle].verdict for oracle in EVERY_ORACLE]
        table.add_row(name, *(Text(WORDS[verdict], STYLES[verdict]) for verdict in verdicts))
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
        which = "" if len(oracles) == len(EVERY_ORACLE) else f" ({', '.join(oracles)})"
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


def _print_violations(console: Console, found: Check, result: TargetResult) -> None:
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
    eager = found.eager.observation
    if new and eager is not None and result.observation is not None:
        console.print()
        print_side_by_side(console, eager, result.observation, result.target)


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


def check_json(found: Check) -> dict[str, object]:
    """The outcome of a check as JSON values."""
    return {
        "torch": torch.__version__,
        "notes": list(found.notes),
        "eager": _eager_json(found.eager),
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


def _eager_json(eager: EagerResult) -> dict[str, object]:
    seen = eager.observation
    return {
        "judged": eager.unjudged is None,
        "reason": eager.unjudged or "",
        "raises": eager.raised,
        "outputs": [value_text(output) for output in seen.outputs] if seen else [],
        "inputs afterwards": [value_text(tensor) for tensor in seen.inputs] if seen else [],
        "compared with tolerance since": eager.trace.rounding.first,
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
