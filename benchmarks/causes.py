"""Signatures per cause: how well signatures tell the causes of violations apart.

The truth is made by mending: a violation that vanishes while one known bug of torch is mended is
that bug. *signatures* are those of a campaign, which names known bugs. *as unknown* are those that
it would give if no bug were known: that is how a new cause will fare. Both should be 1 for each
cause, and no signature should be in two rows. The programs are those of
`aliasproof.corpus.failing`, and the findings of the runs under `runs/`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aliasproof.campaigns.failure.recognition import recognised
from aliasproof.campaigns.failure.signature import signature
from aliasproof.campaigns.store.run_folder import read_findings
from aliasproof.corpus.failing import FailingProgram, failing_programs
from aliasproof.programs.errors import Rejected
from aliasproof.targets.registry import target as target_named
from aliasproof.trials.examination import examine
from aliasproof.trials.trial import Case, run_trial
from benchmarks.tables import Table


@dataclass(frozen=True, slots=True)
class Told:
    """A violation: its cause, told by mending or else by a mark.

    `signature` is that of a campaign, and `unnamed` that of the same violation as an unknown one.
    """

    cause: str
    exact: bool
    signature: str
    unnamed: str


@dataclass(frozen=True, slots=True)
class CauseFigures:
    """All violations that were told, and the number of programs that show none."""

    told: Sequence[Told]
    right: int

    @property
    def by_cause(self) -> dict[str, list[Told]]:
        """The violations of each cause."""
        causes = defaultdict(list)
        for each in self.told:
            causes[each.cause].append(each)
        return dict(sorted(causes.items()))

    def per_cause(self, *, unnamed: bool = False) -> float:
        """The mean number of signatures of a cause."""
        counts = [len(_names(told, unnamed=unnamed)) for told in self.by_cause.values()]
        return sum(counts) / len(counts) if counts else 0.0

    @property
    def shared(self) -> list[str]:
        """The signatures that more than one cause has, named or unnamed."""
        causes = defaultdict(set)
        for each in self.told:
            for name in {each.signature, each.unnamed}:
                causes[name].add(each.cause)
        return sorted(name for name, of in causes.items() if len(of) > 1)

    def tables(self) -> list[Table]:
        rows = []
        for cause, told in self.by_cause.items():
            how = "mended" if all(each.exact for each in told) else "by its mark"
            counts = (len(told), len(_names(told)), len(_names(told, unnamed=True)))
            rows.append((cause, how, *map(str, counts)))
        means = [f"{self.per_cause(unnamed=unnamed):.2f}" for unnamed in (False, True)]
        rows.append(("mean", "", "", *means))
        notes = [
            f"signatures of more than one cause: {', '.join(self.shared) or 'none'}",
            f"programs on which the target is right now: {self.right}",
        ]
        columns = ("cause", "told", "programs", "signatures", "as unknown")
        return [Table("causes: signatures per cause", columns, rows, notes)]


def _names(told: Sequence[Told], *, unnamed: bool = False) -> set[str]:
    return {each.unnamed if unnamed else each.signature for each in told}


def measure(programs: Iterable[FailingProgram] | None = None) -> CauseFigures:
    """Tell the cause of each program and compute its signature."""
    if programs is None:
        findings = [finding for run in Path("runs").glob("*") for finding in read_findings(run)]
        drawn = [FailingProgram(finding.target, finding.program) for finding in findings]
        programs = [*failing_programs(), *drawn]
    told, right = [], 0
    for each in programs:
        found = _told(each)
        if found is None:
            right += 1
        else:
            told.append(found)
    return CauseFigures(told, right)


def _told(failing: FailingProgram) -> Told | None:
    case = Case.of(failing.program)
    symptom = examine(case, target_named(failing.target)).symptom
    if symptom is None:
        return None
    try:
        # The error of the target at fault, which can be another one.
        trial = run_trial(case, target_named(symptom.target))
        known = recognised(failing.program, symptom, reduced=True)
    except Rejected:
        return None
    plain = signature(symptom, failing.program, trial.target.error)
    named = replace(plain, known=known.known)
    cause = known.known or "unknown"
    return Told(cause, known.exact, named.identifier, plain.identifier)
