"""`check`: compare a user's function, or a program, with eager through several targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch

from aliasproof.checks.check_as_called import (
    AS_CALLED,
    CalledInEager,
    check_as_called,
    prepare_as_called,
)
from aliasproof.checks.eager_check import run_eager_twice
from aliasproof.ir.devices import CPU, on_device, require_device
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.execution import ProgramFunction, seed_generators
from aliasproof.ir.program import Program
from aliasproof.ir.values import clone_inputs, input_tensors
from aliasproof.judge.examination import examine, split_by_layer
from aliasproof.judge.localization import first_wrong_pass
from aliasproof.judge.python_trial import layers
from aliasproof.judge.trial import Case, EagerRun, Trial
from aliasproof.judge.value_search import Budget
from aliasproof.oracles.check_result import Check, EagerResult, TargetResult
from aliasproof.oracles.judge import EVERY_ORACLE, all_not_applicable
from aliasproof.oracles.missed import Opportunity, missed_opportunities
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.place_names import PlaceNames, renamed_report
from aliasproof.oracles.verdict import Report, Verdict, Violation, in_both
from aliasproof.processes.isolation import step
from aliasproof.reports.side_by_side import named_rows
from aliasproof.targets.names import CHECKED
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Function, Target
from aliasproof.targets.user_names import grant
from aliasproof.targets.user_targets import of_value
from aliasproof.targets.variants import KEPT_BUFFERS
from aliasproof.user_code.comparable import NO_BACKWARD, Comparable
from aliasproof.user_code.user_file import check_arguments

# A name, a target, or a pass or backend of the caller.
GivenTarget: TypeAlias = str | Target | Callable[..., object]
MOST_NAMED = 8  # captured tensors named in a note


def check(
    function: Program | Function,
    inputs: object = None,
    targets: Sequence[GivenTarget] | None = None,
    *,
    second_inputs: object = None,
    file: Path | None = None,
    missed: bool = False,
    device: str | None = None,
    without_graphs: str = "",
    grad: bool | None = None,
) -> Check:
    """Run a function in eager and through targets, and let every oracle compare the runs.

    Neither the inputs nor the function are changed. A `Program` brings its own inputs. Inputs are
    in a form of `CallArguments`. A target is given by its name, or it is a pass or a backend;
    without targets, those of `default_targets` are meant.
    `second_inputs` are those of a second call, for targets that make one; only their tensors may
    differ. `file` is the file of the function: errors then name their line in it. `missed` also
    asks what targets could have done in place. The inputs are moved to `device`, such as "cuda", if
    one is given. `without_graphs` is as in `check_target`, and `grad` as in `prepare_rows`. Raises
    `UserError` for an unknown target, a device that is not there, or inputs that cannot be
    compared.
    """
    given = default_targets() if targets is None else targets
    # By name: a pass of the caller need not be hashable.
    chosen = {choice.name: choice for choice in map(_target, given)}.values()
    # The caller's random numbers must not depend on whether something was checked before.
    with torch.random.fork_rng(devices=_generators()):
        arguments = function, inputs, second_inputs
        prepared = prepare_rows(*arguments, targets=[*chosen], file=file, device=device, grad=grad)
        results = {
            name: check_row(prepared, name, missed=missed, without_graphs=without_graphs)
            for name in prepared.rows
        }
    return Check(prepared.eager, results, list(prepared.notes))


def default_targets() -> list[str]:
    """What a user of `torch.compile` runs, as far as this machine can run it."""
    return [name for name in CHECKED if target_named(name).unavailable() is None]


def _target(given: GivenTarget) -> Target:
    if isinstance(given, Target):
        return given
    if not isinstance(given, str):
        return of_value(given)
    grant([given])
    return target_named(given)


def _generators() -> Sequence[int]:
    """The CUDA devices whose generators this process has."""
    return range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A function that ran in eager, to be compared with targets.

    `notes` say what was done to make it comparable. `opaque` are the types of the outputs that
    cannot be compared. `called` is the same as the user calls it; None if that is not judged.
    `rows` are what is judged, by name.
    """

    case: Case
    eager: EagerResult
    notes: tuple[str, ...] = ()
    opaque: frozenset[str] = frozenset()
    called: CalledInEager | None = None
    rows: Mapping[str, JudgedRow] = field(default_factory=dict)


class JudgedRow(NamedTuple):
    """A target in one way of judging; `after` is the row that it builds on."""

    target: Target
    after: str | None


