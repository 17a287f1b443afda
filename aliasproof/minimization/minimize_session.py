"""The part of a reduction that runs the user's code and targets, in isolated processes."""

from __future__ import annotations

import contextlib
import shlex
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import fx

from aliasproof.campaigns.failure.failure import Kept
from aliasproof.campaigns.failure.finding import AnyFinding
from aliasproof.campaigns.failure.recognition import cause_of
from aliasproof.campaigns.failure.reduction import shown_by_reduced
from aliasproof.campaigns.failure.signature import signature
from aliasproof.formats.stored_graph import is_stored_graph
from aliasproof.ir.devices import on_device, require_device
from aliasproof.ir.errors import Rejected, UserError, did_you_mean
from aliasproof.ir.execution import ProgramFunction, seed_generators
from aliasproof.ir.lifting import LiftedProgram, lift_program
from aliasproof.ir.program import Program
from aliasproof.ir.values import clone_inputs
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, quiet_torch, run_eager
from aliasproof.judge.value_search import Budget
from aliasproof.minimization.minimize_request import MinimizeRequest, Subject
from aliasproof.oracles.given_tolerance import compare_within
from aliasproof.oracles.judge import EVERY_ORACLE
from aliasproof.processes.isolation import step
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.user_names import grant
from aliasproof.targets.variants import GRAD
from aliasproof.user_code import user_file
from aliasproof.user_code.comparable import Comparable
from aliasproof.user_code.user_file import UserFunction, check_arguments

OUR_NAMESPACES = {"aten", "prims"}

# The function that was lifted, if the file has one. A process serves one reduction.
_function: Case | None = None
_trained: UserFunction | None = None  # if an input requires gradients


def begin(request: MinimizeRequest) -> Subject:
    """The program in a file, or that of the function in it.

    Raises `UserError` for bad input, and `Rejected` if the function raises in eager.
    """
    compare_within(request.tolerance)
    grant(request.granted)
    step("the import of a target")
    if request.target is not None:  # before the user's file runs, which can take long
        target_named(request.target)
    if request.oracle is not None and request.oracle not in EVERY_ORACLE:
        hint = did_you_mean(request.oracle, EVERY_ORACLE)
        raise UserError(f"there is no oracle '{request.oracle}'{hint}")
    quiet_torch()
    step("the file")
    gradients = GRAD.name in (request.target or "").split(":")
    lift_it = partial(lift, gradients=gradients)
    lifted = user_file.apply_to(request.path, request.names, lift_it)
    global _function  # noqa: PLW0603
    if _function is not None and request.device is not None:
        _function = _function.on(request.device)
    program = on_device(lifted.program, require_device(request.device or lifted.program.device))
    namespaces = {call.op.split(".")[0] for call in program.instructions}
    return Subject(program, lifted.notes, not namespaces <= OUR_NAMESPACES)


def lift(given: UserFunction | Program, *, gradients: bool = False) -> LiftedProgram:
    """The program of the ATen calls that a function makes, with its autograd for `gradients`.

    Raises `UserError` for features that a program lacks, and `Rejected` if eager raises.
    """
    if isinstance(given, Program):
        return LiftedProgram(given)
    global _function, _trained  # noqa: PLW0603
    check_arguments(given.inputs, "inputs")
    comparable = Comparable.of(given.function, given.inputs)
    _function = Case.of_function(comparable, comparable.inputs)
    _trained = given if any(tensor.requires_grad for tensor in comparable.inputs) else None
    step("the function in eager")
    seed_generators()
    try:
        with torch.no_grad():
            copies = clone_inputs(comparable.inputs)
            # The inputs as the caller has them; none if all are to require gradients.
            as_given = gradients and (_trained or isinstance(given.function, fx.GraphModule))
            originals = comparable.inputs if as_given else ()
            lifted = lift_program(comparable, copies, originals)
            return replace(lifted, notes=(*given.notes, *lifted.notes))
    except UserError:
        raise
    except Exception as error:  # the user's function may raise anything
        raise Rejected(f"eager raises {type(error).__name__}: {error}") from error


def prepare_worker(request: MinimizeRequest, subject: Subject) -> None:
    """Prepare this process to try candidates."""
    compare_within(request.tolerance)
    grant(request.granted)
    quiet_torch()
    if subject.user_code:  # only the user's file registers these operators
        with contextlib.redirect_stdout(sys.stderr):
            user_file.read(request.path, request.names)


class Difference(NamedTuple):
    """A case that differs, and how. If only other input values show it, the case has these."""

    case: Case
    kept: Kept

    @property
    def program(self) -> Program | None:
        """The program of the case; None if it is a function."""
        function = self.case.function
        return function.program if isinstance(function, ProgramFunction) else None


class Found(NamedTuple):
    """The program to reduce, the target that shows a difference on it, and what must stay."""

    program: Program
    target: str
    kept: Kept


