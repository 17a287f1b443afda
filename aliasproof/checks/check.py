"""`check`: compare a user's function, or a program, with eager on several targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import torch
from torch.utils._pytree import tree_leaves

from aliasproof.checks.preparation import Prepared, opaque_reason, prepare_rows
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.execution import keep_random_state
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import at_fault
from aliasproof.judge.examination import examine_twice, split_by_layer
from aliasproof.judge.localization import first_wrong_pass
from aliasproof.judge.trial import Case, EagerRun, Subject, Trial
from aliasproof.oracles.check_result import Check, TargetResult
from aliasproof.oracles.judge import EVERY_ORACLE, all_not_applicable
from aliasproof.oracles.missed import Opportunity, missed_opportunities
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.verdict import PlaceNames, Report, Verdict, Violation, rename_report
from aliasproof.reports.side_by_side import named_rows
from aliasproof.reports.verdict_table import Shown, check_text
from aliasproof.targets.names import CHECKED
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Function, Target
from aliasproof.targets.user_names import grant
from aliasproof.targets.user_targets import (
    YOUR_PASS,
    of_value,
)

# The default target that compares a second call.
SECOND_CALL = "aot-eager:second-call"
# A name, a target, or the caller's pass or backend.
GivenTarget: TypeAlias = str | Target | Callable[..., object]


def check(
    function: Program | Function,
    inputs: object = None,
    targets: GivenTarget | Sequence[GivenTarget] | None = None,
    *more: object,
    target: GivenTarget | Sequence[GivenTarget] | None = None,
    second_inputs: object = None,
    file: Path | None = None,
    missed: bool = False,
    device: str | None = None,
    without_graphs: str = "",
    grad: bool | None = None,
) -> Check:
    """Run a function in eager and on targets, and let every oracle compare the runs.

    Neither the inputs nor the function are changed. A `Program` has its own inputs. Inputs are in a
    form of `CallArguments`. A target is a name, a pass or a backend; without targets, those of
    `default_targets` run. `target` means the same as `targets`, as in `assert_equivalent`: one or
    several.
    `second_inputs` are the inputs of a second call, for targets that make one; only their tensors
    may differ. `file` is the file of the function: errors then name their line in it. `missed` also
    reports what targets could have done in place. The inputs are moved to `device`, such as "cuda",
    if given. `without_graphs` is as in `check_target`, and `grad` as in `prepare_rows`. Raises
    `UserError` for an unknown target, a missing device, or inputs that cannot be compared.
    """
    if more or any(isinstance(it, torch.Tensor | torch.nn.Module) for it in tree_leaves(targets)):
        raise UserError(
            "check takes all inputs as one argument, such as a tuple: check(f, (x, y), target=...)"
        )
    if target is not None and targets is not None:
        raise UserError("check: give target or targets, which mean the same")
    given = target if targets is None else targets
    if given is None:
        given = default_targets(twice=second_inputs is not None)
    elif isinstance(given, str) or not isinstance(given, Sequence):
        given = [given]
    # By name: a pass of the caller need not be hashable.
    chosen = {choice.name: choice for choice in map(_target, given)}.values()
    # The caller's random numbers must not depend on whether a check ran in between.
    with keep_random_state():
        arguments = function, inputs, second_inputs
        prepared = prepare_rows(*arguments, targets=[*chosen], file=file, device=device, grad=grad)
        results = {
            name: check_row(prepared, name, missed=missed, without_graphs=without_graphs)
            for name in prepared.rows
        }
    name = getattr(function, "__qualname__", type(function).__name__)
    return PrintedCheck(prepared.eager, results, list(prepared.notes), name)


class PrintedCheck(Check):
    """A check whose text is what the command line prints of it."""

    __slots__ = ()

    def __str__(self) -> str:
        return check_text(self, Shown())


def default_targets(*, twice: bool) -> list[str]:
    """The default targets: what a user of `torch.compile` runs, if available on this machine.

    One more makes a second call, if there are inputs for it.
    """
    names = [name for name in CHECKED if target_named(name).unavailable() is None]
    return [*names, SECOND_CALL] if twice else names


def _target(given: GivenTarget) -> Target:
    if isinstance(given, Target):
        return given
    if not isinstance(given, str):
        return of_value(given)
    grant([given])
    return target_named(given)


def check_row(
    prepared: Prepared, name: str, *, missed: bool = False, without_graphs: str = ""
) -> TargetResult:
    row = prepared.rows[name]
    compare: Callable[[Prepared], TargetResult] = partial(
        check_target, target=row.target, missed=missed, without_graphs=without_graphs
    )
    result = compare(row.prepared)
    if row.prepared.twice is not None and not result.violations:
        # A second call shows errors in guards, and in what compiled code writes.
        second = compare(row.prepared.twice)
        result = second if second.violations else result
    return replace(result, target=name, after=row.after)


def check_target(
    prepared: Prepared, target: Target, *, missed: bool = False, without_graphs: str = ""
) -> TargetResult:
    """Compare a target with the eager run. Can be called for several targets in turn.

    `without_graphs` is the reason not to run the oracles on graphs; empty to run them.
    """
    eager, case = prepared.eager, prepared.case
    if eager.unjudged is not None or eager.observation is None or eager.trace is None:
        unjudged = all_not_applicable(eager.unjudged or "", EVERY_ORACLE).reports
        return _result(target, unjudged, None, {})
    run = EagerRun(eager.observation, eager.trace)
    reports, trial = examine_twice(case, target, run, without_graphs)
    if trial is not None:
        reports = split_by_layer(case, target, trial, reports)
    reports = _admit_opaque(reports, prepared.opaque, eager.observation)
    violation = next((one for report in reports.values() for one in report.violations), None)
    reports = {name: rename_report(report, eager.names) for name, report in reports.items()}
    result = _result(target, reports, trial, eager.names)
    if violation is not None and not without_graphs:
        result = replace(result, wrong_part=_wrong_part(case, target, trial, violation))
    return replace(result, missed=_missed_opportunities(case, result, trial)) if missed else result


def _wrong_part(case: Subject, target: Target, trial: Trial | None, violation: Violation) -> str:
    """The pass after which the target is wrong, or the layer; empty if not found."""
    if not isinstance(case, Case):
        assert trial is not None
        layer, _ = at_fault(case, target, trial, violation)
        return target.yours if layer.name == target.name else layer.name
    try:
        # Experiments with the code generator would take many seconds.
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
    # Under other conditions, eager has other results.
    eager = None if target.conditions is None else trial.eager
    untested = _untested(target, trial)
    result = replace(result, observation=trial.target, eager=eager, untested=untested)
    if not any(report.differences for report in reports.values()):
        return result
    first_call = () if trial.build is None else trial.build.first_call
    return replace(result, rows=tuple(named_rows(trial.eager, trial.target, names, first_call)))


def _untested(target: Target, trial: Trial) -> str:
    """That a pass of the user changed no graph."""
    stages = () if trial.build is None else trial.build.stages
    if not target.yours.startswith(YOUR_PASS) or not stages:
        return ""
    versions = [str(stage.graph.graph) for stage in stages]  # of each graph, before and after
    return "" if versions[::2] != versions[1::2] else f"{target.yours} changed no graph of it"


def _missed_opportunities(
    case: Subject, result: TargetResult, trial: Trial | None
) -> Sequence[Opportunity] | None:
    """What the last graph could have done in place; None if the target is wrong.

    Also None if there is no graph that runs by itself.
    """
    if result.violated or trial is None or trial.build is None or not trial.build.stages:
        return None
    assert isinstance(case, Case)  # other subjects have no build
    # After a documented refusal, the graph may raise as well.
    if trial.target.error is not None or trial.build.opaque is not None:
        return None
    last = trial.build.stages[-1]
    # A stage that is not whole runs only inside its target's wrapper, on other inputs.
    return missed_opportunities(last, case.fresh_inputs) if last.whole else None


def _admit_opaque(
    reports: Mapping[str, Report], opaque: frozenset[str], eager: Observation
) -> Mapping[str, Report]:
    """Say that no value was compared, where the reports would otherwise call the values right."""
    marks = {f"<{kind}>" for kind in opaque}
    others = [it for it in eager.outputs if not (isinstance(it, str) and it in marks)]
    compared = bool(others) or not eager.outputs
    if not opaque or compared or reports["values"].verdict is not Verdict.HOLDS:
        return reports
    return {**reports, "values": Report(Verdict.UNKNOWN, reason=opaque_reason(opaque))}
