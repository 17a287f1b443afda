"""The outcome of a check: a table of verdicts, reasons, differences with evidence, both runs."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from aliasproof.oracles.check_result import Check, EagerResult, Row, TargetResult
from aliasproof.oracles.place_names import renamed
from aliasproof.oracles.verdict import Limitation, Report, Verdict, Violation
from aliasproof.reports.console import new_table, print_heading, print_lines, print_table
from aliasproof.reports.verdict_matrix import VerdictMatrix

if TYPE_CHECKING:  # it imports torch, and the process that prints starts at once
    from aliasproof.oracles.missed import Opportunity

LONG_EVIDENCE = 60  # characters; longer evidence has lines of its own


@dataclass(slots=True)
class CheckPrinter:
    """Prints a check while it runs: eager, a row per target when it ends, and then the evidence."""

    console: Console
    name: str
    targets: Sequence[str]
    eager: EagerResult
    strict: bool = False  # notes on graphs count as differences
    _matrix: VerdictMatrix = field(init=False)

    def __post_init__(self) -> None:
        self._matrix = VerdictMatrix(self.console, self.targets)

    def begin(self) -> None:
        """Print the eager run."""
        print_lines(self.console, f"{self.name} in torch {self.eager.torch}", "bold")
        _print_eager(self.console, self.eager)
        if self.eager.unjudged is not None:
            print_lines(self.console, f"\nNothing was compared: {self.eager.unjudged}.", "yellow")
        else:
            self.console.print()

    def target(self, result: TargetResult) -> None:
        """Print the row of a target."""
        if self.eager.unjudged is None:
            self._matrix.print_row(result.target, result.reports)

    def end(self, check: Check) -> None:
        """Print the reasons, each violation with its evidence, and both runs."""
        if self.eager.unjudged is not None:
            return
        _print_reasons(self.console, check.results)
        for result in check.results.values():
            if result.violated or result.documented:
                _print_differences(self.console, check, result)
            if result.missed is not None:
                _print_missed(self.console, result.target, result.missed)
        _print_notes(self.console, check.results)
        self.console.print()
        print_lines(self.console, *_summary(check, self.strict))


def _print_eager(console: Console, eager: EagerResult) -> None:
    if eager.unspecified is not None:
        how = f"unspecified in eager: {eager.unspecified}; the result is that of this device"
        print_lines(console, how, "yellow")
    if eager.raised is not None:
        print_lines(console, f"eager raises {eager.raised}")
        return
    table = new_table(header=False)
    table.add_column("", style="dim")
    table.add_column("", overflow="fold")
    for index, output in enumerate(eager.outputs):
        place = renamed(f"output {index}", eager.names)
        table.add_row(f"eager {place}", output)
    print_table(console, table)


def _print_reasons(console: Console, results: Mapping[str, TargetResult]) -> None:
    """Print why oracles did not decide, once for all oracles and targets with the same reason."""
    targets: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, result in results.items():
        # Often all oracles have one reason, such as a precondition that is not met.
        reasons = [report.reason for report in result.reports.values() if report.reason]
        for reason in dict.fromkeys(reasons):
            oracles = tuple(
                oracle for oracle, report in result.reports.items() if report.reason == reason
            )
            targets.setdefault((reason, oracles), []).append(name)
    for (reason, oracles), names in targets.items():
        which = "" if len(oracles) == len(results[names[0]].reports) else f" ({', '.join(oracles)})"
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


def _print_differences(console: Console, check: Check, result: TargetResult) -> None:
    print_heading(console, result.target)
    if result.blamed:
        print_lines(console, f"first wrong after: {result.blamed}")
    # What is disputed comes last: a reader looks for the clearest violation first.
    shown: list[tuple[Violation, Limitation | None]] = [
        *((violation, None) for violation in sorted(result.violations, key=lambda one: one.label)),
        *((documented.difference, documented.limitation) for documented in result.documented),
    ]
    new, labels = 0, {}
    for violation, limitation in shown:
        earlier = check.already_in(result, violation)
        # Its evidence was printed with the earlier target.
        if earlier is not None:
            print_lines(console, f"{violation.oracle}: {violation.describe()}, as in {earlier}")
            continue
        new += 1
        # The reason of a label is that of all violations that have it, so it is printed once.
        if reason := violation.evidence.get(violation.label):
            labels[violation.label] = reason
            evidence = {k: v for k, v in violation.evidence.items() if k != violation.label}
            violation = replace(violation, evidence=evidence)
        print_violation(console, violation, limitation)
    for label, reason in labels.items():
        print_lines(console, f"{label}: {reason}")
    if new and result.rows:
        console.print()
        print_rows(console, result.rows, result.target)


def print_rows(console: Console, rows: Iterable[Row], target: str) -> None:
    """Print two runs beside each other, with a mark at each difference."""
    table = new_table()
    table.add_column("")
    table.add_column("eager", overflow="fold")
    table.add_column("", style="red")
    table.add_column(target, overflow="fold")
    for place, ours, theirs in rows:
        style = "" if ours == theirs else "red"
        table.add_row(Text(place, "dim"), ours, "" if ours == theirs else "≠", Text(theirs, style))
    print_table(console, table)


def print_violation(
    console: Console, violation: Violation, limitation: Limitation | None = None
) -> None:
    """Print what differs, where, and the evidence. A documented difference has a limitation."""
    label = f" [{violation.label}]" if violation.label else ""
    style = "bold red" if limitation is None else "red"
    print_lines(console, f"{violation.oracle}: {violation.describe()}{label}", style)
    if limitation is not None:
        print_lines(console, f"  documented: {limitation.name}: {limitation.reason}")
    short = [f"{key} {value}" for key, value in violation.evidence.items() if not _long(value)]
    if short:
        print_lines(console, f"  {', '.join(short)}")
    for key, value in violation.evidence.items():
        if _long(value):
            body = textwrap.indent(str(value).strip(), "  ")
            print_lines(console, textwrap.indent(f"{key}:\n{body}", "  "))


def _print_notes(console: Console, results: Mapping[str, TargetResult]) -> None:
    """Print the differences of graphs alone: each cause once, with a count per kind and target."""
    causes: dict[str, Counter[tuple[str, str]]] = {}
    for name, result in results.items():
        for note in result.notes:
            kinds = causes.setdefault(str(note.evidence.get("cause", "")), Counter())
            kinds[name, f"{note.oracle}: {note.kind}"] += 1
    for cause, kinds in causes.items():
        console.print()
        print_lines(console, f"Notes on graphs, on which no result depends: {cause}", "dim")
        for (name, kind), count in kinds.items():
            print_lines(console, f"    {count:3}  {name}  {kind}", "dim")


def _long(value: object) -> bool:
    return len(str(value)) > LONG_EVIDENCE or "\n" in str(value)


def _summary(check: Check, strict: bool) -> tuple[str, str]:
    """The last line and its style. With `strict`, notes on graphs count as differences."""
    by_verdict: dict[Verdict, list[str]] = {verdict: [] for verdict in Verdict}
    inherited = [name for name, it in check.results.items() if it.inherits and not it.violated]
    for name, result in check.results.items():
        if name not in inherited:
            by_verdict[result.verdict].append(name)
    wrong, documented = by_verdict[Verdict.VIOLATED], by_verdict[Verdict.DOCUMENTED]
    equal = by_verdict[Verdict.HOLDS]
    unspecified = check.eager.unspecified is not None
    why = "where eager is unspecified" if unspecified else "as documented"
    noted = [name for name, result in check.results.items() if strict and result.notes]
    lists = (
        ("Wrong", wrong),
        (f"Differs from eager, {why}", documented),
        ("Differs in the metadata of graphs (--strict)", noted),
    )
    differs = [f"{what}: {', '.join(names)}." for what, names in lists if names]
    if not differs and check.eager.raised is not None:
        # A target that raises too is right, but no values were compared.
        return "Nothing wrong, but eager raises, so there are no results to compare.", "yellow"
    if inherited:
        differs.append(f"Not yours, wrong in a layer of torch before: {', '.join(inherited)}.")
    if not differs and not equal:
        return "Nothing wrong was found, but no target could be judged.", "yellow"
    # "Nothing wrong" beside a difference would be read as the whole answer.
    if equal:
        differs.append(f"{'Equal to eager' if differs else 'Nothing wrong'}: {', '.join(equal)}.")
    rest = [*by_verdict[Verdict.UNKNOWN], *by_verdict[Verdict.NOT_APPLICABLE]]
    if rest:
        differs.append(f"Not judged: {', '.join(rest)}.")
    style = "bold red" if wrong else "red" if documented or noted else "bold green"
    return " ".join(differs), style


# --- as JSON --------------------------------------------------------------------------------------


def check_json(check: Check) -> dict[str, object]:
    """The outcome of a check as JSON values."""
    return {
        "torch": check.eager.torch,
        "notes": list(check.notes),
        "eager": _eager_json(check.eager),
        "targets": {
            name: {
                "oracles": {
                    oracle: report_json(report) for oracle, report in result.reports.items()
                },
                "verdict": result.verdict.value,
                "judged": result.judged,
                "violated": result.violated,
                "first wrong after": result.blamed or None,
                "missed": None if result.missed is None else list(map(asdict, result.missed)),
            }
            for name, result in check.results.items()
        },
        "violated": check.violated,
        "judged": any(result.judged for result in check.results.values()),
    }


def _eager_json(eager: EagerResult) -> dict[str, object]:
    return {
        "judged": eager.unjudged is None,
        "reason": eager.unjudged or "",
        "unspecified": eager.unspecified,
        "raises": eager.raised,
        "names": dict(eager.names),
        "outputs": list(eager.outputs),
        "inputs afterwards": list(eager.inputs),
        "compared with tolerance since": eager.rounded,
    }


def report_json(report: Report) -> dict[str, object]:
    """The report of an oracle as JSON values."""
    return {
        "verdict": report.verdict.value,
        "judged": report.verdict not in (Verdict.UNKNOWN, Verdict.NOT_APPLICABLE),
        "reason": report.reason,
        "violations": list(map(_violation_json, report.violations)),
        "documented": [
            _violation_json(documented.difference) | {"limitation": asdict(documented.limitation)}
            for documented in report.documented
        ],
        "notes": list(map(_violation_json, report.notes)),
        "suspected": list(map(_violation_json, report.suspected)),
        "not yours": list(map(_violation_json, report.inherited)),
        "evidence": [dict(difference.evidence) for difference in report.differences],
    }


def _violation_json(violation: Violation) -> dict[str, object]:
    return {
        "kind": violation.kind,
        "place": violation.place,
        "label": violation.label,
        "evidence": dict(violation.evidence),
    }
