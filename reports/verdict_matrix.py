"""The table of verdicts, one row per target, printed row by row as targets end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from aliasproof.oracles.verdict import Report, Verdict
from aliasproof.reports.console import print_lines

# The worst first.
STYLES = {
    Verdict.VIOLATED: "bold red",
    Verdict.DOCUMENTED: "red",
    Verdict.UNKNOWN: "yellow",
    Verdict.HOLDS: "green",
    Verdict.NOT_APPLICABLE: "dim",
}
# Short words: one column per oracle has to fit a terminal.
WORDS = {verdict: verdict.value for verdict in Verdict} | {
    Verdict.NOT_APPLICABLE: "n/a",
    Verdict.VIOLATED: "wrong",
    Verdict.DOCUMENTED: "limit",
}
_WORD = max(map(len, WORDS.values()))  # the least columns for a verdict
OPEN = "?"  # an unknown verdict, in a terminal that is too narrow for the word
_SHORT = max(len(word) for verdict, word in WORDS.items() if verdict is not Verdict.UNKNOWN)


@dataclass(slots=True)
class VerdictMatrix:
    """Prints a row when a target ends. The width of all columns is known before the first row."""

    console: Console
    targets: Sequence[str]
    oracles: Sequence[str] = ()
    _widths: dict[str, int] = field(default_factory=dict)  # of columns, by oracle

    @property
    def _name(self) -> int:
        return max(map(len, ["target", *self.targets]))

    def _columns(self) -> int:
        return self._name + sum(width + 1 for width in self._widths.values())

    def print_row(self, target: str, reports: Mapping[str, Report]) -> None:
        """Print the verdicts on a target. An oracle that has none is not applicable."""
        begins = not self._widths
        if begins:
            oracles = self.oracles or list(reports)
            self._widths = {oracle: max(len(oracle), _WORD) for oracle in oracles}
            for oracle in sorted(oracles, key=len, reverse=True):
                if self._columns() <= self.console.width:
                    break
                # A heading is broken in two, so that no verdict is cut off.
                self._widths[oracle] = max(_SHORT, (len(oracle) + 1) // 2)
        if self._columns() > self.console.width:
            self._print_list(target, reports)
            return
        if begins:
            self._print_headings()
        cells = []
        for oracle, width in self._widths.items():
            verdict = _verdict(reports, oracle)
            word = WORDS[verdict] if len(WORDS[verdict]) <= width else OPEN
            cells.append(Text(word, STYLES[verdict]))
        self._print_line(Text(target), cells)

    def _print_headings(self) -> None:
        for line in range(2):
            parts = [
                oracle[line * width : (line + 1) * width] for oracle, width in self._widths.items()
            ]
            if any(parts):
                first = Text("" if line else "target", "bold")
                self._print_line(first, [Text(part, "bold") for part in parts])

    def _print_line(self, first: Text, cells: Sequence[Text]) -> None:
        line = first.copy()
        line.align("left", self._name)
        for cell, width in zip(cells, self._widths.values(), strict=True):
            cell.align("left", width)
            line.append(" ").append_text(cell)
        line.rstrip()
        self.console.print(line, soft_wrap=True)

    def _print_list(self, target: str, reports: Mapping[str, Report]) -> None:
        """For narrow terminals: the oracles with each verdict, the worst first."""
        by_verdict: dict[Verdict, list[str]] = {}
        for oracle in self._widths:
            by_verdict.setdefault(_verdict(reports, oracle), []).append(oracle)
        in_order = sorted(by_verdict, key=list(STYLES).index)
        parts = [f"{WORDS[verdict]} in {', '.join(by_verdict[verdict])}" for verdict in in_order]
        print_lines(self.console, f"{target}: {'; '.join(parts)}")


def _verdict(reports: Mapping[str, Report], oracle: str) -> Verdict:
    return reports[oracle].verdict if oracle in reports else Verdict.NOT_APPLICABLE
