"""`check`: one function of the user, or one program, held against eager through several targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeAlias

import torch

from aliasproof import held_tensors, user_file
from aliasproof.comparable import Comparable
from aliasproof.side_by_side import text
from aliasproof.user_file import what_was_raised
from oracles.contract import Contract
from oracles.judge import ON_GRAPHS, ON_RESULTS, excluded, judge
from oracles.missed import Opportunity
from oracles.missed import missed as opportunities
from oracles.observation import Observation, observe
from oracles.verdict import Report, Verdict, Violation
from programs.errors import InternalError, Rejected, UserError
from programs.execution import ProgramFunction
from programs.program import Program
from programs.trace import Trace
from programs.values import clone_inputs, input_tensors
from targets.registry import target as target_named
from targets.target import Build, Function, Target
from trials.inspection import look_inside
from trials.trial import Case, Spent, Trial, observed_eager, run_trial

Builder: TypeAlias = Callable[[Function, Sequence[torch.Tensor]], Build]

DEFAULT_TARGETS = ("functionalize", "fx-reinplace", "aot", "aot-epilogue", "identity")
MOST_NAMED = 8  # held tensors named in a note
SEED = 0  # of torch's generator, before every run


@dataclass(frozen=True, slots=True)
class Eager:
    """The eager run. `unjudged` says why it is no measure for any target, None if it is one."""

    observation: Observation | None
    trace: Trace
    unjudged: str | None = None
    raised: str | None = None


@dataclass(frozen=True, slots=True)
class TargetResult:
    """What the oracles say of one target. `trial` is None if eager is no measure.

    `missed` is what its last graph could have done in place; None if nobody asked, or if that graph
    is no whole or wrong.
    """

    target: Target
    reports: Mapping[str, Report]
    trial: Trial | None = None
    missed: Sequence[Opportunity] | None = None

    @property
    def violations(self) -> list[Violation]:
        """All violations, the main one first."""
        return [violation for report in self.reports.values() for violation in report.violations]

    @property
    def violated(self) -> bool:
        """True if the target broke a promise, twice."""
        return bool(self.violations)


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of a check.

    `notes` are for the reader: what was done to make the function comparable.
    """

    eager: Eager
    results: Mapping[str, TargetResult]
    notes: Sequence[str] = ()

    @property
    def violated(self) -> bool:
        """True if any target broke a promise."""
        return any(each.violated for each in self.results.values())

    def already_in(self, result: TargetResult, violation: Violation) -> Target | None:
        """The target that this one builds on, if that one shows the violation too: then it is the one at fault."""
        earlier = result.target.after
        if earlier is None or earlier.name not in self.results:
            return None
        theirs = self.results[earlier.name]
        same = (
            each
            for each in theirs.violations
            if (each.oracle, each.kind) == (violation.oracle, violation.kind)
        )
        found = next(same, None)
        return None if found is None else self.already_in(theirs, found) or earlier

    def to_json(self) -> dict[str, object]:
        """The outcome as JSON values."""
        return {
            "torch": torch.__version__,
            "notes": list(self.notes),
            "eager": _eager_json(self.eager),
            "targets": {
                name: {
                    "oracles": {
                        oracle: _report_json(report) for oracle, report in each.reports.items()
                    },
                    "violated": each.violated,
                    "missed": None if each.missed is None else [asdict(one) for one in each.missed],
                }
                for name, each in self.results.items()
            },
            "violated": self.violated,
        }


def _eager_json(eager: Eager) -> dict[str, object]:
    observation = eager.observation
    return {
        "judged": eager.unjudged is None,
        "reason": eager.unjudged or "",
        "raises": eager.raised,
        "outputs": [text(each) for each in observation.outputs] if observation else [],
        "inputs afterwards": [text(each) for each in observation.inputs] if observation else [],
        "compared with tolerance since": eager.trace.rounding.first,
    }


def _report_json(report: Report) -> dict[str, object]:
    violations = [
        {"kind": v.kind, "place": v.place, "evidence": dict(v.evidence)} for v in report.violations
    ]
    return {"verdict": report.verdict.value, "reason": report.reason, "violations": violations}


# --- the check ------------------------------------------------------------------------------------


def check(
    function: Program | Function,
    inputs: Sequence[torch.Tensor] | None = None,
    targets: Sequence[str] = DEFAULT_TARGETS,
    *,
    file: Path | None = None,
    missed: bool = False,
) -> Check:
    """Run a function in eager and through targets and let every oracle compare. Neither inputs nor function are changed.

    A `Program` brings its own inputs. `file` is where the function stands: errors then name their
    line in it. `missed` asks for what targets missed to do in place, too. Raises `UserError` for an
    unknown target or inputs that cannot be compared.
    """
    chosen = [target_named(name) for name in dict.fromkeys(targets)]
    with torch.random.fork_rng(
        devices=[]
    ):  # the caller's random numbers go on as if nothing had been
        if isinstance(function, Program):
            program = function
            subject = Case(ProgramFunction(program), lambda: _seeded(input_tensors(program)))
            return _check(subject, chosen, [], None, missed=missed)
        if inputs is None:
            raise UserError(
                "check(function, inputs): inputs are missing; only a Program brings its own"
            )
        return _check_function(
            function, user_file.checked(inputs, "inputs"), chosen, file, missed=missed
        )


