"""`reduce_failure`: from a failure to the smallest program that shows it, and what that shows.

A failure whose candidates may end their process is reduced in forks of the worker. There are two
kinds: a program that ends its process, whose candidates must do so, too; and any other failure
whose first reduction ended a worker, where candidates that end their process are left out. A worker
does one such reduction and nothing before it, so forks start in the same state.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from aliasproof.campaigns.failure.failure import Failure, Kept, pass_at_fault, try_program
from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.failure.recognition import (
    by_mark,
    explaining_bugs,
    plausible_bugs,
    recognised,
)
from aliasproof.campaigns.failure.signature import Signature, signature
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import KnownBug, patched
from aliasproof.ir.devices import on_device
from aliasproof.ir.errors import InternalError, Rejected, require_sound_process
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine, require_returned
from aliasproof.judge.groups import GluedCase, Member, can_glue
from aliasproof.judge.localization import first_wrong_pass
from aliasproof.judge.trial import Case, Spent, Trial, processor_seconds, run_eager, run_trial
from aliasproof.judge.value_search import CAMPAIGN_BUDGET
from aliasproof.oracles.judge import judge
from aliasproof.oracles.verdict import ON_VALUES, Violation
from aliasproof.processes import outcome
from aliasproof.processes.isolation import PREPARATION, forked
from aliasproof.processes.outcome import Death, Raised
from aliasproof.reduction.program_steps import PROGRAM
from aliasproof.reduction.reducer import Evaluate, Predicate, Reducer, one_by_one
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Target

# --- glued candidates -----------------------------------------------------------------------------
#
# `evaluate_in_groups`: evaluates a predicate on the candidates of a reduction, several per compile.
#
# Most candidates do not fail. A group of them, compiled as one program, shows which could: only
# those that differ from eager in the group are evaluated by themselves. A candidate that fails only
# by itself is missed, so a result may be larger than without groups, but it is as sound.


MOST = 16  # candidates that are compiled as one


def evaluate_in_groups(target: Target) -> Evaluate[Program]:
    """Evaluate one candidate, then two, then four, up to `MOST` at a time.

    After a success the reducer starts again with one, since another success is likely nearby.
    """

    def evaluate(
        predicate: Predicate[Program], candidates: Iterable[Program]
    ) -> Generator[int, None, None]:
        source, size = iter(candidates), 1
        while batch := list(itertools.islice(source, size)):
            outcome.begin(2)
            doubtful = _doubtful(batch, target)
            for index, candidate in enumerate(batch):
                yield predicate(candidate) if index in doubtful else 0
            size = min(2 * size, MOST)

    return evaluate


def _doubtful(candidates: Sequence[Program], target: Target) -> set[int]:
    """The candidates, by index, that may fail: all that do not pass in the group."""
    members, unknown = [], set()
    for index, candidate in enumerate(candidates):
        case = Case.of(candidate)
        try:
            members.append(Member(index, case, require_returned(run_eager(case))))
        except Rejected:  # undefined in eager, or eager raises: no failure of the target
            continue
        except InternalError:  # by itself, it fails again, and that is noted
            unknown.add(index)
    everyone = unknown | {member.index for member in members}
    if len(members) < 2 or any(member.eager.trace.random for member in members):
        return everyone
    glued_case = GluedCase.of(members)
    try:
        run, _ = glued_case.run(target, Spent())
    except (Rejected, InternalError):
        return everyone
    if run.error is not None:
        return everyone
    return unknown | {
        member.index
        for member, observation in glued_case.parts(run)
        if judge(
            target.contract, member.eager.observation, observation, member.eager.trace
        ).violations
    }


# --- reduction ------------------------------------------------------------------------------------


# Seconds per candidate. With the limit of a campaign, the reduction of a hang would take hours. For
# other failures, a candidate may be a group of programs, whose compile takes long.
HANG_LIMIT, LIMIT = 20.0, 60.0
# How many candidates may hang. A count, not a time, so that equal reductions have equal results.
MOST_HANGS = 25
MOST_FRAMES = 5  # of the evidence of a death
# Processor time after which a reduction takes the smallest program so far. Below the limit of a
# call, and far above what all take but those of long programs through slow targets.
SECONDS = 150.0


def end_of_reduction() -> Callable[[], bool]:
    """Whether `SECONDS` of processor time are over, counted from now."""
    end = processor_seconds() + SECONDS
    return lambda: processor_seconds() > end


class EndedInFork(Exception):
    """A fork ended before its call returned."""

    def __init__(self, death: Death) -> None:
        super().__init__(death.kind)
        self.death = death


@dataclass(slots=True)
class Runner:
    """Makes the calls of a reduction that run programs: in this process, or in `forks` of it.

    In forks, a candidate runs `times` times, each for `limit` seconds; once `most_hangs` candidates
    hung, further ones count as right. Without forks, one that ends its process ends this one. If
    aliasproof itself fails on a candidate, that counts as right, and `mistakes` has the message.
    """

    forks: bool = False
    limit: float = LIMIT
    times: int = 1
    most_hangs: float = math.inf
    hangs: int = 0
    mistakes: list[str] = field(default_factory=list)

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """What the call returns. Raises what it raises, and `EndedInFork` if its fork ends."""
        if not self.forks:
            return function(*arguments)
        outcome = forked(partial(function, *arguments))
        if isinstance(outcome, Raised):
            raise outcome.error
        if isinstance(outcome, Death):
            self.hangs += outcome.hangs
            raise EndedInFork(outcome)
        return outcome.value

    def grade(self, kept: Kept, program: Program) -> int:
        """The grade of a candidate; also if it ends its fork, or aliasproof fails on it."""
        try:
            return self._grade_in_forks(kept, program) if self.forks else kept.grade(program)
        except InternalError as mistake:
            require_sound_process(mistake)
            if str(mistake) not in self.mistakes:
                self.mistakes.append(str(mistake))
            return 0

    def _grade_in_forks(self, kept: Kept, program: Program) -> int:
        grade = 0
        with outcome.lowered(self.limit):
            for _ in range(self.times if self.hangs < self.most_hangs else 0):
                try:
                    grade = int(self.call(kept.grade, program))
                except EndedInFork as end:
                    grade = kept.grade_of_death(end.death)
                if not grade:
                    break
        return grade


def isolated_runner(failure: Failure[Program]) -> Runner:
    """A runner in forks for a failure that may end its process."""
    if not failure.ends_process:
        return Runner(forks=True)
    # A flaky failure cannot be reduced, so candidates run twice, except hangs, which take long.
    times = 1 if failure.symptom.kind == "hangs" else 2
    return Runner(True, HANG_LIMIT, times, MOST_HANGS)


def reduce_failure(
    failure: Failure[Program], runner: Runner | None = None
) -> Finding[Program] | None:
    """Reduce the program of a failure. None if the program does not fail again.

    Unless the failure is a known bug, it is reduced with the known bugs patched: otherwise the
    reduction could end at one of them, since they are near. `runner` runs programs. Raises
    `EndedInFork` if one of its forks ends where none may.
    """
    runner = runner or Runner()
    symptom, target = failure.symptom, target_named(failure.symptom.target)
    every = explaining_bugs(target) if target.excused else []
    if failure.ends_process:  # with the patches, if it still does so
        return _reduce(failure, runner, every) or _reduce(failure, runner)
    if symptom.latent:
        return _reduce(failure, runner, plausible_bugs(failure.program, symptom.target))
    if failure.of_group:
        single = runner.call(_as_of_one, failure)
        return None if single is None else reduce_failure(single, runner)
    if failure.known is None:
        return _reduce(failure, runner, every)
    minimal = runner.call(_minimal, failure, known_bugs()[failure.known])
    return minimal or _reduce(failure, runner)


def _as_of_one(failure: Failure[Program]) -> Failure[Program] | None:
    """The failure of a group as one of a single program; None if it does not fail again."""
    symptom = _symptom(failure.program, failure.symptom.target)
    if symptom is None:
        return None
    return Failure.of(symptom, failure.program, failure.seed, past_known=False)


def _minimal(failure: Failure[Program], bug: KnownBug) -> Finding[Program] | None:
    """The minimal program of a known bug, which is the best evidence; None if it is right."""
    program = on_device(bug.program, failure.program.device)
    symptom = _symptom(program, failure.symptom.target)
    if symptom is None:
        return None
    return _violation_shown(failure, symptom, program, bug.identifier)


def _symptom(program: Program, target: str) -> Symptom | None:
    """The symptom of a program whose results differ; None if they do not."""
    outcome.begin()
    examination = examine(Case.of(program), target_named(target))
    return examination.symptom if examination.failed else None


def _reduce(
    failure: Failure[Program], runner: Runner, bugs: Iterable[KnownBug] = ()
) -> Finding[Program] | None:
    """Reduce a failure with these known bugs patched."""
    with patched(bugs):
        kept = _what_to_keep(failure, runner)
        if kept is None:
            return None
        # Candidates that raise, or end their process, cannot be compiled together with others.
        alone = runner.forks or failure.symptom.latent or failure.symptom.oracle == "errors"
        glued = not alone and kept.target.group > 1 and can_glue(kept.target)
        reducer = Reducer(
            PROGRAM,
            failure.program,
            partial(runner.grade, kept),
            evaluate_in_groups(kept.target) if glued else one_by_one,
            best_grade=len(kept.grades),
            is_over=end_of_reduction(),
        )
        smallest = reducer.run()
        reduced = _failure_shown(failure, kept.grades[reducer.grade - 1], smallest, runner)
        if isinstance(reduced, Failure):
            return reduce_failure(reduced, runner)
    return reduced and replace(
        reduced, tried=reducer.tried, accepted=reducer.accepted, steps=reducer.passes
    )


def _what_to_keep(failure: Failure[Program], runner: Runner) -> Kept | None:
    """What to keep of a failure; None if its program does not fail again.

    It may have depended on what ran before it in its worker. Then there is no finding.
    """
    program, symptom = failure.program, failure.symptom
    if failure.ends_process:
        death = _death(program, symptom, runner)
        return Kept(symptom, step=death.step) if death and death.step != PREPARATION else None
    kept = Kept(symptom, runner.call(pass_at_fault, program, symptom))
    return kept if runner.grade(kept, program) == 1 else None


def _death(program: Program, symptom: Symptom, runner: Runner) -> Death | None:
    """How a program ends its process; None if it does not end as the symptom says."""
    try:
        runner.call(try_program, program, target_named(symptom.target))
    except EndedInFork as end:
        return end.death if end.death.kind == symptom.kind else None
    return None


# --- what the reduced program shows ---------------------------------------------------------------


def _failure_shown(
    failure: Failure[Program], symptom: Symptom, program: Program, runner: Runner
) -> Finding[Program] | Failure[Program] | None:
    """The finding of a reduced program; the failure that it shows instead, if any; or None."""
    if failure.ends_process:
        # With the limit of the campaign: a program that is only slow does not hang.
        death = _death(program, symptom, runner)
        if death is None:
            return None
        # What the first worker printed, and the Python frames in which the reduced program ended.
        evidence = {} if failure.violation is None else dict(failure.violation.evidence)
        if death.stack:
            evidence["in"] = [str(frame) for frame in death.stack[:MOST_FRAMES]]
        symptom = failure.symptom
        said = signature(symptom, program, known=by_mark(program, symptom, reduced=True))
        violation = Violation(symptom.oracle, symptom.kind, "call", evidence)
        return _finding(failure, program, said, violation)
    shown: Finding[Program] | Failure[Program] | None
    if symptom.latent:
        shown = runner.call(_latent_shown, failure, program)
        return shown
    known = by_mark(program, symptom, reduced=True)
    if failure.known is not None:  # the reduction may have moved from one known bug to another
        known = runner.call(partial(recognised, reduced=True), program, symptom).known
    shown = runner.call(_violation_shown, failure, symptom, program, known)
    return shown


def shown_by_reduced(
    symptom: Symptom, program: Program, original: Program
) -> Finding[Program] | None:
    """The finding of a program that was reduced elsewhere; None if its results are right now."""
    known = recognised(program, symptom, reduced=True).known
    return _violation_shown(Failure(symptom, original, seed=0), symptom, program, known)


def _violation_shown(
    failure: Failure[Program], symptom: Symptom, program: Program, known: str | None
) -> Finding[Program] | None:
    """The finding of this program, with its own evidence and location; None if it is right."""
    # Experiments find the pass at fault: each is a compile of its own.
    outcome.begin(10)
    case, target = Case.of(program), target_named(symptom.target)
    trial = run_trial(case, target)
    if not trial.judgement.violations:
        return None  # flaky
    violation = trial.judgement.violations[0]
    wrong_part = first_wrong_pass(case, target, violation, experiments=known is None)
    part = wrong_part.name if wrong_part else ""
    return _finding(
        failure,
        program,
        signature(symptom, program, trial.target.error, known, part),
        _of_two_runs(violation, case, target) if violation.oracle in ON_VALUES else violation,
        # If an op rounds differently in eager and target, the reproducer compares with a tolerance.
        exact=trial.exact(violation.place),
        graph=_last_graph(trial),
    )


def _of_two_runs(violation: Violation, case: Case, target: Target) -> Violation:
    """The violation with only the evidence that a second run has, too: the rest is flaky."""
    violations = run_trial(case, target).judgement.violations
    second = next((other for other in violations if other == violation), violation)
    evidence, other = violation.evidence, second.evidence
    shared = {key: value for key, value in evidence.items() if value == other.get(key)}
    return replace(violation, evidence=shared)


def _latent_shown(
    failure: Failure[Program], program: Program
) -> Finding[Program] | Failure[Program]:
    """The latent finding; or a failure, if the reduced program has values that show it."""
    outcome.begin(10)
    case, symptom = Case.of(program), failure.symptom
    target = target_named(symptom.target)
    examination = examine(case, target, search=CAMPAIGN_BUDGET)
    if examination.shown is not None:
        other = examination.shown.as_program(program)
        visible = _symptom(other, symptom.target)
        if visible is not None:
            return Failure(visible, other, failure.seed)
    outcome.begin(10)
    violation = next(iter(examination.suspected), None)
    wrong_part = None if violation is None else first_wrong_pass(case, target, violation)
    return _finding(
        failure,
        program,
        signature(symptom, program, wrong_part=wrong_part.name if wrong_part else ""),
        violation or Violation(symptom.oracle, symptom.kind, "graph"),
        graph=_last_graph(examination.trial),
    )


def _last_graph(trial: Trial | None) -> str:
    """The code of the last graph that a target made; empty if there is none."""
    if trial is None or trial.build is None or not trial.build.stages:
        return ""
    code: str = trial.build.stages[-1].graph.code
    return code


def unreduced(failure: Failure[Program], reason: str) -> Finding[Program]:
    """A failure that could not be reduced, as a finding with the evidence that was seen first.

    Its cause says so, since only the kinds of writes of a reduced program identify a cause.
    """
    symptom, program, seen = failure.symptom, failure.program, failure.violation
    place, evidence = ("call", {}) if seen is None else (seen.place, seen.evidence)
    violation = Violation(symptom.oracle, symptom.kind, place, {**evidence, "not reduced": reason})
    named = Signature(symptom, f"not reduced: {symptom.kind}", failure.known)
    # The program did not run, so nobody knows whether its values are exact.
    return _finding(failure, program, named, violation, exact=False)


def _finding(
    failure: Failure[Program],
    program: Program,
    said: Signature,
    violation: Violation,
    *,
    exact: bool = True,
    graph: str = "",
) -> Finding[Program]:
    """The finding of a failure with a reduced program, by its signature."""
    # The violation of this run can differ from the first one that a campaign saw.
    seen = Violation(said.symptom.oracle, said.symptom.kind, violation.place, violation.evidence)
    return Finding.of(
        program,
        said.symptom.target,
        seen,
        said.identifier,
        original=failure.program,
        seed=failure.seed,
        cause=said.cause,
        known=said.known,
        latent=said.symptom.latent,
        wrong_part=said.wrong_part,
        exact=exact,
        graph=graph,
    )
