"""Latent failures: results are right on all values that were tried, but the graph is wrong.

Only oracle *equivalence* reports them. They are reduced like other failures. No script that needs
torch alone can show them, so they are not confirmed, and they are stored with the suspicions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aliasproof.campaigns.failure.failure import (
    HERE,
    Failure,
    ReducedFailure,
    Runner,
    last_graph,
    reduce_failure,
)
from aliasproof.campaigns.failure.recognition import by_mark, plausible_bugs
from aliasproof.campaigns.failure.signature import signature
from aliasproof.corpus.known_bug import KnownBug
from aliasproof.corpus.known_bugs import mended
from aliasproof.oracles import equivalence
from aliasproof.oracles.verdict import Violation
from aliasproof.programs.errors import Rejected
from aliasproof.programs.program import Program
from aliasproof.reduction.reducer import Reducer
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Target
from aliasproof.trials import time_limit
from aliasproof.trials.attribution import Symptom, latent_violation, shows
from aliasproof.trials.examination import examine
from aliasproof.trials.passes import first_wrong_pass
from aliasproof.trials.trial import Case
from aliasproof.trials.value_search import CAMPAIGN_BUDGET


def latent_failure(symptom: Symptom, program: Program, seed: int) -> Failure | None:
    """The failure of a program with a latent symptom; None if a known bug is behind it."""
    if by_mark(program, symptom, reduced=False) is not None:
        return None
    target = target_named(symptom.target)
    mendable = [bug for bug in plausible_bugs(program, target.name) if bug.mended is not None]
    try:
        with mended(mendable):
            left = latent_violation(Case.of(program), target)
    except Rejected:
        return None
    return None if left is None else Failure(symptom, program, seed)


@dataclass(frozen=True, slots=True)
class Latent:
    """The predicate of a reduction: results are right, and the graph is wrong in the same way."""

    target: Target
    symptom: Symptom

    def grade(self, program: Program) -> int:
        """1 if the program shows it."""
        time_limit.begin()
        return int(shows(program, self.target, self.symptom))


def reduce_latent(failure: Failure, runner: Runner = HERE) -> ReducedFailure | None:
    """Reduce the program of a latent failure. None if the program does not show it again.

    A smaller program may have values that show the difference. Then it is a failure of results.
    `runner` runs programs.
    """
    target, symptom = target_named(failure.symptom.target), failure.symptom
    bugs = plausible_bugs(failure.program, target.name)
    with mended(bugs):
        grade = runner.predicate(Latent(target, symptom).grade)
        if not grade(failure.program):
            return None
        reducer = Reducer(failure.program, grade)
        smallest = reducer.run()
        visible = runner.call(_visible, smallest, target, failure.seed)
        if visible is not None:
            return reduce_failure(visible, runner)
    described: ReducedFailure = runner.call(_described, failure, smallest, bugs)
    return replace(described, tried=reducer.tried, accepted=reducer.accepted, passes=reducer.passes)


def _visible(smallest: Program, target: Target, seed: int) -> Failure | None:
    """The failure of results that other values of a program show, if any do."""
    time_limit.begin(10)
    found = examine(Case.of(smallest), target, search=CAMPAIGN_BUDGET)
    if found.shown is None:
        return None
    shown = found.shown.as_program(smallest)
    visible = examine(Case.of(shown), target).symptom
    return None if visible is None or visible.latent else Failure(visible, shown, seed)


def _described(failure: Failure, smallest: Program, bugs: Sequence[KnownBug]) -> ReducedFailure:
    """What the reduced program shows."""
    time_limit.begin(10)
    target, symptom = target_named(failure.symptom.target), failure.symptom
    with mended(bugs):
        found = examine(Case.of(smallest), target, search=CAMPAIGN_BUDGET)
    violation = next(iter(found.reports[equivalence.ORACLE.name].violations), None)
    blamed = None
    if violation is not None:
        with mended(bugs):
            blamed = first_wrong_pass(Case.of(smallest), target, violation)
    return ReducedFailure(
        signature(symptom, smallest, blamed=blamed.name if blamed else ""),
        violation or Violation(symptom.oracle, symptom.kind, "graph"),
        smallest,
        failure.program,
        failure.seed,
        tried=0,
        accepted=0,
        exact=True,
        graph=last_graph(found.trial),
    )