def prepare_rows(
    function: Program | Function,
    inputs: object = None,
    second_inputs: object = None,
    *,
    targets: Sequence[Target],
    file: Path | None = None,
    device: str | None = None,
    grad: bool | None = None,
) -> Prepared:
    """Run a function in eager, without gradients, and as the user calls it. See `check`.

    The latter for targets that are a form of `torch.compile`, if the function does something with
    gradients. With `grad`, for any function, and it alone; without, not at all. Raises `UserError`
    as `check`.
    """
    called = None
    through = any(target.backend is not None for target in targets)
    if through and grad is not False and inputs is not None and not isinstance(function, Program):
        check_arguments(inputs, "inputs")
        always = grad is True
        called = prepare_as_called(function, inputs, file=file, device=device, always=always)
        step("the function in eager, without gradients")  # the limit of time begins anew
    if grad and called is None:
        raise UserError(
            "with gradients, a function is judged through forms of torch.compile: give such a"
            " target, as aot-eager"
        )
    prepared = prepare(function, inputs, second_inputs, file=file, device=device)
    if called is not None:
        prepared = _with_called(prepared, called, alone=bool(grad))
    return replace(prepared, rows=_rows(prepared, targets))


def _with_called(prepared: Prepared, called: CalledInEager, *, alone: bool) -> Prepared:
    """Both runs in eager, as far as targets can be compared with them; or the second one alone."""
    without, refused = prepared.eager.unjudged, called.eager.unjudged
    if not alone and refused is not None:
        return replace(prepared, notes=(*prepared.notes, f"not judged{AS_CALLED}: {refused}"))
    note = f"rows '{AS_CALLED.strip()}': as you call it, with gradients"
    if not alone and without is None:
        notes = [text for text in prepared.notes if NO_BACKWARD not in text]
        if len(notes) < len(prepared.notes):
            note += "; the other rows compare no gradients"
        return replace(prepared, notes=(*notes, note), called=called)
    if not alone:
        note += f"; not judged without: {without}"
    return Prepared(prepared.case, called.eager, (note,), called=called)


def _rows(prepared: Prepared, targets: Sequence[Target]) -> dict[str, JudgedRow]:
    rows: dict[str, JudgedRow] = {}
    for target in targets:
        if prepared.called is None or prepared.eager is not prepared.called.eager:
            called_again = [target.with_(KEPT_BUFFERS)] if _keeps_state(prepared, target) else []
            for judged in (target, *called_again):
                after = judged.earlier[-1].name if judged.earlier else None
                rows[judged.name] = JudgedRow(judged, after)
    if prepared.called is not None:
        names = {f"{it.name}{AS_CALLED}": it for it in targets if it.backend is not None}
        for name, target in names.items():
            before = [f"{layer}{AS_CALLED}" for layer in layers(target.name)[:-1]]
            known = [row for row in (target.name, *before) if row in (names | rows)]
            rows[name] = JudgedRow(target, known[-1] if known else None)
    return rows


def _keeps_state(prepared: Prepared, target: Target) -> bool:
    """Whether the function writes what it captures, and the target may compile that into itself."""
    captured, trace = getattr(prepared.case.function, "captured", 0), prepared.eager.trace
    if not captured or trace is None or target.own(KEPT_BUFFERS) is None:
        return False
    return any(view.storage in trace.written for view in trace.inputs[-captured:])


_UNUSED_CAST = (
    "a cast meets values that its integer dtype does not have, which is undefined; the function"
    " leaves the same whatever the cast stores for them"
)


def prepare(
    function: Program | Function,
    inputs: object = None,
    second_inputs: object = None,
    *,
    file: Path | None = None,
    device: str | None = None,
) -> Prepared:
    """Run a function, or a program with its own inputs, in eager. See `check`."""
    require_device(device or CPU)
    if isinstance(function, Program):
        program = on_device(function, require_device(device or function.device))
        case = Case(ProgramFunction(program), lambda: _seeded(input_tensors(program)))
        return Prepared(case, run_eager_twice(case, file))
    if inputs is None:
        raise UserError(
            "check(function, inputs): inputs are missing; only a Program brings its own"
        )
    check_arguments(inputs, "inputs")
    comparable = Comparable.of(function, inputs)
    notes = list(comparable.notes)
    if comparable.captured:
        notes.append(_captured_note(comparable))
    case = _case(comparable, second_inputs, device)
    eager = run_eager_twice(case, file)
    eager = replace(eager, names=comparable.place_names())
    # Only the runs show which types the outputs have.
    opaque = frozenset(comparable.function.opaque)
    if opaque:
        notes.append(_opaque_reason(opaque))
    if comparable.function.fill is not None:
        notes.append(_UNUSED_CAST)
    if eager.trace is not None and eager.trace.unwatched:
        notes.append(
            f"what {', '.join(eager.trace.unwatched)} does was not watched: whether it is defined"
            " in eager is unknown"
        )
    return Prepared(case, eager, tuple(notes), opaque)


def _case(comparable: Comparable, second_inputs: object, device: str | None) -> Case:
    """The function with its inputs. Each run gets fresh clones: no run sees what another wrote."""
    case = Case(comparable.function, lambda: _seeded(clone_inputs(comparable.inputs)))
    if second_inputs is not None:
        check_arguments(second_inputs, "second_inputs")
        second = comparable.other_inputs(second_inputs)
        case.second_inputs = lambda: _seeded(clone_inputs(second))
    return case if device is None else case.on(device)


def _captured_note(comparable: Comparable) -> str:
    named = comparable.captured
    rest = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"captured tensors are passed as further inputs: {', '.join(named[:MOST_NAMED])}{rest}"


