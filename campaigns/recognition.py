"""`recognised`: the known bug that a violation is.

A violation that vanishes while a bug of torch is mended is that bug. Bugs that cannot be mended are
recognised by a mark on the violation and the program.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from corpus.known_bug import KnownBug
from corpus.known_bugs import KNOWN_BUGS, mended
from oracles.verdict import Violation
from programs.program import Program
from targets.target import Target
from trials.attribution import Symptom
from trials.trial import Case, EagerRun, run_eager, run_trial


class Recognised(NamedTuple):
    """The identifier of a known bug. `exact` says that mending it removed the violation."""

    identifier: str
    exact: bool


def recognised(
    program: Program, target: Target, symptom: Symptom, *, reduced: bool
) -> Recognised | None:
    """The known bug that the violation with this symptom is, or None.

    `reduced` says whether nothing can be left out of the program: some marks need that. Raises
    `Rejected` if the program is undefined in eager.
    """
    known = [
        bug
        for bug in KNOWN_BUGS.values()
        if symptom.target in bug.targets and bug.plausible(program)
    ]
    mendable = [bug for bug in known if bug.mended is not None]
    exact = _by_mending(program, target, mendable, symptom)
    if exact is not None:
        return Recognised(exact.identifier, exact=True)
    for bug in known:
        mark = bug.mark
        if mark is None or (mark.reduced and not reduced):
            continue
        if mark.fits(symptom.oracle, symptom.kind, program):
            return Recognised(bug.identifier, exact=False)
    return None


def _by_mending(
    program: Program, target: Target, bugs: list[KnownBug], symptom: Symptom
) -> KnownBug | None:
    """The first bug without which the program is right."""
    case = Case.of(program)
    # Mends are for targets. Eager runs in torch as it is.
    eager = run_eager(case)
    main = _main(case, target, eager, [])
    # What does not fail any more vanishes with each mend, and is none of them.
    if main is None or (main.oracle, main.kind) != (symptom.oracle, symptom.kind):
        return None
    for bug in bugs:
        if _right(case, target, eager, [bug]):
            return bug
    # Several bugs at once: all mended, the program is right, and without one it is wrong again as
    # before.
    if len(bugs) < 2 or not _right(case, target, eager, bugs):
        return None
    for bug in bugs:
        others = [other for other in bugs if other is not bug]
        if _main(case, target, eager, others) == main:
            return bug
    return None


def _right(case: Case, target: Target, eager: EagerRun, bugs: Iterable[KnownBug]) -> bool:
    """Whether the target runs and is right with these bugs mended. A refusal does not count."""
    with mended(bugs):
        trial = run_trial(case, target, eager=eager)
    return trial.target.error is None and not trial.judgement.violations


def _main(
    case: Case, target: Target, eager: EagerRun, bugs: Iterable[KnownBug]
) -> Violation | None:
    with mended(bugs):
        trial = run_trial(case, target, eager=eager)
    return next(iter(trial.judgement.violations), None)
