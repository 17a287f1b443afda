"""`examine_group`: several programs compiled as one, and each of them judged by itself.

A compile by Inductor costs nearly the same for one program and for twenty. So a campaign glues
programs (`aliasproof.ir.execution`), and the oracles on results judge each member on its part of
the run, using its own eager run and its own trace. What a member shows by itself counts:

- A member whose part differs from eager runs by itself, and the result of that run counts. So a
  campaign finds the same, whatever the size of its groups.
- If the compiled program raises, the members that raise by themselves leave the group, and the rest
  is compiled again.
- What no member shows by itself is the fault of the *group*: buffers that are reused across
  members, kernels fused across them. It is a failure of the glued program, which is a program like
  any other.

A violation that a member shows only outside of the group is missed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.execution import Glued, ProgramFunction, glue, part
from aliasproof.ir.guarded_memory import MemoryUse
from aliasproof.ir.program import Program
from aliasproof.ir.regions import Region, overlap
from aliasproof.judge.attribution import Symptom, examine_graphs
from aliasproof.judge.examination import Examination, examine, rejection, require_returned
from aliasproof.judge.trial import Case, EagerRun, Spent, Trial, run_eager, run_target, run_trial
from aliasproof.judge.value_search import Budget
from aliasproof.oracles.judge import ON_GRAPHS, Judgement, all_not_applicable, judge
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.verdict import Report, Verdict, Violation
from aliasproof.targets.target import Build, Target

# --- glued case -----------------------------------------------------------------------------------
#
# `GluedCase`: programs as one case, the results of its runs, and the part of each program in them.


@dataclass(frozen=True, slots=True)
class Member:
    """A case of a group, its index, and its run in eager."""

    index: int
    case: Case
    eager: EagerRun

    @property
    def program(self) -> Program:
        function = self.case.function
        assert isinstance(function, ProgramFunction), "only programs can be glued"
        return function.program


@dataclass(frozen=True, slots=True)
class GluedCase:
    """Members as one case. A target runs it once."""

    members: Sequence[Member]
    glued: Glued
    case: Case
    _observed: dict[str, Observation | None] = field(default_factory=dict)

    @classmethod
    def of(cls, members: Sequence[Member]) -> GluedCase:
        """Glue the programs of the members."""
        glued = glue([member.program for member in members])
        cases = [member.case for member in members]

        # Faster than computing the values of the glued program, and on the device of the cases.
        def inputs() -> Sequence[torch.Tensor]:
            return [tensor for case in cases for tensor in case.fresh_inputs()]

        return cls(members, glued, Case(ProgramFunction(glued.program), inputs))

    def run(self, target: Target, spent: Spent) -> tuple[Observation, Build | None]:
        """The run on a target, and its build; None if that raised.

        Raises `Rejected` if the target does not take the program.
        """
        observation, build = run_target(self.case, target, spent)
        self._observed[target.name] = observation
        return observation, build

    def observed(self, target: Target, spent: Spent) -> Observation | None:
        """The run on a target, made at most once; None if the target does not take the case."""
        if target.name not in self._observed:
            try:
                self.run(target, spent)
            except Rejected:
                self._observed[target.name] = None
        return self._observed[target.name]

    def build_raises(self, target: Target, spent: Spent) -> bool:
        """Whether the build raises. A target that generates code does not compile it for this."""
        start = time.perf_counter()
        try:
            with torch.no_grad():
                target.build(self.case.function, self.case.fresh_inputs())
        except (Rejected, InternalError):
            return False
        except Exception:  # noqa: BLE001 - whatever it is, the members by themselves will show it
            return True
        else:
            return False
        finally:
            spent.target += time.perf_counter() - start

    def violations(self, target: Target, member: Member, spent: Spent) -> list[Violation]:
        """The violations of a member in the run on a target; none if the run raised."""
        run = self.observed(target, spent)
        if run is None or run.error is not None:
            return []
        eager, trace = member.eager
        own = next(observation for other, observation in self.parts(run) if other is member)
        return judge(target.contract, eager, own, trace).violations

    def first_wrong(self, target: Target, spent: Spent) -> Target | None:
        """The first earlier target that raises, or makes members share bytes; None if none does."""
        for layer in target.earlier:
            run = self.observed(layer, spent)
            if run is not None and (run.error is not None or self.strangers(run)):
                return layer
        return None

    def parts(self, observation: Observation) -> Iterator[tuple[Member, Observation]]:
        """Each member with its part of a run's observation."""
        for member, place in zip(self.members, self.glued.members, strict=True):
            inputs = part(observation.inputs, place.inputs)
            before = part(observation.before, place.inputs)
            outputs = part(observation.outputs, place.outputs)
            memory = None if observation.memory is None else MemoryUse()
            yield member, Observation(inputs, before, outputs, memory=memory)

    def strangers(self, observation: Observation) -> list[Member]:
        """The members that share bytes with another member after a run. In eager, none do."""
        owners: dict[int, list[tuple[Member, Region]]] = {}
        sharing: dict[int, Member] = {}
        for member, observed in self.parts(observation):
            regions = observed.regions()
            for name, tensor in observed.tensors().items():
                known = owners.setdefault(tensor.untyped_storage()._cdata, [])
                for other, theirs in known:
                    if other is not member and overlap(theirs, regions[name]):
                        sharing |= {other.index: other, member.index: member}
                known.append((member, regions[name]))
        return list(sharing.values())


