"""`RunReport`: the contents of a report of a run, as plain values for all formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from aliasproof.campaigns.store.run_contents import KeptCase, RunContents
from aliasproof.campaigns.store.run_view import NOT_SHOWN, Moment
from aliasproof.corpus.bug_files import all_bugs
from aliasproof.oracles.check_result import Row
from aliasproof.oracles.verdict import Violation
from aliasproof.reports.console import counted
from aliasproof.reports.graph_change import GraphChange
from aliasproof.reports.storage_strips import StripSet


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a stored violation in the installed torch.

    `word` is one of 'still there', 'another violation', 'documented', 'not judged', 'not run' and
    'gone'. `text` is a sentence.
    """

    word: str
    text: str

    @property
    def style(self) -> str:
        styles = {"gone": "bold green", "still there": "bold red", "another violation": "bold red"}
        return styles.get(self.word, "yellow")


# States of findings that need no more attention.
SETTLED = ("known", "fixed", "documented", "flaky", "latent")


@dataclass(frozen=True, slots=True)
class OracleVerdict:
    """The verdict of an oracle in a new run. `differences` are one line each."""

    oracle: str
    verdict: str
    reason: str
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SecondRun:
    """A finding, run again in the installed torch. Parts that could not be made are empty.

    `rows` are eager and target side by side. `others` has the verdicts of the run's other targets
    on the program, by target. `notes` say what could not be done, and why.
    """

    torch: str
    status: Status
    verdicts: tuple[OracleVerdict, ...] = ()
    rows: tuple[Row, ...] = ()
    strips: tuple[StripSet, ...] = ()
    graphs: tuple[GraphChange, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BugLink:
    """A known bug: its identifier and title, and the link of its issue, or empty."""

    identifier: str
    title: str
    link: str


@dataclass(frozen=True, slots=True)
class ReportedFinding:
    """A finding as a report shows it.

    `state` is its latest state, `times` how many violations it explains. `size` counts
    instructions, or lines of a Python program, and `drawn_size` is the size before the reduction.
    `ending` says how its script ended. Without a `second` run, `not_run` says why.
    """

    identifier: str
    state: str
    link: str
    note: str
    times: int
    folder: str
    target: str
    violation: Violation
    known: BugLink | None
    latent: bool
    wrong_part: str
    cause: str
    user_level: Mapping[str, str]
    torch: str
    device: str
    seed: int
    size: int
    drawn_size: int
    unit: str
    source: str
    graph: str = ""
    script: str = ""
    issue: str = ""
    ending: str = ""
    second: SecondRun | None = None
    not_run: str = ""

    @property
    def silent(self) -> bool:
        """Whether the target gave a wrong result without raising."""
        return self.violation.silent

    @property
    def settled(self) -> bool:
        """Whether it needs no more attention: it is known, fixed, documented or not confirmed."""
        return self.state in SETTLED or self.known is not None

    @property
    def title(self) -> str:
        """What is wrong, in one line."""
        return f"{self.target}: {' '.join(self.violation.describe().split())}"


@dataclass(frozen=True, slots=True)
class RunReport:
    """The contents of a report on a run, or on a single finding, which has no counts.

    `programs` and `violating` count by target. `known` are the bugs that were hit, with counts.
    `faults` and `drawn` are the JSON output of `faults` and `stats`, if given.
    """

    name: str
    findings: tuple[ReportedFinding, ...]
    command: str = ""
    torches: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    seconds: float = 0.0
    running: bool = False
    programs: Mapping[str, int] = field(default_factory=dict)
    violating: Mapping[str, int] = field(default_factory=dict)
    known: tuple[tuple[BugLink, int], ...] = ()
    moments: tuple[Moment, ...] = ()
    faults: Mapping[str, Any] | None = None
    drawn: Mapping[str, Any] | None = None

    @property
    def unsettled(self) -> tuple[ReportedFinding, ...]:
        """The findings that need a person's attention."""
        return tuple(finding for finding in self.findings if not finding.settled)

    @property
    def confirmed(self) -> tuple[ReportedFinding, ...]:
        """The findings that a script has shown, as a campaign counts them."""
        return tuple(finding for finding in self.findings if finding.state not in NOT_SHOWN)

    @property
    def new(self) -> tuple[ReportedFinding, ...]:
        """The findings that a script has shown, and that need a person's attention."""
        return tuple(finding for finding in self.confirmed if not finding.settled)

    @property
    def verdict(self) -> str:
        """What was found, in a sentence that begins with new findings."""
        silent = sum(finding.silent for finding in self.new)
        known = sum(finding.known is not None for finding in self.confirmed)
        rest = {
            "by known bugs": known,
            "settled": len(self.confirmed) - len(self.new) - known,
            "not confirmed": len(self.findings) - len(self.confirmed),
        }
        first = f"{counted(len(self.new), 'new finding')}, {silent} of them silent"
        parts = [first if self.new else "No new findings"]
        return "; ".join((*parts, *(f"{number} {what}" for what, number in rest.items() if number)))

    def to_json(self) -> dict[str, object]:
        values = asdict(self)
        values["moments"] = [moment._asdict() for moment in self.moments]
        return {"version": 1, **values}


def report_of_run(contents: RunContents, findings: Iterable[ReportedFinding]) -> RunReport:
    """The report of a run with these findings."""
    view = contents.view
    known = tuple((_bug(name), times) for name, times in contents.known.items())
    return RunReport(
        view.folder.resolve().name,
        tuple(findings),
        view.command,
        contents.torches,
        contents.seeds,
        contents.seconds,
        view.running,
        view.programs,
        view.violating,
        known,
        tuple(view.moments),
    )


def in_order(findings: Iterable[ReportedFinding]) -> list[ReportedFinding]:
    """Unsettled findings first, then silent ones, those of Inductor, and short programs."""

    def order(finding: ReportedFinding) -> tuple[object, ...]:
        of_inductor = finding.target.startswith("inductor")
        key = (finding.settled, not finding.silent, not of_inductor, finding.target)
        return *key, finding.size, finding.identifier

    return sorted(findings, key=order)


def reported(case: KeptCase) -> ReportedFinding:
    finding, said = case.finding, case.said
    values: dict[str, Any] = {
        "identifier": finding.identifier,
        "state": said.state,
        "link": said.link,
        "note": said.note,
        "times": said.times,
        "folder": str(case.folder),
        "target": finding.target,
        "violation": finding.violation,
        "known": _bug(finding.known) if finding.known else None,
        "seed": finding.seed,
        "script": case.script,
        "issue": case.issue,
        "ending": case.ending,
    }
    same = ("latent", "wrong_part", "cause", "user_level", "device", "size", "drawn_size", "unit")
    values |= {name: getattr(finding, name) for name in (*same, "source", "graph")}
    return ReportedFinding(torch=finding.torch_version, **values)


def _bug(identifier: str) -> BugLink:
    bug = all_bugs().get(identifier)
    return BugLink(identifier, bug.title, bug.link) if bug else BugLink(identifier, "", "")


def is_web_address(link: str) -> bool:
    """Whether a page may link to a text, which a person wrote: `javascript:` is a link, too."""
    return re.fullmatch(r"https?://[^\s\"'<>]+", link) is not None
