"""Reductions at whose candidates processes end. Each candidate runs in a fork of the worker.

There are two: of a program that ends its process, where that is what a candidate must do, too; and
of any other failure, whose first reduction has ended a worker, where such candidates are left out.
A worker does one careful reduction, and nothing before it, so forks start in the same state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from aliasproof.campaigns.failure.failure import Failure, ReducedFailure, reduce_failure
from aliasproof.campaigns.failure.latent import reduce_latent
from aliasproof.campaigns.failure.recognition import by_mark
from aliasproof.campaigns.failure.signature import signature
from aliasproof.corpus.known_bugs import KNOWN_BUGS, mended
from aliasproof.oracles.verdict import Violation
from aliasproof.programs.program import Program
from aliasproof.reduction.reducer import Predicate, Reducer
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Target
from aliasproof.trials import time_limit
from aliasproof.trials.examination import examine
from aliasproof.trials.forked import DEATHS, forked
from aliasproof.trials.isolation import PREPARATION, Death, Raised
from aliasproof.trials.trial import Case

# Seconds of a candidate. The limit of a campaign would make the reduction of a hang take hours. Of
# other failures, a candidate may be a group of programs, whose compile takes long.
HANG_LIMIT, LIMIT = 20.0, 60.0
# Candidates that may hang. Counted, and not timed, so that equal reductions have equal results.
MOST_HANGS = 25
MOST_FRAMES = 5  # that the evidence has


class EndedInFork(Exception):
    """A fork ended before its call returned. `kind` says how."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class InForks:
    """Runs programs in forks of this process."""

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """What a call returns. Raises what it raises, and `EndedInFork` if it ends its process."""
        outcome = forked(partial(function, *arguments))
        if isinstance(outcome, Raised):
            raise outcome.error
        if isinstance(outcome, Death):
            raise EndedInFork(outcome.kind)
        return outcome.value

    def predicate(self, grade: Predicate) -> Predicate:
        """The predicate, which does not hold for a candidate that ends its process."""

        def careful(program: Program) -> int:
            try:
                with time_limit.lowered(LIMIT):
                    return int(self.call(grade, program))
            except EndedInFork:
                return 0

        return careful


def ends_process(failure: Failure) -> bool:
    """Whether the program of a failure ends its process."""
    return failure.symptom.oracle == "errors" and failure.symptom.kind.startswith(DEATHS)


def reduce_carefully(failure: Failure) -> ReducedFailure | None:
    """Reduce a failure in forks. None if it does not fail again.

    If a process ends where none may, the failure stays as it was drawn.
    """
    if ends_process(failure):
        return reduce_death(failure)
    try:
        reduce = reduce_latent if failure.symptom.latent else reduce_failure
        return reduce(failure, InForks())
    except EndedInFork as end:
        return ReducedFailure.unreduced(failure, f"a process that reduced it {end.kind}")


# --- programs that end their process --------------------------------------------------------------


@dataclass(slots=True)
class SameDeath:
    """The predicate: a candidate ends its process in the same way, in the same step of its trial.

    If eager does so, too, it is no failure of the target. What depends on chance cannot be reduced,
    so a death by a signal must show twice; a hang takes too long for that.
    """

    target: Target
    kind: str
    step: str = ""
    hangs: int = 0

    def grade(self, program: Program) -> int:
        """1 if it does. Nothing does once too many candidates have hung."""
        if self.hangs >= MOST_HANGS:
            return 0
        return int(self._shows(program) and (self.kind == "hangs" or self._shows(program)))

    def _shows(self, program: Program) -> bool:
        death = self.death_of(program)
        return death is not None and (death.kind, death.step) == (self.kind, self.step)

    def death_of(self, program: Program) -> Death | None:
        """How the program ends its process; None if it does not."""
        outcome = forked(partial(_tried, program, self.target))
        if not isinstance(outcome, Death):
            return None
        self.hangs += outcome.kind == "hangs"
        return outcome


def _tried(program: Program, target: Target) -> None:
    time_limit.begin()
    examine(Case.of(program), target, attribute=False)


def reduce_death(failure: Failure) -> ReducedFailure | None:
    """Reduce a program that ends its process. None if it does not end a new one in the same way.

    Known bugs are mended if it does so past them, since a reduction could end at one of them.
    """
    for bugs in (KNOWN_BUGS.values(), ()):
        with mended(bugs):
            reduced = _reduced(failure)
        if reduced is not None:
            return reduced
    return None


def _reduced(failure: Failure) -> ReducedFailure | None:
    symptom = failure.symptom
    same = SameDeath(target_named(symptom.target), symptom.kind)
    death = same.death_of(failure.program)
    if death is None or death.kind != symptom.kind or death.step == PREPARATION:
        return None
    same.step = death.step
    with time_limit.lowered(HANG_LIMIT):
        reducer = Reducer(failure.program, same.grade)
        smallest = reducer.run()
    # With the limit of the campaign: what only takes long is no hang.
    last = same.death_of(smallest)
    if last is None or last.kind != symptom.kind:
        return None
    known = by_mark(smallest, symptom, reduced=True)
    return ReducedFailure(
        signature(symptom, smallest, known=known),
        Violation(symptom.oracle, symptom.kind, "call", _evidence(failure, last)),
        smallest,
        failure.program,
        failure.seed,
        reducer.tried,
        reducer.accepted,
        exact=True,
        passes=reducer.passes,
    )


def _evidence(failure: Failure, death: Death) -> dict[str, object]:
    """What the first worker left, and the Python frames in which the reduced program ended."""
    seen = {} if failure.violation is None else dict(failure.violation.evidence)
    frames = [str(frame) for frame in death.stack[:MOST_FRAMES]]
    return seen | ({"in": frames} if frames else {})
