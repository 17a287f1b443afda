"""`bisect`: the first layer, and its pass, after which a program is wrong.

It runs in a separate process, as a reduction does: the file and the targets are foreign code.
"""

from __future__ import annotations

from dataclasses import dataclass

from aliasproof.campaigns.failure.failure import Kept
from aliasproof.campaigns.failure.finding import AnyFinding, is_of_python
from aliasproof.campaigns.publish.publisher import scripts_of
from aliasproof.campaigns.publish.reproducer import render
from aliasproof.campaigns.store.run_folder import read_finding
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.localization import PassAtFault, first_wrong_pass, part_of
from aliasproof.judge.python_case import PythonCase, layers
from aliasproof.judge.trial import Case, Subject, quiet_torch
from aliasproof.minimization import minimize_session
from aliasproof.minimization.minimize_request import MinimizeRequest
from aliasproof.oracles.verdict import Violation
from aliasproof.targets.registry import is_own
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Target

RIGHT, WRONG, NOT_JUDGED = "right", "wrong", "not judged"
DOCUMENTED = "documented"


@dataclass(frozen=True, slots=True)
class LayerState:
    """What a target does with the program: `state` in one word, and the difference or reason."""

    target: str
    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Bisection:
    """Where a program becomes wrong.

    `layers` are the targets that the requested one builds on, in order, and itself. `symptom` names
    the one at fault. `part` is its pass, if found. `scripts` show the difference with only torch;
    there are none for a user's target, and for differences that no program keeps.
    """

    program: Program | None
    layers: tuple[LayerState, ...]
    symptom: Symptom
    violation: Violation
    part: PassAtFault | None
    scripts: tuple[str, ...]
    notes: tuple[str, ...]


def bisect(request: MinimizeRequest) -> Bisection:
    """Find where the program in a file becomes wrong.

    Raises `UserError` if nothing differs, and `Rejected` if nothing can be judged.
    """
    if is_of_python(request.path):
        return bisect_python(read_finding(request.path))
    assert request.target is not None
    subject = minimize_session.begin(request)
    difference = minimize_session.find_difference(subject.program, request)
    case, kept, program = *difference, difference.program
    violation, exact = _violation(case, kept)
    target = kept.target
    part = first_wrong_pass(case, target, violation) if kept.exact else None
    scripts: tuple[str, ...] = ()
    if program is not None and not is_own(target.name):
        # The literal script counts if the other one does not show the difference.
        texts = (
            render(program, target, violation, exact=exact, literal=it) for it in (False, True)
        )
        scripts = tuple(dict.fromkeys(texts))
    asked = target_named(request.target)
    # The target at fault may be a part of a layer, such as functionalization of AOTAutograd.
    built = (*asked.varies, *asked.layers)
    part_of_one = () if any(it.name == target.name for it in built) else (target,)
    layers = tuple(_state(case, layer) for layer in (*part_of_one, *built))
    return Bisection(program, layers, kept.symptom, violation, part, scripts, subject.notes)


def _violation(case: Case, kept: Kept) -> tuple[Violation, bool]:
    """The violation, and whether it can be compared without tolerance."""
    examination = examine(case, kept.target, every_oracle=True, attribute=False)
    if examination.trial is None:
        raise examination.rejected or Rejected("not judged")
    differences = examination.reports[kept.symptom.oracle].differences
    kinds = [one for one in differences if one.kind == kept.symptom.kind]
    if not kinds:
        raise Rejected("another run does not show the difference")
    return kinds[0], examination.trial.exact(kinds[0].place)


def _state(case: Subject, target: Target) -> LayerState:
    try:
        examination = examine(case, target, attribute=False)
    except UserError as reason:  # unavailable on this machine
        return LayerState(target.name, NOT_JUDGED, str(reason))
    if examination.rejected is not None:
        return LayerState(target.name, NOT_JUDGED, str(examination.rejected))
    documented = [one.difference for one in examination.documented]
    differences = [*examination.violations, *documented]
    if not differences:
        return LayerState(target.name, RIGHT)
    state = WRONG if examination.violations else DOCUMENTED
    return LayerState(target.name, state, f"{differences[0].oracle}: {differences[0].describe()}")


def bisect_python(finding: AnyFinding) -> Bisection:
    """The same for a finding of a Python program, which has no graphs to show."""
    quiet_torch()
    program, symptom = finding.program, finding.symptom
    assert isinstance(program, PythonProgram)
    part = part_of(program, symptom)
    if not part:
        raise UserError(f"nothing differs: {finding.target} does what eager does")
    case = PythonCase(program)
    states = [_state(case, target_named(layer)) for layer in layers(finding.target)]
    scripts = () if is_own(finding.target) else tuple(scripts_of(finding))
    at_fault = PassAtFault(part)
    return Bisection(None, tuple(states), symptom, finding.violation, at_fault, scripts, ())
