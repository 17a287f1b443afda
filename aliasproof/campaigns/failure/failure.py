"""`Failure`: a program that violates a contract; and `ReducedFailure`, what a reduction makes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from aliasproof.campaigns.failure.recognition import by_mark, plausible_bugs, recognised
from aliasproof.campaigns.failure.signature import Signature
from aliasproof.corpus.known_bugs import mended
from aliasproof.ir.errors import Rejected
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom, latent_violation
from aliasproof.judge.trial import Case
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.outcome import DEATHS
from aliasproof.reduction.reducer import StepStatistics
from aliasproof.targets.registry import target as target_named


@dataclass(frozen=True, slots=True)
class Failure:
    """A program as it was drawn, the symptom that it shows, and the seed of its shard.

    `known` is the identifier of the known bug that it is, or None. `suspected` is a known bug whose
    mark it has, if that mark says something of reduced programs alone. Without `known`, the symptom
    is that of torch with all known bugs mended. With `of_group`, the program is made of several
    that are right alone, and whether a known bug is behind it is not asked yet. `violation` is what
    the target that ran showed, if it ran to its end.
    """

    symptom: Symptom
    program: Program
    seed: int
    known: str | None = None
    suspected: str | None = None
    of_group: bool = False
    # The same failure can be seen alone and in a group, at another location.
    violation: Violation | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        symptom: Symptom,
        program: Program,
        seed: int,
        *,
        past_known: bool,
        violation: Violation | None = None,
    ) -> Failure:
        """The failure of a program with this symptom, as this violation showed it.

        `past_known` says that the known bugs are mended already.
        """
        left: Symptom | None = symptom
        if past_known:
            known = by_mark(program, symptom, reduced=False)
        else:
            known, _, left = recognised(program, symptom, reduced=False)
        if known is not None:
            return cls(symptom, program, seed, known, violation=violation)
        # If another symptom is left, a known bug shows the first one and hides this one. If none is
        # left, the violation depended on chance; its reduction will say so.
        left = left or symptom
        suspected = by_mark(program, left, reduced=True)
        return cls(left, program, seed, None, suspected, violation=violation)

    @classmethod
    def latent(cls, symptom: Symptom, program: Program, seed: int) -> Failure | None:
        """The failure of a program with a latent symptom; None if a known bug is behind it."""
        if by_mark(program, symptom, reduced=False) is not None:
            return None
        target = target_named(symptom.target)
        try:
            with mended(plausible_bugs(program, target.name)):
                left = latent_violation(Case.of(program), target)
        except Rejected:
            return None
        return None if left is None else cls(symptom, program, seed)

    @property
    def bucket(self) -> Hashable:
        """What it has in common with others of its kind: the known bug, or else the symptom."""
        return self.known or self.symptom

    @property
    def ends_process(self) -> bool:
        """Whether the program ends its process."""
        return self.symptom.oracle == "errors" and self.symptom.kind.startswith(DEATHS)


@dataclass(frozen=True, slots=True)
class ReducedFailure:
    """A failure whose program was reduced from `original` to `program`.

    `tried` and `accepted` count the candidates of the reduction. `exact` says whether outputs can
    be compared without tolerance. `graph` is the code of the last graph that the target made.
    `passes` says what each step of the reduction cost.
    """

    signature: Signature
    violation: Violation
    program: Program
    original: Program
    seed: int
    tried: int = 0
    accepted: int = 0
    exact: bool = True
    graph: str = ""
    passes: Mapping[str, StepStatistics] = field(default_factory=dict)

    @classmethod
    def unreduced(cls, failure: Failure, reason: str) -> ReducedFailure:
        """A failure that could not be reduced. It keeps the evidence that was seen first.

        Its cause says so, since the kinds of writes of a program that was not reduced tell nothing.
        """
        symptom, program, seen = failure.symptom, failure.program, failure.violation
        place, evidence = ("call", {}) if seen is None else (seen.place, seen.evidence)
        violation = Violation(
            symptom.oracle, symptom.kind, place, {**evidence, "not reduced": reason}
        )
        named = Signature(symptom, f"not reduced: {symptom.kind}", failure.known)
        # Without a run of the program, nothing says that its values are exact.
        return cls(named, violation, program, program, failure.seed, exact=False)
