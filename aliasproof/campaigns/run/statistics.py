"""`Statistics`, `Suspicions`: what became of the programs of a shard or a campaign."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from aliasproof.eager.definedness import Undefined
from aliasproof.generators.scene import Counts
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import Examination
from aliasproof.judge.trial import Spent

COUNTS = (
    "programs",
    "discarded",
    "violating",
    "documented",
    "suspicious",
    "companions",
    "not_yours",
)

LONGEST_REASON = 160  # characters


@dataclass(slots=True)
class Statistics:
    """How many programs were drawn, and how many of them ended in each way.

    `discarded` are undefined in eager or rejected. `rejected` counts what the target does not take,
    by reason. `violating` violate the contract, `documented`
    differ from eager only as the target documents. `suspicious` programs have right results, but an
    oracle on graphs reports a violation. `companions` differ from eager only if they are compiled
    together with others. `not_yours` are wrong in a layer before the code of a user; they are no
    findings. `instructions` counts the instructions drawn. `spent` has the seconds by
    part, without reduction. `fired` counts programs by the sites of the compiler that they fired,
    `refused` by those that refused what they matched; programs that are compiled as one count as
    one.
    """

    programs: int = 0
    discarded: int = 0
    documented: int = 0
    violating: int = 0
    suspicious: int = 0
    companions: int = 0
    instructions: Counts = field(default_factory=Counts)
    spent: Spent = field(default_factory=Spent)
    not_yours: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)

    @property
    def judged(self) -> int:
        """How many programs were compared with eager."""
        return self.programs - self.discarded

    def count(self, examination: Examination) -> None:
        """Count one program."""
        self.programs += 1
        self.discarded += examination.rejected is not None
        if examination.rejected is not None and not isinstance(examination.rejected, Undefined):
            self.rejected[" ".join(str(examination.rejected).split())[:LONGEST_REASON]] += 1
        self.violating += examination.failed
        self.documented += bool(examination.documented) and not examination.failed
        self.suspicious += examination.suspicious
        self.spent.add(examination.spent)

    def add(self, other: Statistics) -> None:
        """Add the counts of other programs to these."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.instructions.add(other.instructions)
        self.spent.add(other.spent)
        self.fired.update(other.fired)
        self.refused.update(other.refused)
        self.rejected.update(other.rejected)

    @property
    def undefined_rate(self) -> float:
        """The share of drawn programs that are undefined in eager, between 0 and 1."""
        undefined = self.discarded - self.rejected.total()
        return undefined / self.programs if self.programs else 0.0

    @property
    def discard_rate(self) -> float:
        """The share of drawn programs that were discarded, between 0 and 1."""
        return self.discarded / self.programs if self.programs else 0.0

    def to_json(self) -> dict[str, object]:
        """The counts as JSON values."""
        return {name: getattr(self, name) for name in COUNTS}


@dataclass(slots=True)
class Suspicions:
    """Programs with right results, on which an oracle on graphs reports a violation.

    By symptom: how many programs show it, and the shortest of them.
    """

    found: dict[Symptom, tuple[int, Program]] = field(default_factory=dict)

    def add(self, symptom: Symptom, program: Program, count: int = 1) -> None:
        """Count a symptom, and store the program if it is the shortest."""
        before, shortest = self.found.get(symptom, (0, program))
        self.found[symptom] = before + count, min(shortest, program, key=len)

    def add_all(self, other: Suspicions) -> None:
        """Add those of other programs."""
        for symptom, (count, program) in other.found.items():
            self.add(symptom, program, count)
