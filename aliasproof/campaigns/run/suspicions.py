"""`Suspicions`: programs with right results, on which an oracle on graphs reports a violation."""

from __future__ import annotations

from dataclasses import dataclass, field

from aliasproof.programs.program import Program
from aliasproof.trials.attribution import Symptom


@dataclass(slots=True)
class Suspicions:
    """By symptom: how many programs show it, and the shortest of them."""

    found: dict[Symptom, tuple[int, Program]] = field(default_factory=dict)

    def add(self, symptom: Symptom, program: Program, count: int = 1) -> None:
        """Count a symptom, and store the program if it is the shortest."""
        before, shortest = self.found.get(symptom, (0, program))
        self.found[symptom] = before + count, min(shortest, program, key=len)
