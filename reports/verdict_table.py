"""The outcome of a check on one screen: a table of verdicts, reasons, differences with evidence.

Long texts are cut, long lists are counted, documented differences have one line. `--json` has all.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from aliasproof.oracles.check_result import Check, EagerResult, TargetResult
from aliasproof.oracles.verdict import Report, Verdict, Violation, rename_places
from aliasproof.reports.console import (
    FILE_WIDTH,
    counted,
    in_columns,
    in_lines,
    listed,
    new_table,
    print_heading,
    print_lines,
    print_table,
)
from aliasproof.reports.differences import print_differences

if TYPE_CHECKING:  # they import torch
    from aliasproof.oracles.missed import Opportunity


# The worst first.
STYLES = {
    Verdict.VIOLATED: "bold red",
    Verdict.DOCUMENTED: "red",
    Verdict.UNKNOWN: "yellow",
    Verdict.HOLDS: "green",
    Verdict.NOT_APPLICABLE: "dim",
}
_WORD = max(len(verdict.word) for verdict in Verdict)  # minimal columns for a verdict
OPEN = "?"  # an unknown verdict, if the terminal is too narrow for the word
_SHORT = max(len(verdict.word) for verdict in Verdict if verdict is not Verdict.UNKNOWN)


def _verdict(reports: Mapping[str, Report], oracle: str) -> Verdict:
    return reports[oracle].verdict if oracle in reports else Verdict.NOT_APPLICABLE


MOST_OUTPUT_LINES, MOST_LINES_OF_OUTPUT = 7, 3  # of all outputs of eager, and of one
MOST_REASONS, LONGEST_REASON = 6, 160
MOST_PLACES = 3  # named in one line


@dataclass(frozen=True, slots=True)
class Shown:
    """What to print: documented differences in full, and notes on graphs.

    With `strict`, notes on graphs count as differences.
    """

    documented: bool = False
    strict: bool = False


@dataclass(slots=True)
class CheckPrinter:
    """Prints a check while it runs: eager, a row per target when it ends, and then the evidence."""

    console: Console
    name: str
    targets: Sequence[str]
    eager: EagerResult
    shown: Shown = field(default_factory=Shown)
    oracles: Sequence[str] = ()  # of all rows; by default, of the first
    # Of the columns, by oracle. They are known before the first row.
    _widths: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Print what is compared, and the eager run."""
        through = ", ".join(self.targets)
        head = f"{self.name} in torch {self.eager.torch}, eager beside {through}"
        print_lines(self.console, head, "bold")
        _print_eager(self.console, self.eager)
        if self.eager.unjudged is not None:
            print_lines(self.console, f"\nNothing was compared: {self.eager.unjudged}.", "yellow")
        else:
            self.console.print()

    def target(self, result: TargetResult) -> None:
        if self.eager.unjudged is None:
            self._print_row(result.target, result.reports)

    def end(self, check: Check) -> None:
        """Print the reasons, each violation with its evidence, and both runs."""
        if self.eager.unjudged is not None:
            return
        documented = () if self.shown.documented else _documented(check)
        rows = check.results.items()
        lines = [
            *((reason, "dim") for reason in _reasons(check.results)),
            *((f"{name}: {it.untested}", "yellow") for name, it in rows if it.untested),
            *((line, "red") for line in documented),
            *((note, "dim") for note in _notes(check.results, strict=self.shown.strict)),
        ]
        if lines:
            self.console.print()
        for line, style in lines:
            print_lines(self.console, line, style)
        for names in _alike(check.results, documented=self.shown.documented):
            print_heading(self.console, ", ".join(names))
            first = check.results[names[0]]
            print_differences(self.console, check, first, documented=self.shown.documented)
        for result in check.results.values():
            if result.missed is not None:
                _print_missed(self.console, result.target, result.missed)
        self.console.print()
        print_lines(self.console, *_summary(check, self.shown))

    # --- the table of verdicts ---

    @property
    def _target_width(self) -> int:
        return max(map(len, ["target", *self.targets]))

    def _table_width(self) -> int:
        return self._target_width + sum(width + 1 for width in self._widths.values())

    def _print_row(self, target: str, reports: Mapping[str, Report]) -> None:
        """Print the verdicts on a target. An oracle without a verdict is not applicable."""
        begins = not self._widths
        if begins:
            oracles = self.oracles or list(reports)
            for width in (_WORD, _SHORT):
                self._widths = {oracle: max(len(oracle), width) for oracle in oracles}
                if self._table_width() <= self.console.width:
                    break
        if self._table_width() > self.console.width:
            self._print_list(target, reports)
            return
        if begins:
            self._print_line(Text("target", "bold"), [Text(it, "bold") for it in self._widths])
        cells = []
        for oracle, width in self._widths.items():
            verdict = _verdict(reports, oracle)
            word = verdict.word if len(verdict.word) <= width else OPEN
            cells.append(Text(word, STYLES[verdict]))
        self._print_line(Text(target), cells)

    def _print_line(self, first: Text, cells: Sequence[Text]) -> None:
        line = first.copy()
        line.align("left", self._target_width)
        for cell, width in zip(cells, self._widths.values(), strict=True):
            cell.align("left", width)
            line.append(" ").append_text(cell)
        line.rstrip()
        self.console.print(line, soft_wrap=True)

    def _print_list(self, target: str, reports: Mapping[str, Report]) -> None:
        """Print the oracles with each verdict, the worst first, for a narrow terminal."""
        by_verdict: dict[Verdict, list[str]] = {}
        for oracle in self._widths:
            by_verdict.setdefault(_verdict(reports, oracle), []).append(oracle)
        in_order = sorted(by_verdict, key=list(STYLES).index)
        parts = [f"{verdict.word}: {', '.join(by_verdict[verdict])}" for verdict in in_order]
        print_lines(self.console, f"{target}: {'; '.join(parts)}")


