"""`Failure`: a program that violates a contract; and its reduction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from aliasproof.campaigns.failure.glued_candidates import in_groups
from aliasproof.campaigns.failure.recognition import by_mark, recognised
from aliasproof.campaigns.failure.signature import Signature, signature
from aliasproof.corpus.known_bug import KnownBug
from aliasproof.corpus.known_bugs import KNOWN_BUGS, mended
from aliasproof.oracles.verdict import Violation
from aliasproof.programs.devices import on_device
from aliasproof.programs.errors import Rejected
from aliasproof.programs.program import Program
from aliasproof.reduction.reducer import Predicate, Reducer, StepStatistics, one_by_one
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Target
from aliasproof.trials import time_limit
from aliasproof.trials.attribution import Symptom, grade, graded
from aliasproof.trials.code_generation import GENERATES_CODE
from aliasproof.trials.examination import examine
from aliasproof.trials.groups import can_glue
from aliasproof.trials.passes import first_wrong_pass
from aliasproof.trials.trial import Case, Trial, run_trial


@dataclass(frozen=True, slots=True)
class Failure:
    """A program as it was drawn, the symptom that it shows, and the seed of its shard.

    `known` is the identifier of the known bug that it is, or None. `suspected` is a known bug whose
    mark it has, if that mark says something of reduced programs alone. Without `known`, the symptom
    is that of torch with all known bugs mended. With `company`, the program is made of several that
    are right alone, and whether a known bug is behind it is not asked yet. `violation` is what the
    target that ran showed, if it ran to its end.
    """

    symptom: Symptom
    program: Program
    seed: int
    known: str | None = None
    suspected: str | None = None
    company: bool = False
    # The same failure can be seen alone and in company, at another location.
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
    tried: int
    accepted: int
    exact: bool
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
        found = Signature(symptom, f"not reduced: {symptom.kind}", failure.known)
        # Without a run of the program, nothing says that its values are exact.
        return cls(found, violation, program, program, failure.seed, 0, 0, exact=False)


class Runner(Protocol):
    """Makes the calls of a reduction that run programs, in this process or outside of it."""

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """What a call returns."""

    def predicate(self, grade: Predicate) -> Predicate:
        """The predicate of a reduction. It does not hold for a candidate that ends its process."""


class Here:
    """Runs programs in this process."""

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call the function."""
        return function(*arguments)

    def predicate(self, grade: Predicate) -> Predicate:
        """The predicate itself: a candidate that ends its process ends this one."""
        return grade


HERE = Here()


def reduce_failure(failure: Failure, runner: Runner = HERE) -> ReducedFailure | None:
    """Reduce the program of a failure. None if the program does not fail again.

    What is not a known bug is reduced with the known bugs mended: otherwise the reduction could end
    at one of them, since they are near. `runner` runs programs.
    """
    if failure.company:
        asked = runner.call(_asked, failure)
        return None if asked is None else reduce_failure(asked, runner)
    if failure.known is not None:
        minimal = runner.call(_minimal, failure, KNOWN_BUGS[failure.known])
        return minimal or _reduce(failure, runner)
    with mended(KNOWN_BUGS.values()):
        return _reduce(failure, runner)


def _asked(failure: Failure) -> Failure | None:
    """The failure of a company as that of any program; None if the program does not fail again."""
    time_limit.begin()
    found = examine(Case.of(failure.program), target_named(failure.symptom.target))
    if found.symptom is None or not found.failed:
        return None
    return Failure.of(found.symptom, failure.program, failure.seed, past_known=False)


def _minimal(failure: Failure, bug: KnownBug) -> ReducedFailure | None:
    """The minimal program of a known bug, if the target fails on it. It is the best evidence."""
    time_limit.begin()
    program = on_device(bug.program, failure.program.device)
    found = examine(Case.of(program), target_named(failure.symptom.target))
    if found.symptom is None or not found.failed:
        return None
    return _described(failure, found.symptom, program, bug.identifier)


