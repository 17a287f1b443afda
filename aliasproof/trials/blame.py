"""`split_by_blame`: violations of a user's target that are the fault of a layer before it.

A pass gets graphs of AOTAutograd, and a backend those of Dynamo. What is wrong there already, no
pass can repair. It is *not yours*: shown in one line, and never counted against the user's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from aliasproof.oracles.judge import ON_GRAPHS
from aliasproof.oracles.verdict import Report, Verdict, Violation, with_differences
from aliasproof.targets.target import Target
from aliasproof.trials.attribution import at_fault, inherited
from aliasproof.trials.examination import examine
from aliasproof.trials.trial import Case, Trial
from aliasproof.trials.value_search import Budget


def split_by_blame(
    case: Case, target: Target, trial: Trial, reports: Mapping[str, Report]
) -> Mapping[str, Report]:
    """The reports, where violations of the layers before a user's target are *not yours*."""
    violations = [violation for report in reports.values() for violation in report.violations]
    if not target.yours or not violations:
        return reports
    return not_yours(reports, dict(_layers_at_fault(case, target, trial, violations)), target)


def not_yours(
    reports: Mapping[str, Report], layers: Mapping[Violation, str], target: Target
) -> Mapping[str, Report]:
    """The reports, where violations of a user's target that a layer has too are *not yours*.

    `layers` has the name of that layer.
    """
    if not layers:
        return reports
    wrong = ", ".join(violation.describe() for violation in layers)
    names = ", ".join(dict.fromkeys(layers.values()))
    reason = f"not yours, since {names} is wrong before {target.yours}: {wrong}"
    return {name: _told(report, layers, reason) for name, report in reports.items()}


def _layers_at_fault(
    case: Case, target: Target, trial: Trial, violations: Sequence[Violation]
) -> Iterator[tuple[Violation, str]]:
    """The violations that a layer of torch is at fault for, each with its name."""
    for violation in inherited(case, target, trial):
        if violation in violations:
            yield violation, at_fault(case, target, trial, violation)[0].name
    on_graphs = [violation for violation in violations if violation.oracle in ON_GRAPHS]
    before = target.after
    if not on_graphs or before is None:
        return
    # The graph that a pass gets is the last one of the layer before.
    examination = examine(case, before, every_oracle=True, attribute=False, search=Budget())
    for violation in on_graphs:
        if violation in examination.violations:
            yield violation, before.name


def _told(report: Report, layers: Mapping[Violation, str], reason: str) -> Report:
    inherited = tuple(violation for violation in report.violations if violation in layers)
    if not inherited:
        return report
    left = [violation for violation in report.violations if violation not in layers]
    unknown = Report(Verdict.UNKNOWN, reason=reason)
    told = with_differences(left, report.documented, report.notes, unknown)
    return replace(told, inherited=inherited)
