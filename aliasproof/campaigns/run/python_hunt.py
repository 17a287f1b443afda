"""`PythonHunt`: the state of a hunt, as listeners see it and as `run.json` records it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from aliasproof.campaigns.store.finding import PythonFinding
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.python_store import JudgedPrograms, PythonStore, ReducedProgram
from aliasproof.campaigns.store.run_folder import RunFolder


@dataclass(slots=True)
class PythonHunt:
    """The programs of a plan: what became of them, and the findings.

    `outcomes` counts programs: holds, undefined, violated, documented, dies, mistakes. `findings`
    are confirmed by their scripts, `unconfirmed` are not; both have one finding for each
    identifier. `repeats` counts programs that violate and were not reduced, since enough others had
    the same cause. `reducing` and `confirming` count what is under way. `notes` tell mistakes of
    aliasproof, and programs that end a process. `opening` says how the hunt begins, and `news` are
    findings that were not there then.
    """

    plan: Plan
    folder: Path
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, PythonFinding] = field(default_factory=dict)
    unconfirmed: dict[str, PythonFinding] = field(default_factory=dict)
    repeats: int = 0
    reducing: int = 0
    confirming: int = 0
    elapsed: float = 0.0
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)
    opening: list[str] = field(default_factory=list)
    news: list[PythonFinding] = field(default_factory=list)

    @property
    def target(self) -> str:
        """The target, or all those of joined runs."""
        return ", ".join(self.plan.targets)

    def path(self, finding: PythonFinding) -> Path:
        """The folder of a finding."""
        files = RunFolder(self.folder)
        find = files.finding_folder if finding.confirmed else files.unconfirmed_folder
        return find(finding.identifier)

    # --- what the results of tasks add, whether they just came or were stored ---

    def add_judged(self, judged: JudgedPrograms) -> None:
        """Count what became of programs."""
        self.outcomes.update(judged.outcomes)
        self.notes += judged.notes

    def add_reduced(self, reduced: ReducedProgram, number: object = "") -> None:
        """Count a reduction that led to no finding. `number` is that of its program."""
        if reduced.documented:
            self.outcomes.update(violated=-1, documented=1)
        if reduced.ended:
            self.outcomes.update(violated=-1, dies=1)
            self.notes.append(f"program {number}, as it is reduced: {reduced.ended}")
        if reduced.mistake:
            self.notes.append(f"program {number}, as it is reduced: {reduced.mistake}")

    def add_finding(self, finding: PythonFinding) -> None:
        """Add what a script confirmed, or did not."""
        where = self.findings if finding.confirmed else self.unconfirmed
        where[finding.identifier] = finding

    @classmethod
    def of_store(cls, plan: Plan, folder: Path, store: PythonStore) -> PythonHunt:
        """What the runs of a store found together; they have no order to fold them in."""
        hunt = cls(plan, folder)
        for judged in store.all_judged():
            hunt.add_judged(judged)
        for number, reduced in store.all_reduced():
            hunt.add_reduced(reduced, number)
        for stored in store.findings():
            if stored.finding.confirmed is None:
                hunt.confirming += 1
            else:
                hunt.add_finding(stored.finding)
        hunt.elapsed, _ = store.store.elapsed()
        return hunt

    # --- for listeners and `run.json` ---

    def in_order(self) -> list[PythonFinding]:
        """The findings: those that are not known first, silent ones before others."""
        findings: Iterable[PythonFinding] = self.findings.values()
        return sorted(findings, key=lambda it: (it.known, not it.silent, it.identifier))

    def to_json(self) -> dict[str, object]:
        """The outcome as JSON values."""
        known = Counter(finding.known for finding in self.findings.values() if finding.known)
        return {
            "version": 1,
            "torch": str(torch.__version__),
            "target": self.target,
            "seed": self.plan.seed,
            "seconds": round(self.elapsed, 1),
            "past known bugs": self.plan.past_known,
            "interrupted": self.interrupted,
            "programs": dict(sorted((+self.outcomes).items())),
            "findings": [
                {"name": it.identifier, **it.to_json(), "folder": str(self.path(it))}
                for it in self.in_order()
            ],
            "known bugs": dict(known),
            "unconfirmed": sorted(self.unconfirmed),
            "not reduced": self.repeats,
            "notes": sorted(self.notes),  # reductions end in any order
        }