def check_text(check: Check, shown: Shown) -> str:
    """The output of `aliasproof check`, as text for a file."""
    text = io.StringIO()
    console = Console(
        file=text,
        force_terminal=False,
        force_jupyter=False,
        highlight=False,
        emoji=False,
        markup=False,
        width=FILE_WIDTH,
    )
    rows = check.results
    oracles = [*dict.fromkeys(name for result in rows.values() for name in result.reports)]
    printer = CheckPrinter(console, check.name, list(rows), check.eager, shown, oracles)
    printer.begin()
    for result in rows.values():
        printer.target(result)
    printer.end(check)
    return "\n".join((*(f"note: {note}" for note in check.notes), text.getvalue().rstrip()))


def _alike(results: Mapping[str, TargetResult], *, documented: bool) -> list[list[str]]:
    """The targets that differ, grouped if the same would be shown for them."""
    groups: list[tuple[object, list[str]]] = []
    for name, it in results.items():
        limited = it.documented if documented else []
        differences = [*it.violations, *(each.difference for each in limited)]
        # Equal violations can have different evidence.
        evidence = [dict(difference.evidence) for difference in differences]
        what = it.wrong_part, it.violations, limited, evidence, it.rows
        if differences:
            alike = next((names for seen, names in groups if seen == what), [])
            if not alike:
                groups.append((what, alike))
            alike.append(name)
    return [names for _, names in groups]