# --- groups ---------------------------------------------------------------------------------------


# Called with the indices of the cases that are about to run together, or that have run.
Announce: TypeAlias = Callable[[Sequence[int]], None]

_SILENT = (Verdict.HOLDS, Verdict.NOT_APPLICABLE)


@dataclass(frozen=True, slots=True)
class GroupFailure:
    """A glued program whose members are right by themselves, and their symptom as a group."""

    symptom: Symptom
    program: Program


@dataclass(slots=True)
class GroupExamination:
    """The examination of each case, in order; and the failures of the group.

    `spent` has the seconds that the members share. `companions` are the indices of cases that
    differ from eager only in the group.
    """

    examinations: list[Examination]
    spent: Spent
    companions: set[int]
    failures: list[GroupFailure]


def can_glue(target: Target) -> bool:
    """Whether programs can be glued for a target. Not with conditions, which add outputs."""
    return target.conditions is None


def examine_group(
    cases: Sequence[Case],
    target: Target,
    *,
    search: Budget | None = None,
    announce: Announce = lambda indices: None,
    ran: Announce = lambda indices: None,
) -> GroupExamination:
    """Examine programs together: the same results as `examine`, in less time.

    `search` is for the programs that run by themselves. `ran` is called after runs that did not
    raise.
    """
    return _Group(target, search, announce, ran).examine(cases)


