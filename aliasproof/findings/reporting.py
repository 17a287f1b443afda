"""`report`: a run, or one finding, read and run again for a report.

Findings run again in a separate process, one after the other, while there is time: findings that
need a person's attention come first. The others are reported as they were stored.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aliasproof.campaigns.failure.finding import AnyFinding
from aliasproof.campaigns.store.run_contents import KeptCase, Triaged, read_contents
from aliasproof.campaigns.store.run_folder import MARK, locate, read_finding
from aliasproof.campaigns.store.store_schema import NAME as STORE
from aliasproof.formats.stored_graph import GRAPH
from aliasproof.ir.errors import UserError, printable
from aliasproof.ir.program import Program
from aliasproof.ir.stored_text import read_text
from aliasproof.processes.isolation import Limits, memory_available
from aliasproof.processes.outcome import Death, Outcome, Raised, Returned
from aliasproof.processes.pool import Pool, RemoteCall
from aliasproof.reports.run_report import (
    ReportedFinding,
    RunReport,
    SecondRun,
    in_order,
    report_of_run,
    reported,
)
from aliasproof.targets.registry import is_importable
from aliasproof.targets.user_names import grant

SESSION = "aliasproof.findings.second_run"
LIMIT = 120.0  # seconds of one finding
OUT_OF_TIME = "Not run again: the time was over (--seconds). 'aliasproof show FOLDER' runs it."
STORED = "Not run again: this is what the run stored. 'aliasproof show FOLDER' runs it."
Progress = Callable[[int, int], None]


def report(
    given: str,
    seconds: float,
    own: str | None = None,
    progress: Progress = lambda done, total: None,
) -> RunReport:
    """The report of a run, or of a finding by its folder or name.

    Findings run again for up to `seconds`; a single finding runs in any case, unless `seconds` is
    0. `own` is the target of the user whose code may run. `progress` gets the number of finished
    findings and of all. Raises `UserError` if there is no such run or finding.
    """
    path = Path(given)
    if not path.exists() and len(path.parts) > 1:
        raise UserError(f"{given} does not exist; name the folder of a run, or a finding")
    for graph in (path, *sorted(path.glob("*"))):
        if (graph / GRAPH).is_file():
            raise UserError(
                f"{graph} is a graph of a model; reduce it to a finding by aliasproof minimize"
                f" {shlex.quote(str(graph))} --finding DIR, and name that folder"
            )
    grant([] if own is None else [own])
    # A finding has this file; a run, or any other folder, has not.
    is_run = path.is_dir() and not (path / MARK).is_file()
    contents = read_contents(path) if is_run else None
    cases = contents.cases if contents is not None else (_single(locate(given)),)
    by_name = {case.finding.identifier: case.finding for case in cases}
    targets = () if contents is None else contents.targets
    again = _SecondRuns(by_name, seconds, own, targets)
    findings = again.added(in_order(map(reported, cases)), progress)
    if contents is not None:
        return report_of_run(contents, findings)
    (finding,) = findings
    return RunReport(finding.identifier, (finding,), torches=(finding.torch,))


def _single(folder: Path) -> KeptCase:
    """The finding in a folder; read from its run, if that exists."""
    run = folder.parent.parent
    if (run / STORE).is_file():
        cases = read_contents(run).cases
        named = [case for case in cases if case.folder.resolve() == folder.resolve()]
        if named:
            return named[0]
    stored = read_finding(folder)
    state = {"unconfirmed": "flaky", "suspicions": "latent"}.get(folder.parent.name, "reproduced")
    said = Triaged(folder.name, "known" if stored.known else state, "", "", stored.count)
    script, issue = (_text(folder / name) for name in ("reproducer.py", "issue.md"))
    return KeptCase(stored, said, script, issue, folder)


def _text(file: Path) -> str:
    return printable(read_text(file, within=file.parent)) if file.is_file() else ""


@dataclass(slots=True)
class _SecondRuns:
    """Runs findings again, in a process that can die or hang, until the time is over."""

    findings: dict[str, AnyFinding]
    seconds: float
    own: str | None
    targets: Sequence[str]
    _pool: Pool | None = None  # of one process

    def added(
        self, findings: Sequence[ReportedFinding], progress: Progress
    ) -> list[ReportedFinding]:
        """The findings; those that ran again have the new results."""
        ends, result = time.monotonic() + self.seconds, []
        try:
            for number, finding in enumerate(findings):
                progress(number, len(findings))
                if not is_importable(finding.target):
                    advice = f"Not run again: it needs your code: --target {finding.target}."
                    result.append(replace(finding, not_run=advice))
                elif self.seconds <= 0:
                    result.append(replace(finding, not_run=STORED))
                elif number and time.monotonic() > ends:
                    result.append(replace(finding, not_run=OUT_OF_TIME))
                else:
                    result.append(self._again(finding))
        finally:
            if self._pool is not None:
                self._pool.stop()
        return result

    def _again(self, finding: ReportedFinding) -> ReportedFinding:
        stored = self.findings[finding.identifier]
        outcome = self._call("run_again", finding.device, stored)
        if not isinstance(outcome, Returned):
            return replace(finding, not_run=f"Not run again: {_ending(outcome)}.")
        second: SecondRun = outcome.value
        differs = second.status.word in ("still there", "another violation")
        if isinstance(stored.program, Program) and differs and finding.silent:
            changed = self._call("changed_by_pass", finding.device, stored)
            if isinstance(changed, Returned) and changed.value is not None:
                second = replace(second, graphs=(changed.value, *second.graphs))
            elif not isinstance(changed, Returned):
                note = f"the pass at fault was not searched: {_ending(changed)}"
                second = replace(second, notes=(*second.notes, note))
        return replace(finding, second=replace(second, others=self._others(stored)))

    def _others(self, finding: AnyFinding) -> dict[str, str]:
        """The verdicts of the run's other targets on a program."""
        words, program = dict[str, str](), finding.program
        if not isinstance(program, Program):
            return words
        for name in self.targets:
            if name != finding.target and is_importable(name):
                outcome = self._call("word_on", program.device, program, name)
                words[name] = outcome.value if isinstance(outcome, Returned) else _ending(outcome)
        return words

    def _call(self, function: str, device: str, *arguments: object) -> Outcome:
        if self._pool is None or device != self._pool.device:
            if self._pool is not None:
                self._pool.stop()
            granted = () if self.own is None else (self.own,)
            begin = RemoteCall("", "aliasproof.judge.trial:start_worker", (granted,))
            self._pool = Pool(begin, Limits(LIMIT, memory_available()), 1, device=device)
        return self._pool.call(f"{SESSION}:{function}", *arguments)


def _ending(outcome: Outcome) -> str:
    if isinstance(outcome, Raised):
        return str(outcome.error).partition("\n")[0]
    assert isinstance(outcome, Death)
    return f"it {outcome.describe()}"
