"""`recognised`: the known bug that a violation is, or what is left when all known bugs are patched.

A violation that vanishes while a known bug is patched *is* that bug. Bugs that cannot be patched
are recognised by a mark on the violation and the program. A target that is not `excused` must be
right in torch as it is, known bugs included.
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

    `reduced` says that nothing can be left out of the program: some marks require that. Raises
    `Rejected` if the program is undefined in eager.
    """
    target = target_named(symptom.target)
    if not target.excused:
        return Recognition(None, exact=False, left=symptom)
    case = Case.of(program).under(target)
    # Patches are for targets. Eager runs in torch as it is.
    eager = run_eager(case)
    if target.needs is not None and not target.needs.loaded:
        _run_patched(case, target, eager, [])  # load them: a patch replaces what exists
    patchable = [bug for bug in explaining_bugs(target) if bug.patch is not None]
    # The plausible bugs are few, so try them first; if they are not the cause, try all.
    likely = [bug for bug in plausible_bugs(program, symptom.target) if bug in patchable]
    if likely and (bug := _find_bug(case, target, eager, likely)) is not None:
        return Recognition(bug.identifier, exact=True, left=None)
    outcome.begin(2)
    with patched(patchable):
        examination = examine(case, target, eager=eager)
    if _is_right(examination.trial):
        bug = _find_bug(case, target, eager, patchable)
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

    For a user's pass, these are the bugs of the layers before it. What the pass itself calls of
    torch, such as a pattern matcher, is the user's own choice.
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


def _find_bug(case: Case, target: Target, eager: EagerRun, bugs: list[KnownBug]) -> KnownBug | None:
    """The bug that the program shows, if patching all known bugs makes the program right.

    None if the program is right without any patch, as nothing fails then; and if all of these bugs
    together are not the cause.
    """

    def prevented_by(bugs: list[KnownBug]) -> bool:
        return _is_right(_run_patched(case, target, eager, bugs))

    main = _main(_run_patched(case, target, eager, []))
    if main is None or not prevented_by(bugs):
        return None
    # First look for a single bug that is the cause: it may be the last of a shortest list.
    left = bugs
    while left and (left is bugs or prevented_by(left)):
        number = _shortest(left, prevented_by)
        if number == 1 or prevented_by([left[number - 1]]):
            return left[number - 1]
        left = left[number:]
    # Several bugs at once. The one in question still shows when all others are patched.
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
    """How many of the first bugs must be patched to prevent a violation that all of them prevent.

    Found by bisection: a further patch does not make a right program wrong.
    """
    return 1 + bisect.bisect(range(1, len(bugs)), 0, key=lambda number: prevented_by(bugs[:number]))


def cause_of(program: Program, symptom: Symptom) -> str | None:
    """The known bug behind a violation, as `has_cause` takes it, in few compiles of a long program.

    Empty if the violation remains while all known bugs are patched. None if the cause is unknown:
    the patches left another violation, or several bugs act together, or the target is not excused.
    Raises `Rejected` if the program is undefined in eager.
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
    """Whether a program with this symptom has the cause that `cause_of` returned.

    Two patches can prevent one violation, for example where both concern conditions of one pattern.
    So the bugs that are tried before this one must not be the cause.
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
    """Run with these patches. None if the target rejects the program, which may be empty then."""
    # Each run is a compile, so it gets the time limit of a program.
    outcome.begin()
    with patched(bugs), contextlib.suppress(Rejected):
        return run_trial(case, target, eager=eager)
    return None


def _main(trial: Trial | None) -> Violation | None:
    return None if trial is None else next(iter(trial.judgement.violations), None)


def _is_right(trial: Trial | None) -> bool:
    """Whether the target ran and is right. A documented refusal does not count as a run."""
    return (
        trial is not None
        and not trial.judgement.violations
        and (trial.target.error is None or trial.eager.error is not None)
    )


# --- frequent bugs --------------------------------------------------------------------------------
#
# `FrequentBugs`: known bugs that a campaign has hit often enough are patched in its later shards.
#
# Otherwise they would keep hiding what else a program shows. What is patched in a shard must not
# depend on the number of workers or their speed. So it is decided at fixed positions of the plan:
# the shards of a block have those bugs patched that were hit often in all earlier blocks except the
# last one. That block may still be running, so no worker waits for it. Each block is as long as all
# blocks before it, so this soon suffices for many workers.


BLOCK = 40  # shards of the first block
OFTEN = 20  # hits


@dataclass(slots=True)
class FrequentBugs:
    """Counts the known bugs of the shards that were taken, in the order of the plan."""

    _taken: int = 0
    _hits: Counter[str] = field(default_factory=Counter)
    # `_decided[n]`: what is patched once `n` blocks were taken.
    _decided: list[tuple[str, ...]] = field(default_factory=lambda: [()])

    def hit(self, bugs: Iterable[str]) -> None:
        """Count known bugs that the shard taken now shows."""
        self._hits.update(bugs)

    def take(self) -> None:
        """Count that the next shard of the plan was taken, with all its attempts."""
        self._taken += 1
        if _block(self._taken) > _block(self._taken - 1):
            often = (name for name, hits in self._hits.items() if hits >= OFTEN)
            self._decided.append(
                tuple(it for it in sorted(often) if known_bugs()[it].patch is not None)
            )

    def patched(self, position: int) -> tuple[str, ...] | None:
        """What is patched in the shard at a position of the plan; None if it is still open."""
        blocks = max(_block(position) - 1, 0)
        return self._decided[blocks] if blocks < len(self._decided) else None


def _block(position: int) -> int:
    """The block that a position is in: 40 shards, 40, 80, 160, ..."""
    return (position // BLOCK).bit_length()