def _seeded(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The inputs of the next run. Torch's generator is in the same state before each run."""
    seed_generators()
    return tensors


def check_row(
    prepared: Prepared, name: str, *, missed: bool = False, without_graphs: str = ""
) -> TargetResult:
    """Compare the target of a row with eager."""
    target, after = prepared.rows[name]
    if not name.endswith(AS_CALLED):
        return check_target(prepared, target, missed=missed, without_graphs=without_graphs)
    assert prepared.called is not None
    return replace(check_as_called(prepared.called, target), after=after)


def check_target(
    prepared: Prepared, target: Target, *, missed: bool = False, without_graphs: str = ""
) -> TargetResult:
    """Compare a target with the eager run. Any number of targets, one after another.

    `without_graphs` is the reason why the oracles on graphs are not asked; they are if it is empty.
    """
    eager, case = prepared.eager, prepared.case
    if eager.unjudged is not None or eager.observation is None or eager.trace is None:
        return _result(
            target, all_not_applicable(eager.unjudged or "", EVERY_ORACLE).reports, None, {}
        )
    reports, trial = _examine_twice(
        case, target, EagerRun(eager.observation, eager.trace), without_graphs
    )
    if trial is not None:
        reports = split_by_layer(case, target, trial, reports)
    reports = _admit_opaque(reports, prepared.opaque, eager.observation)
    violation = next((one for report in reports.values() for one in report.violations), None)
    reports = {name: renamed_report(report, eager.names) for name, report in reports.items()}
    result = _result(target, reports, trial, eager.names)
    if violation is not None and not without_graphs:
        result = replace(result, wrong_part=_wrong_pass(case, target, violation))
    return replace(result, missed=_missed_opportunities(case, result, trial)) if missed else result


def _wrong_pass(case: Case, target: Target, violation: Violation) -> str:
    """The pass after which the target is wrong; empty if nothing tells."""
    try:
        # Experiments with the code generator take many seconds.
        wrong_pass = first_wrong_pass(case, target, violation, experiments=False)
    except Rejected:
        return target.yours
    return target.yours if wrong_pass is None else wrong_pass.name


def _result(
    target: Target, reports: Mapping[str, Report], trial: Trial | None, names: PlaceNames
) -> TargetResult:
    after = target.earlier[-1].name if target.earlier else None
    result = TargetResult(target.name, after, reports)
    if trial is None:
        return result
    # Under other conditions, eager left something else behind.
    eager = None if target.conditions is None else trial.eager
    result = replace(result, observation=trial.target, eager=eager)
    if not any(report.differences for report in reports.values()):
        return result
    first_call = () if trial.build is None else trial.build.first_call
    return replace(result, rows=tuple(named_rows(trial.eager, trial.target, names, first_call)))


def _missed_opportunities(
    case: Case, result: TargetResult, trial: Trial | None
) -> Sequence[Opportunity] | None:
    """What the last graph could have done in place; None if the target is wrong.

    None too if there is no graph that runs by itself.
    """
    if result.violated or trial is None or trial.build is None or not trial.build.stages:
        return None
    # After a documented refusal, the graph may raise as well.
    if trial.target.error is not None:
        return None
    if trial.build.opaque is not None:
        return None
    last = trial.build.stages[-1]
    # A stage that is not whole runs only inside its target's wrapper, on other inputs.
    return missed_opportunities(last, case.fresh_inputs) if last.whole else None


def _examine_twice(
    case: Case, target: Target, eager: EagerRun, without_graphs: str
) -> tuple[Mapping[str, Report], Trial | None]:
    """The reports on a target, and its trial. A difference counts only if a second run shows it."""
    again = partial(
        examine,
        case,
        target,
        eager=eager,
        every_oracle=True,
        attribute=False,
        without_graphs=without_graphs,
        search=Budget(),
    )
    examination = again()
    reports = examination.reports
    # Only differences are repeated: a run costs a build, and `holds` reports no fault.
    if examination.violations or examination.documented:
        # The first run is dropped before the second begins: its tensors can be large.
        del examination
        examination = again()
        reports = {
            name: in_both(report, examination.reports[name]) for name, report in reports.items()
        }
    return reports, examination.trial


def _opaque_reason(opaque: frozenset[str]) -> str:
    return f"outputs of these types are compared by their types alone: {', '.join(sorted(opaque))}"


def _admit_opaque(
    reports: Mapping[str, Report], opaque: frozenset[str], eager: Observation
) -> Mapping[str, Report]:
    """Say that no value was compared, where the values would otherwise be called right."""
    marks = {f"<{kind}>" for kind in opaque}
    others = [it for it in eager.outputs if not (isinstance(it, str) and it in marks)]
    compared = bool(others) or not eager.outputs
    if not opaque or compared or reports["values"].verdict is not Verdict.HOLDS:
        return reports
    return {**reports, "values": Report(Verdict.UNKNOWN, reason=_opaque_reason(opaque))}
