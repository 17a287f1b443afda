"""`in_groups`: asks a predicate about the candidates of a reduction, several by one compile.

Most candidates do not fail. A group of them, compiled as one program, tells which could: only those
that differ from eager in the group are asked about alone. A candidate that fails only alone is
passed over, so a result may be larger, and it is sound as without groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Sequence

from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.program import Program
from aliasproof.judge.examination import returning
from aliasproof.judge.groups import GluedCase, Member
from aliasproof.judge.trial import Case, Spent, run_eager
from aliasproof.oracles.judge import judge
from aliasproof.processes import outcome
from aliasproof.reduction.reducer import Evaluate, Predicate
from aliasproof.targets.target import Target

MOST = 16  # candidates that are compiled as one


def in_groups(target: Target, most: int = MOST) -> Evaluate:
    """Ask about one candidate, then about two, then about four, up to `most` at a time.

    After a success the reducer asks anew, and near a success another one is likely.
    """

    def evaluate(predicate: Predicate, candidates: Iterable[Program]) -> Generator[int, None, None]:
        source, size = iter(candidates), 1
        while batch := list(itertools.islice(source, size)):
            outcome.begin(2)
            doubtful = _doubtful(batch, target)
            for index, candidate in enumerate(batch):
                yield predicate(candidate) if index in doubtful else 0
            size = min(2 * size, most)

    return evaluate


def _doubtful(candidates: Sequence[Program], target: Target) -> set[int]:
    """The candidates, by index, that may fail: all that do not pass in the group."""
    members, unknown = [], set()
    for index, candidate in enumerate(candidates):
        case = Case.of(candidate)
        try:
            members.append(Member(index, case, returning(run_eager(case))))
        except Rejected:  # undefined in eager, or eager raises: no failure of the target
            continue
        except InternalError:  # alone, it fails again, and that is noted
            unknown.add(index)
    everyone = unknown | {member.index for member in members}
    if len(members) < 2 or any(member.eager.trace.random for member in members):
        return everyone
    glued_case = GluedCase.of(members)
    try:
        run = glued_case.run(target, Spent())
    except (Rejected, InternalError):
        return everyone
    if run.observation.error is not None:
        return everyone
    return unknown | {
        member.index
        for member, observation in glued_case.parts(run.observation)
        if judge(
            target.contract, member.eager.observation, observation, member.eager.trace
        ).violations
    }