@dataclass(slots=True)
class _Group:
    """The state of a group's examination. `asked` are the members that ran on the first target."""

    target: Target
    search: Budget | None
    announce: Announce
    ran: Announce
    spent: Spent = field(default_factory=Spent)
    examinations: dict[int, Examination] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    companions: set[int] = field(default_factory=set)
    failures: list[GroupFailure] = field(default_factory=list)

    def examine(self, cases: Sequence[Case]) -> GroupExamination:
        members = []
        for index, case in enumerate(cases):
            self.announce([index])
            try:
                eager = require_returned(run_eager(case, self.spent))
            except Rejected as reason:
                self.examinations[index] = rejection(case, self.target, reason, Spent())
                continue
            member = Member(index, case, eager)
            # After another program, a program would draw other random numbers.
            if eager.trace.random:
                self._alone(member)
            else:
                members.append(member)
        self._together(members)
        examinations = [self.examinations[index] for index in range(len(cases))]
        return GroupExamination(examinations, self.spent, self.companions, self.failures)

    def _together(self, members: Sequence[Member]) -> bool:
        """Examine members in one run. Returns whether that raised, or a single member failed."""
        if len(members) < 2:
            alone = [self._alone(member) for member in members]
            return any(map(_may_raise, alone))
        self.announce([member.index for member in members])
        glued_case = GluedCase.of(members)
        try:
            run, build = glued_case.run(self.target, self.spent)
        except Rejected:  # the target does not take some member
            for member in members:
                self._alone(member)
            return True
        memory = run.memory
        # A write outside of a buffer does not identify the member whose kernel it is.
        if run.error is not None or (memory is not None and memory.stray):
            self._examine_alone(glued_case)
            return True
        self.ran([member.index for member in members])
        self._judge(glued_case, run, build)
        return False

    # --- a run that returned ---

    def _judge(self, glued_case: GluedCase, run: Observation, build: Build | None) -> None:
        """Judge each member. Members that differ from eager are examined by themselves."""
        on_graphs = self._on_graphs(glued_case, run, build)
        differing: list[tuple[Member, list[Violation]]] = []
        for member, observation in glued_case.parts(run):
            eager, trace = member.eager
            judgement = judge(self.target.contract, eager, observation, trace)
            trial = Trial(eager, trace, observation, judgement)
            reports = {**judgement.reports, **(on_graphs or {})}
            self.examinations[member.index] = Examination(member.case, self.target, reports, trial)
            if judgement.violations:
                differing.append((member, judgement.violations))
            elif on_graphs is None:
                self._alone(member)
        # After all members were examined, it is known which fail by themselves.
        for symptom, member in self._explain(glued_case, differing):
            self._note_failure(symptom, glued_case, [member])
        strangers = glued_case.strangers(run)
        if strangers:
            violation = Violation("aliasing", "new alias between programs", "outputs")
            layer = glued_case.first_wrong(self.target, self.spent) or self.target
            self._note_failure(_symptom(layer, violation), glued_case, strangers)

    def _on_graphs(
        self, glued_case: GluedCase, run: Observation, build: Build | None
    ) -> dict[str, Report] | None:
        """The reports of the oracles on graphs if none reports a difference; else None.

        The graph of a group does not separate its members, so each one is then examined by itself.
        """
        assert build is not None
        if build.opaque is not None:
            return dict(all_not_applicable(build.opaque, ON_GRAPHS).reports)
        trial = Trial(*run_eager(glued_case.case, self.spent), run, Judgement({}), build)
        try:
            reports = examine_graphs(glued_case.case, self.target, trial).reports
        except (Rejected, InternalError):  # by itself, each member is judged, or raises this itself
            return None
        silent = all(report.verdict in _SILENT for report in reports.values())
        return dict(reports) if silent else None

    def _explain(
        self, glued_case: GluedCase, differing: Sequence[tuple[Member, Sequence[Violation]]]
    ) -> list[tuple[Symptom, Member]]:
        """Examine members that differ from eager in the group.

        Returns those that are right by themselves, with the symptom of the group. The first layer
        decides cheaply: a member that is wrong there by itself fails; a member that differs there
        in the group in the same way is right by itself, since later layers add nothing.
        """
        first, open_ = self.target.layers[0], []
        for member, violations in differing:
            if first is self.target:
                examination = self._alone(member)
            else:
                why = "not asked"
                examination = examine(member.case, first, eager=member.eager, without_graphs=why)
                self.examinations[member.index] = examination
            if not examination.failed:
                open_.append((member, violations))
        right_alone = []
        for member, violations in open_:
            # For one member, a run of the whole group would cost more than one of the member.
            there = glued_case.violations(first, member, self.spent) if len(open_) > 1 else []
            if there and _kinds(there) == _kinds(violations):
                right_alone.append((_symptom(first, there[0]), member))
            elif not _may_raise(self._alone(member)):
                right_alone.append((_symptom(self.target, violations[0]), member))
        return right_alone

    def _note_failure(
        self, symptom: Symptom, glued_case: GluedCase, companions: Sequence[Member]
    ) -> None:
        self.companions |= {member.index for member in companions}
        if symptom not in [failure.symptom for failure in self.failures]:
            # Without members that fail by themselves, which would hide the failure of the group.
            members = glued_case.members
            right = [it for it in members if not self.examinations[it.index].failed]
            program = GluedCase.of(right).glued.program
            self.failures.append(GroupFailure(symptom, program))

    # --- a run that raised ---

    def _examine_alone(self, glued_case: GluedCase) -> None:
        """Examine members that raise together. Those that raise by themselves leave the group."""
        members = glued_case.members
        raising = self._raising_at_first(members) or self._raising_in_build(glued_case)
        if raising:
            for member in raising:
                self._alone(member)
            self._together([member for member in members if member not in raising])
            return
        middle = len(members) // 2
        raised = [self._together(half) for half in (members[:middle], members[middle:])]
        if not any(raised):
            # Both halves return, so only the whole group raises.
            layer = glued_case.first_wrong(self.target, self.spent) or self.target
            run = glued_case.observed(layer, self.spent)
            error = None if run is None else run.error
            kind = f"raises {type(error).__name__}" if error else "writes around a buffer"
            violation = Violation("errors" if error else "bounds", kind, "call")
            self._note_failure(_symptom(layer, violation), glued_case, members)

    def _raising_at_first(self, members: Sequence[Member]) -> list[Member]:
        """The members that raise on the first layer, where most errors are raised, cheaply."""
        raising, first = [], self.target.layers[0]
        for member in members:
            if member.index not in self.asked:
                self.asked.add(member.index)
                with contextlib.suppress(Rejected):
                    trial = run_trial(member.case, first, self.spent, member.eager)
                    raising += [member] if trial.target.error is not None else []
        return raising

    def _raising_in_build(self, glued_case: GluedCase) -> list[Member]:
        """The members whose build raises, found by bisection."""
        members = glued_case.members
        if not glued_case.build_raises(self.target, self.spent):
            return []
        if len(members) == 1:
            return list(members)
        middle = len(members) // 2
        halves = GluedCase.of(members[:middle]), GluedCase.of(members[middle:])
        return [member for half in halves for member in self._raising_in_build(half)]

    def _alone(self, member: Member) -> Examination:
        self.announce([member.index])
        examination = examine(
            member.case,
            self.target,
            eager=member.eager,
            search=self.search,
            ran=lambda: self.ran([member.index]),
        )
        self.examinations[member.index] = examination
        return examination


def _may_raise(examination: Examination) -> bool:
    """Whether a program by itself explains why its group raises, or differs from eager."""
    return (
        examination.trial is None
        or examination.failed
        or examination.trial.target.error is not None
    )


def _kinds(violations: Sequence[Violation]) -> set[tuple[str, str, str]]:
    return {(violation.oracle, violation.kind, violation.place) for violation in violations}


def _symptom(target: Target, violation: Violation) -> Symptom:
    return Symptom(target.name, violation.oracle, violation.kind)