def _check_function(
    function: Function,
    inputs: Sequence[torch.Tensor],
    targets: Sequence[Target],
    file: Path | None,
    *,
    missed: bool,
) -> Check:
    notes = []
    if any(each.requires_grad for each in inputs):
        notes.append(
            "inputs that require gradients are checked without: the comparison is of inference"
        )
    lifted = held_tensors.lifted(function, inputs)
    held = lifted.held if lifted is not None else ()
    if lifted is not None and held:
        named = [
            f"input {len(inputs) + i} ({name})" for i, name in enumerate(held_tensors.names(lifted))
        ]
        rest = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        notes.append(
            f"tensors that the function holds are passed as further inputs: {', '.join(named[:MOST_NAMED])}{rest}"
        )
    comparable = Comparable(lifted or function)
    everything = (*inputs, *held)
    found = _check(
        Case(comparable, lambda: _seeded(clone_inputs(everything))),
        targets,
        notes,
        file,
        missed=missed,
    )
    return _admit_opaque(found, comparable.opaque)


def _seeded(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The inputs of a run that is about to start, with torch's generator in the same state before each."""
    torch.manual_seed(SEED)
    return tensors


def _check(
    subject: Case,
    targets: Sequence[Target],
    notes: Sequence[str],
    file: Path | None,
    *,
    missed: bool,
) -> Check:
    eager = _run_eager(subject, file)
    if eager.unjudged is not None or eager.observation is None:
        reports = excluded(eager.unjudged or "", (*ON_RESULTS, *ON_GRAPHS)).reports
        return Check(eager, {each.name: TargetResult(each, reports) for each in targets}, notes)
    observed = (eager.observation, eager.trace)
    results = {each.name: _run_target(subject, each, observed) for each in targets}
    if missed:
        results = {
            name: replace(each, missed=_missed(subject, each)) for name, each in results.items()
        }
    return Check(eager, results, notes)


def _missed(subject: Case, result: TargetResult) -> Sequence[Opportunity] | None:
    """What the last graph of a right target could have done in place; None if it has none that can be run by itself."""
    trial = result.trial
    if result.violated or trial is None or trial.build is None or not trial.build.stages:
        return None
    last = trial.build.stages[-1]
    return opportunities(last, subject.fresh_inputs) if last.whole else None


def _run_eager(subject: Case, file: Path | None) -> Eager:
    """Run twice: what differs between two runs from equal inputs is no measure for anybody."""
    try:
        first, trace = observed_eager(subject, Spent())
        again, _ = observed_eager(subject, Spent())
    except Rejected as undefined:
        return Eager(None, Trace(), f"eager gives it no single meaning: {undefined}")
    raised = None if first.error is None else what_was_raised(first.error, file)
    if first.error is not None:
        unwatched = observe(subject.function, subject.fresh_inputs())
        if type(unwatched.error) is not type(
            first.error
        ):  # such as torch.cond, which a dispatch mode must know of
            return Eager(None, trace, f"aliasproof cannot watch its eager run: {raised}")
    difference = next(iter(judge(Contract(), first, again, trace).violations), None)
    if difference is not None:
        reason = (
            f"eager itself differs between two runs from equal inputs: {difference.describe()}; the function keeps state"
            " outside of its inputs, or draws random numbers that torch.manual_seed does not decide"
        )
        return Eager(first, trace, reason, raised)
    return Eager(first, trace, None, raised)


def _run_target(subject: Case, target: Target, eager: tuple[Observation, Trace]) -> TargetResult:
    """What the oracles say; a violation counts if a second run from fresh inputs shows it too."""
    seeded = replace(target, build=_seeding(target.build))
    trial, reports = _tried(subject, seeded, eager)
    if any(each.violations for each in reports.values()):
        _, again = _tried(subject, seeded, eager)
        reports = {name: _seen_twice(report, again[name]) for name, report in reports.items()}
    return TargetResult(target, reports, trial)


def _tried(
    subject: Case, target: Target, eager: tuple[Observation, Trace]
) -> tuple[Trial, dict[str, Report]]:
    """A trial, and what all oracles say of it."""
    trial = run_trial(subject, target, eager=eager)
    try:
        inside = look_inside(subject, target, trial).reports
    except InternalError as error:  # of a function that does what no dispatch mode can follow
        inside = dict.fromkeys(ON_GRAPHS, Report(Verdict.UNKNOWN, reason=str(error)))
    return trial, {**trial.judgement.reports, **inside}


def _seeding(build: Builder) -> Builder:
    """The same build, after which torch's generator is where it was when eager started: tracing draws numbers too."""

    def build_and_seed(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
        built = build(function, inputs)
        torch.manual_seed(SEED)
        return built

    return build_and_seed


def _seen_twice(one: Report, other: Report) -> Report:
    if one.verdict is not Verdict.VIOLATED:
        return one
    both = tuple(each for each in one.violations if each in other.violations)
    if both:
        return replace(one, violations=both)
    seen = one.violations[0].describe()
    return Report(Verdict.UNKNOWN, reason=f"seen once, but not again in a second run: {seen}")


def _admit_opaque(found: Check, opaque: set[str]) -> Check:
    """Say what was not looked at, where otherwise the values would be said to be right."""
    if not opaque:
        return found
    reason = f"not compared, since it cannot be looked into: {', '.join(sorted(opaque))} among the outputs"
    changed = {
        name: replace(
            each, reports={**each.reports, "values": Report(Verdict.UNKNOWN, reason=reason)}
        )
        if each.reports["values"].verdict is Verdict.HOLDS
        else each
        for name, each in found.results.items()
    }
    return replace(found, results=changed, notes=[*found.notes, reason])
