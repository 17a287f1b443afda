"""The kill matrix and the coverage of ops, from what `faults --json` and `stats --json` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aliasproof.campaigns.store.store_schema import DAMAGE
from aliasproof.ir.errors import UserError
from aliasproof.reports.run_report import RunReport
from aliasproof.reports.wording import counted, shortened


@dataclass(frozen=True, slots=True)
class TableOfPage:
    """A table under a title, with a sentence below it. The first column names the rows."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str


def by_target(report: RunReport) -> TableOfPage | None:
    """What each target of a run makes of each finding's program; None if there is but one.

    It has the findings that ran again.
    """
    again = [(it, it.second.others) for it in report.findings if it.second and it.second.others]
    asked = (name for finding, words in again for name in (finding.target, *words))
    names = dict.fromkeys((*report.programs, *asked))
    targets = tuple(name for name in names if any(name in (it.target, *by) for it, by in again))
    if not again or len(targets) < 2:
        return None
    rows = tuple(
        (
            finding.identifier,
            *(
                "found here" if name == finding.target else shortened(words.get(name, ""), 120)
                for name in targets
            ),
        )
        for finding, words in again
    )
    caption = (
        "Each program that was reduced for one target, compiled by all targets of the run. 'limit'"
        " is a difference from eager that the target documents."
    )
    return TableOfPage(
        "The same programs through all targets", ("finding", *targets), rows, caption
    )


def kill_matrix(data: Mapping[str, Any]) -> TableOfPage:
    """A row per planted fault, a column per oracle. Raises `UserError` for other JSON."""
    try:
        oracles = [str(name) for name in data["only killer of"]]
        rows = tuple(
            (
                str(row["fault"]),
                _number(row["programs until killed"]),
                *(_number(row["by oracle"].get(oracle)) for oracle in oracles),
            )
            for row in data["faults"]
        )
        killed, survivors = int(data["killed"]), [str(name) for name in data["survivors"]]
    except DAMAGE as reason:
        raise _other_json("--faults", "aliasproof faults --json", reason) from None
    survive = f"; not killed: {', '.join(survivors)}" if survivors else ""
    caption = (
        f"Killed: {killed} of {counted(len(rows), 'planted fault')}{survive}. A number is that of"
        " the first program on which the oracle reports a violation."
    )
    return TableOfPage("Kill matrix", ("fault", "killed", *oracles), rows, caption)


def op_coverage(data: Mapping[str, Any]) -> TableOfPage:
    """A row per group of ops. Raises `UserError` for other JSON."""
    try:
        rows, never = [], 0
        for name, group in data["groups"].items():
            counts = {str(op): int(times) for op, times in group["ops"].items()}
            missing = sorted(op for op, times in counts.items() if not times)
            never += len(missing)
            drawn = f"{len(counts) - len(missing)} of {len(counts)}"
            rows.append((str(name), drawn, str(int(group["instructions"])), ", ".join(missing)))
        programs = int(data["programs"])
    except DAMAGE as reason:
        raise _other_json("--drawn", "aliasproof stats --json", reason) from None
    caption = f"In {counted(programs, 'drawn program')}, {counted(never, 'op')} were never drawn."
    head = ("group", "ops drawn", "instructions", "never drawn")
    return TableOfPage("Coverage of ops", head, tuple(rows), caption)


def _other_json(option: str, command: str, reason: Exception) -> UserError:
    what = f"{type(reason).__name__}: {reason}"
    return UserError(f"{option}: the file is not what '{command}' writes ({what})")


def _number(value: object) -> str:
    return "" if value is None else str(int(str(value)))
