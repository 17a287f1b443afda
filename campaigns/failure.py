"""`Failure`: a program that violates a contract; and its reduction."""

from __future__ import annotations

from dataclasses import dataclass

from campaigns.signature import Signature, signature
from oracles.verdict import Violation
from programs.program import Program
from reduction.reducer import Reducer
from targets.registry import target as target_named
from trials.attribution import Symptom, shows
from trials.trial import Case, run_trial


@dataclass(frozen=True, slots=True)
class Failure:
    """A program as it was drawn, the symptom that it shows, and the seed of its shard."""

    symptom: Symptom
    program: Program
    seed: int


@dataclass(frozen=True, slots=True)
class ReducedFailure:
    """A failure whose program was reduced from `original` to `program`.

    `tried` and `accepted` count the candidates of the reduction. `exact` says whether outputs can
    be compared without tolerance. `graph` is the code of the last graph that the target made.
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

    @classmethod
    def unreduced(cls, failure: Failure, violation: Violation, *, exact: bool) -> ReducedFailure:
        """A failure whose program cannot be reduced, since it ends the worker process."""
        program = failure.program
        found = signature(failure.symptom, program)
        return cls(found, violation, program, program, failure.seed, 0, 0, exact)


def reduce_failure(failure: Failure) -> ReducedFailure | None:
    """Reduce the program of a failure. None if the program does not fail again."""
    target, symptom = target_named(failure.symptom.target), failure.symptom

    def predicate(candidate: Program) -> bool:
        return shows(candidate, target, symptom)

    # The failure may have depended on what ran before it in its worker. Then it is not a finding.
    if not predicate(failure.program):
        return None
    reducer = Reducer(failure.program, predicate)
    smallest = reducer.run()
    # The reducer keeps the symptom. Evidence and place are those of the reduced program.
    trial = run_trial(Case.of(smallest), target)
    # If an op rounds differently in eager and target, the reproducer must compare with a tolerance.
    results = (*trial.eager.outputs, *trial.eager.inputs)
    return ReducedFailure(
        signature(symptom, smallest),
        trial.judgement.violations[0],
        smallest,
        failure.program,
        failure.seed,
        reducer.tried,
        reducer.accepted,
        exact=all(map(trial.trace.exact, results)),
        graph=trial.build.stages[-1].graph.code if trial.build and trial.build.stages else "",
    )
