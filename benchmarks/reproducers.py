"""Whether the findings of campaigns are shown by their reproducers, and by nothing else.

For each finding of the runs that are named, its program runs again in eager and through its target,
as a campaign runs it, and three things are asked:

- *same evidence*: the reproducer of the folder, in a fresh interpreter, prints what that run shows:
  kind, place and values.
- *silent control*: the same script with eager in the place of the compiler shows nothing.
- *quoted*: `issue.md` has the script and what it printed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aliasproof.campaigns.failure.kept import try_program
from aliasproof.campaigns.publish.confirmation import Confirmation, confirm, shows
from aliasproof.campaigns.publish.issue_text import printed_by
from aliasproof.campaigns.publish.reproducer import Reproducer
from aliasproof.campaigns.publish.user_level import every_reproducer
from aliasproof.campaigns.store.finding import Finding
from aliasproof.campaigns.store.run_folder import read_findings
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.forked import forked
from aliasproof.processes.outcome import Death, Raised
from aliasproof.programs.errors import UserError
from aliasproof.targets.registry import target as target_named
from aliasproof.trials.trial import Case, run_trial
from benchmarks.tables import Table


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """What one finding shows: in a new run, by its reproducer, by the control, and in its issue."""

    finding: str
    kind: str
    same_evidence: bool
    silent_control: bool
    quoted: bool


@dataclass(frozen=True, slots=True)
class AllShown:
    """All findings of some runs."""

    findings: Sequence[AskedAgain]

    def tables(self) -> list[Table]:
        """One row per finding, and how many are right."""
        columns = ("finding", "same evidence", "silent control", "quoted")
        answers = [(it.same_evidence, it.silent_control, it.quoted) for it in self.findings]
        rows = [
            (f"{it.finding}: {it.kind}", *("yes" if right else "NO" for right in row))
            for it, row in zip(self.findings, answers, strict=True)
        ]
        total = (f"{sum(column)} of {len(answers)}" for column in zip(*answers, strict=True))
        return [Table("reproducers of findings", columns, [*rows, ("all", *total)])]


def measure(runs: Sequence[str]) -> AllShown:
    """Ask all findings of these runs."""
    folders = [(run, finding) for run in map(Path, runs) for finding in read_findings(run)]
    if not folders:
        raise UserError("name runs that have findings: --only DIR...")
    return AllShown([_shown(run / "findings" / it.identifier, it) for run, it in folders])


def _shown(folder: Path, finding: Finding) -> AskedAgain:
    kind = finding.kind[:60]
    script = (folder / "reproducer.py").read_text(encoding="utf-8")
    violation, reproducer = _observed(finding), _of_script(finding, script)
    if violation is None or reproducer is None:
        return AskedAgain(
            f"{folder.parent.parent.name}/{finding.identifier}", kind, False, False, False
        )
    ran, control = _run(script), _run(reproducer.control)
    issue = folder / "issue.md"
    return AskedAgain(
        f"{folder.parent.parent.name}/{finding.identifier}",
        kind,
        ran.shown and shows(violation, ran.output),
        control.ending == "exits 0",
        # Code of a user has no issue for PyTorch's tracker.
        not issue.exists()
        or quotes(issue.read_text(encoding="utf-8"), script, ran.output, silent=finding.silent),
    )


def _observed(finding: Finding) -> Violation | None:
    """The violation of the finding in a new run of its program; None if there is none."""
    outcome = forked(partial(_violations, finding))
    if isinstance(outcome, Raised):
        raise outcome.error
    if isinstance(outcome, Death):
        return finding.violation if outcome.kind == finding.kind else None
    violations: list[Violation] = outcome.value
    # Equal kinds and places; the evidence is that of this run.
    return next((it for it in violations if it == finding.violation), None)


def _violations(finding: Finding) -> list[Violation]:
    target = target_named(finding.target)
    if finding.violation.kind.startswith(("dies", "hangs")):
        try_program(finding.program, target)
        return []
    return list(run_trial(Case.of(finding.program), target).judgement.violations)


def _of_script(finding: Finding, script: str) -> Reproducer | None:
    """The reproducer that is this script; None if this aliasproof writes another one."""
    return next((it for it in every_reproducer(finding) if it.script == script), None)


def _run(script: str) -> Confirmation:
    with tempfile.TemporaryDirectory(prefix="aliasproof-") as folder:
        path = Path(folder) / "reproducer.py"
        path.write_text(script, encoding="utf-8")
        return confirm(path)


def quotes(issue: str, script: str, output: str, *, silent: bool) -> bool:
    """Whether an issue has the script and what that printed."""
    printed = printed_by(output).strip()
    if silent:
        return script.strip() in issue and printed in issue
    # The rest of a long message is in the section for error logs, as far as it has room.
    starts = ("expected:", "actual:", "BUG: ")
    lines = [line for line in printed.splitlines() if line.startswith(starts)]
    return script.strip() in issue and "\n".join(lines) in issue