def find(program: Program, request: MinimizeRequest) -> Found:
    """The difference to keep; if there is none without gradients, one with them.

    Raises `UserError` if there is none, and `Rejected` if the program cannot be judged.
    """
    assert request.target is not None
    try:
        found = find_difference(program, request)
    except UserError:
        if (trained := _with_gradients(request)) is not None:
            return trained
        raise
    if found.program is not None:
        return Found(found.program, request.target, found.kept)
    if (trained := _with_gradients(request)) is not None:
        return trained
    symptom = found.kept.symptom  # the lifted program lost something that the symptom needs
    raise UserError(
        f"the function differs ({symptom.oracle}: {symptom.kind}, target"
        f" {symptom.target}), but the program of its ATen calls does not. What is wrong depends"
        " on something that a program does not keep"
    )


def _with_gradients(request: MinimizeRequest) -> Found | None:
    """The difference in training, if the function has inputs that require gradients."""
    if _trained is None or request.target is None:
        return None
    target = f"{request.target}:{GRAD.name}"
    with contextlib.suppress(Rejected, UserError):  # such as for a target without this variant
        target_named(target)
        program = lift(_trained, gradients=True).program
        program = on_device(program, require_device(request.device or program.device))
        found = difference_of(Case.of(program), target, request.oracle)
        if isinstance(found, Difference) and found.program is not None:
            return Found(found.program, target, found.kept)
    return None


def find_difference(program: Program, request: MinimizeRequest) -> Difference:
    """The difference of a program, or only of the function that it was lifted from.

    Raises `UserError` if neither differs, and `Rejected` if none can be judged.
    """
    assert request.target is not None
    reason = ""
    for case in (Case.of(program), _function):
        difference = reason if case is None else difference_of(case, request.target, request.oracle)
        if isinstance(difference, Difference):
            return difference
        reason = reason or difference
    hint = ""
    if is_stored_graph(request.path) or _trained is not None:
        check = shlex.join(["aliasproof", "check", str(request.path)])
        hint = f"; `{check}` judges it as it is called, with gradients"
    raise UserError(f"nothing differs: {reason}{hint}")


def difference_of(case: Case, name: str, oracle: str | None = None) -> Difference | str:
    """The difference that a target shows, or why there is none."""
    target = target_named(name)
    if run_eager(case).observation.error is not None:
        raise Rejected("eager raises")
    search = None if oracle else Budget()
    examination = examine(case, target, every_oracle=True, search=search)
    if examination.rejected is not None:
        raise examination.rejected
    if examination.shown is not None and isinstance(case.function, ProgramFunction):
        # With these values, it is a failure like any other.
        case = Case.of(examination.shown.as_program(case.function.program))
        examination = examine(case, target, every_oracle=True)
    reporting = [name for name, report in examination.reports.items() if report.differences]
    if oracle is not None:
        for difference in examination.reports[oracle].differences:
            return Difference(
                case, Kept(Symptom(target.name, oracle, difference.kind), exact=False)
            )
        known = f"; these do: {', '.join(reporting)}" if reporting else ""
        return f"the oracle '{oracle}' reports no difference of {target.name}{known}"
    if examination.failed and examination.symptom is not None:
        return Difference(case, Kept(examination.symptom))
    for violation in examination.violations:  # only graphs show it
        symptom = Symptom(target.name, violation.oracle, violation.kind)
        return Difference(case, Kept(symptom, exact=False))
    if reporting:
        how = "differs only as it documents"
        if not examination.documented:
            how = "breaks no promise that results show"
        names = ", ".join(reporting)
        return f"{target.name} {how}; to keep a difference that an oracle reports: --oracle {names}"
    return f"{target.name} does what eager does"


def with_cause(program: Program, kept: Kept) -> Kept:
    """What must stay, with its known bug as cause, if results show the difference."""
    asked = kept.exact and not kept.step and not kept.symptom.latent
    return replace(kept, cause=cause_of(program, kept.symptom)) if asked else kept


@dataclass(frozen=True, slots=True)
class NamedResult:
    """The identifier that a campaign gives to a reduced program, and its finding.

    Without a finding, `reason` says why there is none.
    """

    identifier: str
    finding: AnyFinding | None = None
    reason: str = ""


def named(program: Program, original: Program, kept: Kept, grade: int) -> NamedResult:
    """The name and the finding that a campaign would give to a reduced program."""
    symptom = kept.grades[grade - 1]
    if kept.step or not kept.exact:
        what = "that ends its process" if kept.step else "that --oracle names"
        reason = f"a difference {what} has no script that needs torch alone"
        return NamedResult(signature(symptom, program).identifier, reason=reason)
    shown = shown_by_reduced(symptom, program, original)
    if shown is None:
        reason = "what it shows depends on chance: its results were right when it ran again"
        return NamedResult(signature(symptom, program).identifier, reason=reason)
    if symptom.latent:
        reason = "no results show what is wrong, so no script does"
        return NamedResult(shown.identifier, reason=reason)
    return NamedResult(shown.identifier, shown)