def _reduce(failure: Failure, runner: Runner) -> ReducedFailure | None:
    target = target_named(failure.symptom.target)
    blamed = runner.call(blamed_pass, failure.program, target, failure.symptom)
    predicate = runner.predicate(SamePass(target, failure.symptom, blamed).grade)
    # The failure may have depended on what ran before it in its worker. Then it is not a finding.
    if predicate(failure.program) != 1:
        return None
    # Those that raise cannot be compiled with others, and those that end processes neither.
    groups = target.group > 1 and can_glue(target) and failure.symptom.oracle != "errors"
    groups = groups and runner is HERE
    reducer = Reducer(
        failure.program,
        predicate,
        in_groups(target) if groups else one_by_one,
        best_grade=len(graded(failure.symptom)),
    )
    smallest = reducer.run()
    symptom = graded(failure.symptom)[reducer.grade - 1]
    if failure.known is None:
        known = by_mark(smallest, symptom, reduced=True)
    else:  # the reduction may have gone from one known bug to another
        known = runner.call(partial(recognised, reduced=True), smallest, symptom).known
    reduced: ReducedFailure = runner.call(_described, failure, symptom, smallest, known)
    return replace(reduced, tried=reducer.tried, accepted=reducer.accepted, passes=reducer.passes)


@dataclass(frozen=True, slots=True)
class SamePass:
    """The predicate of a reduction: a candidate has the symptom, by the same pass of the target.

    The passes of Inductor have many bugs with one symptom. Without the pass, a reduction would end
    at the bug with the shortest program. `blamed` is empty if the pass is not asked for.
    """

    target: Target
    symptom: Symptom
    blamed: str = ""

    def grade(self, program: Program) -> int:
        """As `aliasproof.trials.attribution.grade`; 0 if another pass is at fault."""
        time_limit.begin()
        found = grade(program, self.target, self.symptom)
        if not found or not self.blamed:
            return found
        symptom = graded(self.symptom)[found - 1]
        return found if _pass_of(program, self.target, symptom) == self.blamed else 0


def blamed_pass(program: Program, target: Target, symptom: Symptom) -> str:
    """The pass that each candidate must have at fault; empty if it is not asked for.

    Errors are told by their message. A target that generates code is at fault if its graphs are
    right, and experiments with each candidate would cost too much.
    """
    time_limit.begin()
    generates = target.name.split(":")[0] in GENERATES_CODE
    if target.after is None or generates or symptom.oracle == "errors":
        return ""
    try:
        return _pass_of(program, target, symptom)
    except Rejected:
        return ""


def _pass_of(program: Program, target: Target, symptom: Symptom) -> str:
    """The pass at fault; empty if nothing tells."""
    violation = Violation(symptom.oracle, symptom.kind, "")
    found = first_wrong_pass(Case.of(program), target, violation, experiments=False)
    return "" if found is None else found.name


def _described(
    failure: Failure, symptom: Symptom, program: Program, known: str | None
) -> ReducedFailure:
    """What a run of the reduced program shows: evidence and place are those of this program."""
    # Experiments tell which pass is at fault: each is a compile of its own.
    time_limit.begin(10)
    case, target = Case.of(program), target_named(symptom.target)
    trial = run_trial(case, target)
    violation = trial.judgement.violations[0]
    blamed = first_wrong_pass(case, target, violation, experiments=known is None)
    # If an op rounds differently in eager and target, the reproducer must compare with a tolerance.
    results = (*trial.eager.outputs, *trial.eager.inputs)
    return ReducedFailure(
        signature(symptom, program, trial.target.error, known, blamed.name if blamed else ""),
        violation,
        program,
        failure.program,
        failure.seed,
        tried=0,
        accepted=0,
        exact=all(map(trial.trace.exact, results)),
        graph=last_graph(trial),
    )


def last_graph(trial: Trial | None) -> str:
    """The code of the last graph that a target made; empty if there is none."""
    if trial is None or trial.build is None or not trial.build.stages:
        return ""
    code: str = trial.build.stages[-1].graph.code
    return code
