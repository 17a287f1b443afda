"""`recognised`: the known bug that a violation is, or what is left when all known bugs are patched.

A violation that vanishes while a known bug is patched *is* that bug. Bugs that cannot be patched
are recognised by a mark on the violation and the program. A target that is not `excused` has to be
right in torch as it is.
"""

from __future__ import annotations

import bisect
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import KnownBug, patched
from aliasproof.ir.errors import Rejected
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, EagerRun, Trial, run_eager, run_trial
from aliasproof.oracles.verdict import Violation
from aliasproof.processes import outcome
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Target
from aliasproof.targets.user_targets import YOUR_PASS
from aliasproof.targets.variants import is_variant


class Recognition(NamedTuple):
    """What is known of a violation.

    `known` is the identifier of a known bug, or None. `exact` says that patching the bug removed
    the violation; otherwise it was recognised by its mark. `left` is the symptom that the program
    has while all known bugs are patched, None if it has none.
    """

    known: str | None
    exact: bool
    left: Symptom | None


def recognised(program: Program, symptom: Symptom, *, reduced: bool) -> Recognition:
    """The known bug that the violation with this symptom is.

    `reduced` says whether nothing can be left out of the program: some marks need that. Raises
    `Rejected` if the program is undefined in eager.
    """
    target = target_named(symptom.target)
    if not target.excused:
        return Recognition(None, exact=False, left=symptom)
    case = Case.of(program).under(target)
    # Patches are for targets. Eager runs in torch as it is.
    eager = run_eager(case)
    if target.needs is not None and not target.needs.loaded:
        _run_patched(case, target, eager, [])  # a patch replaces what is there
    patchable = [bug for bug in explaining_bugs(target) if bug.patch is not None]
    # What is plausible is cheap to ask. If that is not the reason, all are.
    likely = [bug for bug in plausible_bugs(program, symptom.target) if bug in patchable]
    if likely and (bug := _which(case, target, eager, likely)) is not None:
        return Recognition(bug.identifier, exact=True, left=None)
    outcome.begin(2)
    with patched(patchable):
        examination = examine(case, target, eager=eager)
    if _is_right(examination.trial):
        bug = _which(case, target, eager, patchable)
        if bug is not None:
            return Recognition(bug.identifier, exact=True, left=None)
    left = examination.symptom if examination.failed else None
    marked = by_mark(program, left or symptom, reduced=reduced)
    return Recognition(marked, exact=False, left=left)


def by_mark(program: Program, symptom: Symptom, *, reduced: bool) -> str | None:
    """The known bug that cannot be patched and has the mark of this violation, or None."""
    for bug in plausible_bugs(program, symptom.target):
        mark = bug.mark
        if mark is None or (mark.reduced and not reduced):
            continue
        if mark.fits(symptom.oracle, symptom.kind, program):
            return bug.identifier
    return None


def explaining_bugs(target: Target) -> list[KnownBug]:
    """The known bugs that a violation of this target can be.

    Of a user's pass, these are the bugs of the layers before it. What it calls of torch itself,
    such as a matcher of patterns, is its own choice.
    """
    before = {layer.name for layer in target.earlier}
    every = known_bugs().values()
    if not target.yours.startswith(YOUR_PASS):
        return list(every)
    return [bug for bug in every if not before.isdisjoint(bug.targets)]


def plausible_bugs(program: Program, target: str) -> list[KnownBug]:
    """The known bugs that this program could show through this target."""
    return [
        bug
        for bug in known_bugs().values()
        if any(is_variant(target, of=name) for name in bug.targets) and bug.plausible(program)
    ]


def _which(case: Case, target: Target, eager: EagerRun, bugs: list[KnownBug]) -> KnownBug | None:
    """The bug that is shown, if the program is right with all known bugs patched.

    None if the program is right without any patch, since what does not fail is no bug; and if all
    of these bugs together are not the reason.
    """

    def prevented_by(bugs: list[KnownBug]) -> bool:
        return _is_right(_run_patched(case, target, eager, bugs))

    main = _main(_run_patched(case, target, eager, []))
    if main is None or not prevented_by(bugs):
        return None
    # First a bug that is the reason alone: the last one of a shortest list may be it.
    left = bugs
    while left and (left is bugs or prevented_by(left)):
        number = _shortest(left, prevented_by)
        if number == 1 or prevented_by([left[number - 1]]):
            return left[number - 1]
        left = left[number:]
    # Several at once. The one in question is wrong in the same way if all others are patched.
    together: list[KnownBug] = []
    left = bugs
    while left and not (together and prevented_by(together)):
        number = _shortest(left, lambda first: prevented_by([*first, *together]))
        together.insert(0, left[number - 1])
        left = left[: number - 1]
    for bug in together:
        others = [other for other in bugs if other is not bug]
        if _main(_run_patched(case, target, eager, others)) == main:
            return bug
    return together[0]


