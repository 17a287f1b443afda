"""`Campaign`: the state of a campaign, as listeners see it and as `run.json` records it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

import torch

from aliasproof.campaigns.failure.finding import AnyFinding, Finding
from aliasproof.campaigns.publish.confirmation import Confirmation
from aliasproof.campaigns.run.executor import Mistake, WorkerEnd
from aliasproof.campaigns.run.shard import ShardResult, Statistics, Suspicions
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.campaigns.store.run_lock import FINDINGS, SUSPICIONS
from aliasproof.campaigns.store.run_view import FiredSoFar
from aliasproof.corpus.bug_files import all_bugs
from aliasproof.corpus.known_bug import KnownBug, PythonBug
from aliasproof.ir.program import Program
from aliasproof.oracles.verdict import Violation
from aliasproof.targets.variants import folder_name, is_variant


@dataclass(slots=True)
class Parts:
    """Seconds of processor time of a campaign, by part.

    `searching` draws and runs programs, `recognizing` checks whether failures are known bugs,
    `reducing` makes their programs smaller, `confirming` runs reproducers, `compiling` runs the
    findings under `torch.compile`.
    """

    searching: float = 0.0
    recognizing: float = 0.0
    reducing: float = 0.0
    confirming: float = 0.0
    compiling: float = 0.0

    @property
    def after_search(self) -> float:
        """The share of the time, between 0 and 1, that the parts after the search take."""
        after = self.reducing + self.confirming + self.compiling
        whole = self.searching + self.recognizing + after
        return after / whole if whole else 0.0


@dataclass(slots=True)
class Campaign:
    """Statistics by target, findings by identifier, and counts of everything else.

    `suspicions` are programs with right results on which an oracle on graphs reports a violation.
    `latent` are reduced failures of *equivalence* that no values showed, by identifier.
    `unconfirmed` are reduced violations whose reproducer showed nothing in a fresh process, with
    the reason. None of these are findings. `reducing` and `confirming` count tasks under way, and
    `latent_waiting` latent failures that wait for them.
    `repeats` counts violations that were not reduced because enough others with the same symptom
    were. `known` counts violations by the identifier of the known bug that they are.
    `not_reproduced` counts violations that the reducer did not see again. `mistakes` are errors of
    aliasproof itself; each cost one shard or reduction. `elapsed` is in seconds, `spent` in seconds
    of processor time of all processes. `first_fired` has, by site of the compiler, how many
    programs had run when it first fired.
    """

    plan: Plan
    folder: Path
    statistics: dict[str, Statistics] = field(default_factory=dict)
    findings: dict[str, AnyFinding] = field(default_factory=dict)
    unconfirmed: dict[str, str] = field(default_factory=dict)
    suspicions: Suspicions = field(default_factory=Suspicions)
    latent: dict[str, AnyFinding] = field(default_factory=dict)
    reducing: int = 0
    confirming: int = 0
    latent_waiting: int = 0
    repeats: int = 0
    known: Counter[str] = field(default_factory=Counter)
    not_reproduced: int = 0
    mistakes: list[str] = field(default_factory=list)
    deaths: int = 0
    elapsed: float = 0.0
    spent: Parts = field(default_factory=Parts)
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)
    first_fired: dict[str, int] = field(default_factory=dict)

    @property
    def sites(self) -> FiredSoFar:
        """How many sites of the compiler fired."""
        return FiredSoFar.of(self.first_fired.values(), self.total.programs)

    @property
    def total(self) -> Statistics:
        """The statistics of all targets together."""
        total = Statistics()
        for statistics in self.statistics.values():
            total.add(statistics)
        return total

    @property
    def new_findings(self) -> list[AnyFinding]:
        """The findings that are not known bugs."""
        return [finding for finding in self.findings.values() if not finding.known]

    @property
    def untried(self) -> list[str]:
        """The targets of the plan that ran no program."""
        ran = [name for name, tally in self.statistics.items() if tally.programs]
        plain = self.plan.targets
        return [name for name in plain if not any(is_variant(it, of=name) for it in ran)]

    # --- what the results of tasks add, whether they are new or from the store ---

    def add_outcome(self, shard: Shard, outcome: ShardResult | WorkerEnd | Mistake) -> None:
        """Count the outcome of an attempt at a shard."""
        if isinstance(outcome, WorkerEnd):
            self.deaths += 1
        elif isinstance(outcome, Mistake):
            self.mistakes.append(f"shard {shard.seed} of {shard.target}: {outcome.text}")
        else:
            before = sum(tally.programs for tally in self.statistics.values())
            for site in outcome.statistics.fired:
                self.first_fired.setdefault(site, before)
            self.statistics.setdefault(shard.target, Statistics()).add(outcome.statistics)
            self.suspicions.add_all(outcome.suspicions)
            self.mistakes += outcome.mistakes
            self.spent.searching += outcome.searching
            self.spent.recognizing += outcome.recognizing

    def add_deadly(self, target: str, count: int = 1) -> None:
        """Count programs that end the worker even by themselves; no result of a shard has them."""
        statistics = self.statistics.setdefault(target, Statistics())
        statistics.programs += count
        statistics.violating += count

    def add_documented(self, target: str) -> None:
        """Recount a violation of a target as documented: its reduced program showed that."""
        self.statistics[target].violating -= 1
        self.statistics[target].documented += 1

    def add_confirmed(self, finding: AnyFinding, confirmation: Confirmation) -> None:
        """Add a reduced violation whose reproducer ran."""
        if confirmation.shown:
            self.findings[finding.identifier] = finding
        else:
            what, ending = finding.violation.describe(), confirmation.ending
            otherwise = "" if "shows" in ending else " without showing it"
            self.unconfirmed[finding.identifier] = f"{what}: the reproducer {ending}{otherwise}"

    # --- for listeners and `run.json` ---

    def path(self, finding: AnyFinding) -> Path:
        return RunFolder(self.folder).path(FINDINGS, finding.identifier)

    def to_json(self) -> dict[str, object]:
        files = RunFolder(self.folder)
        return {
            "version": 1,
            "torch": torch.__version__,
            "targets": list(self.plan.targets),
            "seed": self.plan.seed,
            "seconds": round(self.elapsed, 1),
            "seconds of processor time": {
                part: round(seconds, 1) for part, seconds in asdict(self.spent).items()
            },
            "seconds by target": {
                name: {part: round(seconds, 1) for part, seconds in asdict(counts.spent).items()}
                for name, counts in self.statistics.items()
            },
            "past known bugs": self.plan.past_known,
            "device": self.plan.device,
            "interrupted": self.interrupted,
            "worker deaths": self.deaths,
            "sites": self.sites._asdict(),
            "programs": {name: counts.to_json() for name, counts in self.statistics.items()},
            "findings": [
                finding.to_json()
                | {"identifier": finding.identifier, "folder": str(self.path(finding))}
                for finding in findings_in_order(self)
            ],
            "known bugs": [
                {
                    "identifier": bug.identifier,
                    "title": bug.title,
                    "link": bug.link,
                    "attributed": "by patching it" if bug.patch else "by its signature",
                    "violations": count,
                }
                for bug, count in known_in_order(self)
            ],
            "unconfirmed": dict(sorted(self.unconfirmed.items())),
            "latent": [finding.to_json() for _, finding in sorted(self.latent.items())],
            "suspicions": [
                {
                    "identifier": it.identifier,
                    "target": it.target,
                    "oracle": it.oracle,
                    "kind": it.kind,
                    "count": it.count,
                    "folder": str(files.path(SUSPICIONS, it.identifier)),
                }
                for it in suspicions_in_order(self)
            ],
            "not reduced": self.repeats,
            "not reproduced": self.not_reproduced,
            "mistakes of aliasproof": sorted(self.mistakes),  # reductions end in any order
        }


Listener: TypeAlias = Callable[[Campaign], None]


def findings_in_order(campaign: Campaign) -> list[AnyFinding]:
    """The findings: silent ones first, those of Inductor before others, then by target and size."""

    def order(finding: AnyFinding) -> tuple[object, ...]:
        key = (not finding.silent, not finding.of_inductor, finding.target, finding.oracle)
        return *key, finding.size, finding.identifier

    return sorted(campaign.findings.values(), key=order)


def known_in_order(campaign: Campaign) -> list[tuple[KnownBug | PythonBug, int]]:
    """The known bugs that were hit, and how often, the most frequent first."""
    hit = sorted(campaign.known.items(), key=lambda item: (-item[1], item[0]))
    return [(all_bugs()[identifier], count) for identifier, count in hit]


def suspicions_in_order(campaign: Campaign) -> list[Finding[Program]]:
    """The suspicions, the most frequent first. Folders are numbered in this order."""
    # Equally frequent ones are ordered by name, so that the numbers do not depend on timing.
    suspicions = campaign.suspicions.found.items()
    by_frequency = sorted(suspicions, key=lambda item: (-item[1][0], str(item[0])))
    return [
        Finding.of(
            program,
            symptom.target,
            Violation(symptom.oracle, symptom.kind, "graph"),
            f"{folder_name(symptom.target)}-{symptom.oracle}-{number}",
            count=count,
        )
        for number, (symptom, (count, program)) in enumerate(by_frequency, 1)
    ]