def _print_eager(console: Console, eager: EagerResult) -> None:
    if eager.unspecified is not None:
        how = f"unspecified in eager: {eager.unspecified}; the result is that of this device"
        print_lines(console, how, "yellow")
    if eager.raised is not None:
        print_lines(console, f"eager raises {eager.raised}")
        return
    table = new_table(header=False)
    table.add_column("", style="dim", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis")
    left = MOST_OUTPUT_LINES
    for index, output in enumerate(eager.outputs):
        if left == 0:
            break
        text = in_lines(output, min(left, MOST_LINES_OF_OUTPUT))
        left -= len(text.splitlines())
        table.add_row(f"eager {rename_places(f'output {index}', eager.names)}", text)
    print_table(console, table)
    if table.row_count < len(eager.outputs):
        print_lines(console, f"and {counted(len(eager.outputs) - table.row_count, 'more output')}")
    if eager.rounded is not None:
        how = f"compared with a tolerance, not exactly: what depends on {eager.rounded}"
        print_lines(console, how, "dim")


ON_MEMORY = ("bounds", "uninitialised")
UNWATCHED = "only for the Python code that Inductor generates, which allocates its buffers"


def _reasons(results: Mapping[str, TargetResult]) -> list[str]:
    """Why oracles did not decide, once for all oracles and targets with the same reason."""
    targets: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, result in results.items():
        # Often all oracles have the same reason, such as an unmet precondition. If a run raised,
        # the missing results need no explanation.
        raised = bool(result.reports["errors"].differences)
        said = [
            report.reason
            for report in result.reports.values()
            if report.reason and not (raised and report.verdict is Verdict.NOT_APPLICABLE)
        ]
        for reason in dict.fromkeys(said):
            oracles = tuple(it for it, report in result.reports.items() if report.reason == reason)
            targets.setdefault((reason, oracles), []).append(name)
    # If another target has reports of these oracles, the table has columns for them.
    shown = {oracle for result in results.values() for oracle in result.reports}
    for name, result in results.items():
        missing = tuple(oracle for oracle in ON_MEMORY if oracle in shown - result.reports.keys())
        if missing and not result.reports["errors"].differences:
            targets.setdefault((UNWATCHED, missing), []).append(name)
    lines = []
    for (reason, oracles), names in targets.items():
        which = "" if len(oracles) == len(results[names[0]].reports) else f" ({', '.join(oracles)})"
        lines.append(f"{', '.join(names)}{which}: {reason}")
    left = len(lines) - MOST_REASONS
    first = [in_columns(line, LONGEST_REASON) for line in lines[:MOST_REASONS]]
    return [*first, f"and {counted(left, 'more reason')}"] if left > 0 else first


def _documented(check: Check) -> Iterator[str]:
    """One line per limitation that explains differences, for all targets together."""
    targets: dict[str, dict[str, list[Violation]]] = {}
    for name, result in check.results.items():
        for documented in result.documented:
            by_target = targets.setdefault(documented.limitation.name, {})
            by_target.setdefault(name, []).append(documented.difference)
    how = "" if check.eager.unspecified is not None else ", documented"
    for limitation, by_target in targets.items():
        differences = next(iter(by_target.values()))
        where = [f"{it.oracle} of {it.place}" for it in differences if it.silent]
        places = f" ({listed(where, MOST_PLACES)})" if where else ""
        yield in_columns(f"{', '.join(by_target)}: {limitation}{how}{places}", LONGEST_REASON)


def _print_missed(console: Console, target: str, missed: Sequence[Opportunity]) -> None:
    """Print what could have been done in place, which would save memory; it is not a bug."""
    console.print()
    if not missed:
        print_lines(console, f"{target} missed nothing that could be in place.")
        return
    nbytes = sum(opportunity.nbytes for opportunity in missed)
    count = "1 opportunity" if len(missed) == 1 else f"{len(missed)} opportunities"
    print_lines(console, f"{target} missed {count} to save memory, {nbytes} bytes:", "bold")
    for it in missed:
        print_lines(console, f"    {it.node} = {it.op} → {it.instead} ({it.nbytes} bytes)")


def _notes(results: Mapping[str, TargetResult], *, strict: bool) -> Iterator[str]:
    """How many differences are only in graphs; with `strict`, each cause and its kinds."""
    causes: dict[str, Counter[tuple[str, str]]] = {}
    for name, result in results.items():
        for note in result.notes:
            kinds = causes.setdefault(str(note.evidence.get("cause", "")), Counter())
            kinds[name, f"{note.oracle}: {note.kind}"] += 1
    if causes and not strict:
        count = counted(sum(kinds.total() for kinds in causes.values()), "note")
        yield f"{count} on graphs, which change no result (--strict shows them)"
        return
    for cause, kinds in causes.items():
        yield f"Notes on graphs, which change no result: {cause}"
        for (name, kind), number in kinds.items():
            yield f"    {number:3}  {name}  {kind}"


def _summary(check: Check, shown: Shown) -> tuple[str, str]:
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
    more = "" if shown.documented else " (--documented shows how)"
    noted = [name for name, result in check.results.items() if shown.strict and result.notes]
    lists = (
        ("Wrong", wrong),
        (f"Differs from eager, {why}{more}", documented),
        ("Differs in the metadata of graphs (--strict)", noted),
    )
    differs = [f"{what}: {', '.join(names)}." for what, names in lists if names]
    if not differs and check.eager.raised is not None:
        # If a target raises as well, it is right, but no values were compared.
        return "Eager raises, so there are no results to compare.", "yellow"
    if inherited:
        differs.append(f"Not yours, wrong in a layer of torch before: {', '.join(inherited)}.")
    if not differs and not equal:
        return "Nothing wrong was found, but no target could be judged.", "yellow"
    # "Nothing wrong" next to a difference would be misread as the whole result.
    if equal:
        differs.append(f"{'Equal to eager' if differs else 'Nothing wrong'}: {', '.join(equal)}.")
    rest = [*by_verdict[Verdict.UNKNOWN], *by_verdict[Verdict.NOT_APPLICABLE]]
    if rest:
        differs.append(f"Not judged: {', '.join(rest)}.")
    style = "bold red" if wrong else "red" if documented or noted else "bold green"
    return " ".join(differs), style


def check_json(check: Check, bugs: Mapping[str, str]) -> dict[str, object]:
    """The outcome of a check as JSON values, with the known bugs of the rows."""
    return {
        "torch": check.eager.torch,
        "notes": list(check.notes),
        "eager": {
            "judged": check.eager.unjudged is None,
            "reason": check.eager.unjudged or "",
            "unspecified": check.eager.unspecified,
            "raises": check.eager.raised,
            "names": dict(check.eager.names),
            "outputs": list(check.eager.outputs),
            "inputs afterwards": list(check.eager.inputs),
            "compared with tolerance since": check.eager.rounded,
        },
        "targets": {
            name: {
                "oracles": {
                    oracle: report_json(report) for oracle, report in result.reports.items()
                },
                "verdict": result.verdict.value,
                "judged": result.judged,
                "violated": result.violated,
                "first wrong after": check.wrong_part(result) or None,
                "known bug": bugs.get(name),
                "untested": result.untested or None,
                "missed": None if result.missed is None else list(map(asdict, result.missed)),
            }
            for name, result in check.results.items()
        },
        "violated": check.violated,
        "judged": any(result.judged for result in check.results.values()),
    }


def report_json(report: Report) -> dict[str, object]:
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