def _shortest(bugs: list[KnownBug], prevented_by: Callable[[list[KnownBug]], bool]) -> int:
    """How many of the first bugs it takes to prevent a violation that all of them prevent.

    Found by halving: a further patch does not make a right program wrong.
    """
    return 1 + bisect.bisect(range(1, len(bugs)), 0, key=lambda number: prevented_by(bugs[:number]))


def cause_of(program: Program, symptom: Symptom) -> str | None:
    """The known bug of a violation as `has_cause` takes it, by few compiles of a long program.

    Empty if the violation is there while all known bugs are patched. None if that is unknown:
    it is another violation then, or several bugs together, or a target that is not excused. Raises
    `Rejected` if the program is undefined in eager.
    """
    target = target_named(symptom.target)
    if not target.excused:
        return None
    case = Case.of(program).under(target)
    eager = run_eager(case)
    left = _run_patched(case, target, eager, explaining_bugs(target))
    if not _is_right(left):
        return "" if _is_of(symptom, left) else None
    bugs = [bug for bug in plausible_bugs(program, target.name) if bug.patch is not None]
    if not bugs:
        return None
    number = _shortest(bugs, lambda some: _is_right(_run_patched(case, target, eager, some)))
    cause = bugs[number - 1].identifier
    return cause if has_cause(program, symptom, cause) else None


def has_cause(program: Program, symptom: Symptom, cause: str) -> bool:
    """Whether a program with this symptom has it for a cause that `cause_of` gave.

    Two patches can prevent one violation, as where both are conditions of one pattern. So the bugs
    that are asked before this one must not be the cause.
    """
    target = target_named(symptom.target)
    case = Case.of(program).under(target)
    eager = run_eager(case)
    if cause:
        if not _is_right(_run_patched(case, target, eager, [known_bugs()[cause]])):
            return False
        rank, patchable = known_bugs()[cause].rank, plausible_bugs(program, target.name)
        earlier = [bug for bug in patchable if bug.patch is not None and bug.rank < rank]
        return not earlier or not _is_right(_run_patched(case, target, eager, earlier))
    return _is_of(symptom, _run_patched(case, target, eager, explaining_bugs(target)))


def _is_of(symptom: Symptom, trial: Trial | None) -> bool:
    main = _main(trial)
    return main is not None and (main.oracle, main.kind) == (symptom.oracle, symptom.kind)


def _run_patched(
    case: Case, target: Target, eager: EagerRun, bugs: Iterable[KnownBug]
) -> Trial | None:
    """None if the target does not take the program: with a patch, nothing may be left for it."""
    # Each is a compile, so that many of them take longer than a program may.
    outcome.begin()
    with patched(bugs), contextlib.suppress(Rejected):
        return run_trial(case, target, eager=eager)
    return None


def _main(trial: Trial | None) -> Violation | None:
    return None if trial is None else next(iter(trial.judgement.violations), None)


def _is_right(trial: Trial | None) -> bool:
    """Whether the target ran and is right. A documented refusal is no run."""
    return (
        trial is not None
        and not trial.judgement.violations
        and (trial.target.error is None or trial.eager.error is not None)
    )


# --- frequent bugs --------------------------------------------------------------------------------
#
# `FrequentBugs`: known bugs that a campaign has hit often enough are patched in its later shards.
#
# They would go on to hide what else a program shows. What is patched in a shard must not depend on
# the number of workers or their speed. So it is decided at fixed places of the plan: the shards of
# a block have those bugs patched that were hit often in all blocks but the one before it. The
# block between is under way meanwhile, so that no worker waits. Each block is as long as all
# before it, so that this holds for many workers soon.


BLOCK = 40  # shards of the first block
OFTEN = 20  # hits


@dataclass(slots=True)
class FrequentBugs:
    """Counts the known bugs of the shards that were taken, in the order of the plan."""

    _taken: int = 0
    _hits: Counter[str] = field(default_factory=Counter)
    # What is patched once that number of blocks was taken.
    _decided: list[tuple[str, ...]] = field(default_factory=lambda: [()])

    def hit(self, bugs: Iterable[str]) -> None:
        """Count known bugs that the shard shows which is taken now."""
        self._hits.update(bugs)

    def take(self) -> None:
        """The next shard of the plan was taken, with all its attempts."""
        self._taken += 1
        if _block(self._taken) > _block(self._taken - 1):
            often = (name for name, hits in self._hits.items() if hits >= OFTEN)
            self._decided.append(
                tuple(it for it in sorted(often) if known_bugs()[it].patch is not None)
            )

    def patched(self, position: int) -> tuple[str, ...] | None:
        """What is patched in the shard at a position of the plan; None if that is open yet."""
        blocks = max(_block(position) - 1, 0)
        return self._decided[blocks] if blocks < len(self._decided) else None


def _block(position: int) -> int:
    """The block that a position is in: 40 shards, 40, 80, 160, ..."""
    return (position // BLOCK).bit_length()
