"""`Failure`: a program that violates a contract; and `Kept`, what its reduction must show."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeAlias

from aliasproof.campaigns.failure.finding import written_in
from aliasproof.campaigns.failure.recognition import by_mark, has_cause, plausible_bugs, recognised
from aliasproof.corpus.known_bug import patched
from aliasproof.ir.errors import Rejected, require_sound_process
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import P, PythonProgram
from aliasproof.judge.attribution import Symptom, grade, grades_of, latent_violation
from aliasproof.judge.examination import examine
from aliasproof.judge.localization import GENERATES_CODE, first_wrong_pass
from aliasproof.judge.trial import Case
from aliasproof.oracles.judge import ON_GRAPHS
from aliasproof.oracles.verdict import Violation
from aliasproof.processes import outcome
from aliasproof.processes.outcome import DEATHS, Death
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Target


@dataclass(frozen=True, slots=True)
class Failure(Generic[P]):
    """A program as it was drawn, the symptom that it shows, and the seed of its shard.

    `known` is the identifier of the known bug that the failure is, or None; without it, `symptom`
    is what the program shows in torch with all known bugs patched. `suspected` is a known bug whose
    mark the failure has, if that mark is only conclusive on reduced programs. With `of_group`, the
    program joins several programs that are right by themselves, and nobody has checked yet whether
    a known bug is the cause. `violation` is what the target showed, if it ran to its end.

    A Python program is compared with known bugs only after its reduction; `past_known` says that
    they were patched when it failed. The other fields are for programs of ATen calls.
    """

    symptom: Symptom
    program: P
    seed: int
    known: str | None = None
    suspected: str | None = None
    of_group: bool = False
    # Not compared: the same failure can show at one location by itself and at another in a group.
    violation: Violation | None = field(default=None, compare=False)
    past_known: bool = False

    @staticmethod
    def of(
        symptom: Symptom,
        program: Program,
        seed: int,
        *,
        past_known: bool,
        violation: Violation | None = None,
    ) -> Failure[Program]:
        """The failure of a program with this symptom, as this violation showed it.

        `past_known` says that the known bugs are patched already.
        """
        left: Symptom | None = symptom
        if past_known:
            known = by_mark(program, symptom, reduced=False)
        else:
            known, _, left = recognised(program, symptom, reduced=False)
        if known is not None:
            return Failure(symptom, program, seed, known, violation=violation)
        # If another symptom is left, a known bug causes the first one and hides this one. If none
        # is left, the violation was flaky; its reduction will find that out.
        left = left or symptom
        suspected = by_mark(program, left, reduced=True)
        return Failure(left, program, seed, None, suspected, violation=violation)

    @staticmethod
    def latent(symptom: Symptom, program: Program, seed: int) -> Failure[Program] | None:
        """The failure of a program with a latent symptom; None if a known bug is behind it."""
        if by_mark(program, symptom, reduced=False) is not None:
            return None
        target = target_named(symptom.target)
        try:
            with patched(plausible_bugs(program, target.name)):
                left = latent_violation(Case.of(program), target)
        except Rejected:
            return None
        return None if left is None else Failure(symptom, program, seed)

    @property
    def language(self) -> str:
        return written_in(self.program)

    @property
    def bucket(self) -> Hashable:
        """Equal for failures of one kind: the known bug, or else the symptom."""
        return self.known or (self.language, self.symptom)

    @property
    def alike(self) -> Hashable:
        """Equal for failures of which only some are reduced."""
        return ("group", self.symptom) if self.of_group else self.suspected or self.bucket

    def worth_reducing(self, number: int) -> bool:
        """Whether to reduce this failure if it is the `number`-th with its `alike`, counted from 1.

        A reduction takes as long as a hundred programs. Of a known bug, one program is enough; an
        error's message nearly identifies its cause, and latent symptoms are no findings. Of
        failures that only look like a known bug, the first is reduced, to find out, and one in
        eight; so are failures of groups, most of which single programs show, too. Silent violations
        with one symptom can have many causes: the first twelve are reduced, then one in four.
        """
        if self.known is not None:
            return number == 1
        if self.of_group or self.suspected is not None:
            return number == 1 or number % 8 == 0
        one_tells = self.symptom.latent or self.symptom.oracle == "errors"
        return number == 1 if one_tells else number <= 12 or number % 4 == 0

    @property
    def ends_process(self) -> bool:
        return self.symptom.oracle == "errors" and self.symptom.kind.startswith(DEATHS)


AnyFailure: TypeAlias = Failure[Program] | Failure[PythonProgram]


# --- kept -----------------------------------------------------------------------------------------
#
# `Kept`: what each candidate of a reduction must show, as a value.
#
# It checks whether a program shows it, and how well. It is called by whoever runs the program: this
# process, its forks (`aliasproof.campaigns.failure.reduction`), or isolated processes
# (`aliasproof.minimization.candidate_checks`).


@dataclass(frozen=True, slots=True)
class Kept:
    """A symptom, which a candidate must have in one of these ways.

    - A campaign would count the candidate (also if it is latent), and the pass at fault is
      `wrong_part`, or that is empty. The passes of Inductor have many bugs with one symptom:
      without the pass, a reduction would end at the bug with the shortest program.
    - The candidate ends its process in this `step` of its trial. If eager ends it, too, that is no
      failure of the target.
    - The candidate has the same `cause`: a known bug whose patch makes it right, or no known bug if
      the cause is empty. A target has many bugs with one symptom, and a long program is near to
      several. If the cause is None, only the symptom counts.
    - If not `exact`, the oracle reports a difference of this kind, also a documented one.
    """

    symptom: Symptom
    wrong_part: str = ""
    step: str = ""
    exact: bool = True
    cause: str | None = None

    @property
    def grades(self) -> tuple[Symptom, ...]:
        """The symptoms that a candidate may have, the best last."""
        return grades_of(self.symptom) if self.exact else (self.symptom,)

    @property
    def target(self) -> Target:
        """The target at fault."""
        return target_named(self.symptom.target)

    def grade(self, program: Program) -> int:
        """Which of `grades` a program has, counted from 1; 0 if it has none."""
        outcome.begin()
        if self.step:
            try_program(program, self.target)
            return 0
        if not self.exact:
            return int(_reports(program, self.target, self.symptom))
        number = grade(program, self.target, self.symptom)
        if number and self.cause is not None:
            shown = self.grades[number - 1]
            number = number if has_cause(program, shown, self.cause) else 0
        if not number or not self.wrong_part:
            return number
        return number if _pass_of(program, self.grades[number - 1]) == self.wrong_part else 0

    def grade_of_death(self, death: Death) -> int:
        """1 if a program that ends its process in this way shows the symptom."""
        return int(bool(self.step) and (death.kind, death.step) == (self.symptom.kind, self.step))


def try_program(program: Program, target: Target) -> None:
    """Run a program, which may end this process."""
    outcome.begin()
    try:
        examine(Case.of(program), target, attribute=False)
    except Exception as error:  # noqa: BLE001 - an exception does not end the process
        require_sound_process(error)


def _reports(program: Program, target: Target, symptom: Symptom) -> bool:
    on_graphs = symptom.oracle in ON_GRAPHS
    examination = examine(Case.of(program), target, every_oracle=on_graphs, attribute=False)
    report = examination.reports.get(symptom.oracle)
    if report is None or examination.rejected is not None:
        return False
    return any(difference.kind == symptom.kind for difference in report.differences)


def pass_at_fault(program: Program, symptom: Symptom) -> str:
    """The pass that each candidate must have at fault; empty if it is not compared.

    It is not compared for errors, which are identified by their message, for latent symptoms, which
    are identified by their graph, and for targets that generate code: those are at fault if their
    graphs are right, and experiments with each candidate would cost too much.
    """
    outcome.begin()
    target = target_named(symptom.target)
    generates = target.name.split(":")[0] in GENERATES_CODE
    if target.after is None or generates or symptom.oracle == "errors" or symptom.latent:
        return ""
    try:
        return _pass_of(program, symptom)
    except Rejected:
        return ""


def _pass_of(program: Program, symptom: Symptom) -> str:
    """The pass at fault; empty if it is not found."""
    violation, target = Violation(symptom.oracle, symptom.kind, ""), target_named(symptom.target)
    choice = first_wrong_pass(Case.of(program), target, violation, experiments=False)
    return "" if choice is None else choice.name
