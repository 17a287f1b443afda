"""`examine`: one case on one target, from the eager run to the target at fault.

This is the only path from a program to verdicts. A campaign, `check`, the kill matrix and the
benchmarks all call `examine`, so they cannot disagree about what a verdict means.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.judge.attribution import (
    MOST_BYTES,
    Symptom,
    at_fault,
    examine_graphs,
    inherited,
    latent_at_fault,
)
from aliasproof.judge.trial import Case, EagerRun, Spent, Subject, Trial, run_eager, run_trial
from aliasproof.judge.value_search import Budget, ShownValues, report_by_values, search_values
from aliasproof.oracles import equivalence
from aliasproof.oracles.judge import EVERY_ORACLE, ON_GRAPHS, all_not_applicable
from aliasproof.oracles.verdict import (
    ON_VALUES,
    Report,
    Reported,
    Verdict,
    Violation,
    in_both,
    with_differences,
)
from aliasproof.targets.target import Target


@dataclass(frozen=True, slots=True)
class Examination(Reported):
    """The verdicts on one case on one target.

    `reports` has the report of each oracle that judged, by its name. `trial` is None if the case
    was rejected, and `rejected` says why: undefined in eager, eager raises, or the target does not
    take it. `mistake` is an error of aliasproof itself; then the oracles on graphs report UNKNOWN.
    `shown` has values that show what only *equivalence* reported, if they were searched and found.
    `main` is the main violation, as the target `at_fault` for it shows it. Both are None if no
    oracle reports a violation, or if the caller wanted no attribution.
    """

    case: Subject
    target: Target
    reports: Mapping[str, Report]
    trial: Trial | None = None
    rejected: Rejected | None = None
    mistake: InternalError | None = None
    shown: ShownValues | None = None
    at_fault: Target | None = None
    main: Violation | None = None
    spent: Spent = field(default_factory=Spent)

    @property
    def symptom(self) -> Symptom | None:
        """The symptom that a campaign counts: the main violation with the target at fault."""
        if self.main is None or self.at_fault is None:
            return None
        return Symptom(self.at_fault.name, self.main.oracle, self.main.kind)

    @property
    def suspected(self) -> list[Violation]:
        """Differences that would be violations if some input values showed them."""
        return [violation for report in self.reports.values() for violation in report.suspected]

    @property
    def failed(self) -> bool:
        """True if results differ from eager's where the contract promises that they do not."""
        return self.trial is not None and bool(self.trial.judgement.violations)

    @property
    def suspicious(self) -> bool:
        """True if the results are right, but an oracle on graphs reports a difference."""
        return not self.failed and bool(self.violations or self.suspected)


def examine(
    case: Subject,
    target: Target,
    *,
    eager: EagerRun | None = None,
    every_oracle: bool = False,
    attribute: bool = True,
    without_graphs: str = "",
    search: Budget | None = None,
    ran: Callable[[], None] = lambda: None,
) -> Examination:
    """Run eager, run the target, judge the results, judge the graphs, find the target at fault.

    `eager` is the run in eager, if the caller has it; it may have raised. Without it, eager runs
    here, and a function on tensors must not raise. `ran` is called when the target has run. The
    oracles on graphs judge only runs with right results; with `every_oracle`, any run. With
    `attribute`, the targets that this one builds on run too, to find the first wrong one.
    `without_graphs` is the reason not to judge graphs, or empty. `search` is the budget for finding
    values that show what *equivalence* reports.
    """
    given, case, spent = case, case.under(target), Spent()
    if case is not given:
        eager = None  # it ran under other conditions
    try:
        if eager is None:
            eager = run_eager(case, spent)
            # Python code may raise: its state then is compared, and the target must raise, too.
            eager = require_returned(eager) if isinstance(case, Case) else eager
        trial = run_trial(case, target, spent, eager, ran)
    except Rejected as reason:
        return rejection(case, target, reason, spent)
    reports, mistake, shown = trial.judgement.reports, None, None
    # A wrong result needs no more evidence, so save the cost of the oracles on graphs.
    right = not trial.judgement.violations
    if without_graphs and (right or every_oracle):
        unknown = Report(Verdict.UNKNOWN, reason=without_graphs)
        reports = {**reports, **dict.fromkeys(ON_GRAPHS, unknown)}
    elif right or every_oracle:
        on_graphs, mistake = _on_graphs(case, target, trial, spent)
        reports = {**reports, **on_graphs}
        of_values = any(reports[name].violations for name in ON_VALUES)
        if search is not None and not of_values and mistake is None and isinstance(case, Case):
            report = reports[equivalence.ORACLE.name]
            # UNKNOWN may hide a difference: the graph may only be right by other arithmetic.
            open_ = report.verdict in (Verdict.VIOLATED, Verdict.UNKNOWN)
            if open_ and trial.trace.nbytes <= MOST_BYTES:  # not too large for the oracle
                start, promised = time.perf_counter(), bool(report.violations)
                shown = search_values(case, target, trial, search, promised=promised)
                spent.graphs += time.perf_counter() - start
                reported = report_by_values(report, case, shown, search)
                reports = {**reports, equivalence.ORACLE.name: reported}
    wrong, main = _main(case, target, trial, reports) if attribute else (None, None)
    return Examination(case, target, reports, trial, None, mistake, shown, wrong, main, spent)


def examine_twice(
    subject: Subject, target: Target, eager: EagerRun, without_graphs: str = ""
) -> tuple[Mapping[str, Report], Trial | None]:
    """The reports of every oracle on a target, and its trial. See `examine`.

    A difference counts only if a second run shows it.
    """
    again = partial(
        examine,
        subject,
        target,
        eager=eager,
        every_oracle=True,
        attribute=False,
        without_graphs=without_graphs,
        search=Budget(),
    )
    examination = again()
    reports = examination.reports
    # Only differences are repeated: a run costs a build, and HOLDS needs no confirmation.
    if examination.violations or examination.documented:
        # Drop the first run before the second begins: its tensors can be large.
        del examination
        examination = again()
        reports = {
            name: in_both(report, examination.reports[name]) for name, report in reports.items()
        }
    return reports, examination.trial


def rejection(case: Subject, target: Target, reason: Rejected, spent: Spent) -> Examination:
    """The examination of a case that was rejected."""
    reports = all_not_applicable(str(reason), EVERY_ORACLE).reports
    return Examination(case, target, reports, rejected=reason, spent=spent)


def require_returned(eager: EagerRun) -> EagerRun:
    """The run, if eager returned. Raises `Rejected` if it raised."""
    error = eager.observation.error
    if error is not None:
        raise Rejected(f"eager raises {type(error).__name__}: {' '.join(str(error).split())}")
    return eager


def _on_graphs(
    case: Subject, target: Target, trial: Trial, spent: Spent
) -> tuple[Mapping[str, Report], InternalError | None]:
    """The reports of the oracles on graphs. After an error of ours, they are UNKNOWN."""
    start = time.perf_counter()
    try:
        return examine_graphs(case, target, trial).reports, None
    except Rejected as reason:  # the graphs cannot be judged; the verdicts on results remain
        return all_not_applicable(str(reason), ON_GRAPHS).reports, None
    except InternalError as mistake:
        unknown = Report(Verdict.UNKNOWN, reason=str(mistake))
        return dict.fromkeys(ON_GRAPHS, unknown), mistake
    finally:  # also if it raised
        spent.graphs += time.perf_counter() - start


def _main(
    case: Subject, target: Target, trial: Trial, reports: Mapping[str, Report]
) -> tuple[Target, Violation] | tuple[None, None]:
    """The main violation, with the target at fault for it.

    Only a difference in results is attributed to a target that this one builds on. The graphs of
    such a target are stages of this one, so a violation in a graph already names the stage where it
    begins.
    """
    shown = (violation for report in reports.values() for violation in report.violations)
    suspected = (violation for report in reports.values() for violation in report.suspected)
    main = next(itertools.chain(shown, suspected), None)
    if main is None:
        return None, None
    if violations := trial.judgement.violations:
        before = inherited(case, target, trial)
        own = next(
            (violation for violation in violations if violation not in before), violations[0]
        )
        attributed = at_fault(case, target, trial, own)
        # For user code, its own violation counts, if there is one.
        yours = target.yours and own not in before
        return (target, own) if yours and not attributed[0].yours else attributed
    if main.oracle == equivalence.ORACLE.name:
        assert isinstance(case, Case)  # other subjects have no graphs
        return latent_at_fault(case, target), main
    # But the graphs of a target with one variant less are not stages of this one.
    for fewer in case.earlier_layers(target).varies:
        examination = examine(case, fewer)
        if examination.at_fault is not None and examination.main is not None:
            return examination.at_fault, examination.main
    return target, main


# --- layers ---------------------------------------------------------------------------------------
#
# A pass gets graphs of AOTAutograd, and a backend gets graphs of Dynamo. If these are wrong
# already, the user's code cannot repair them. Such a violation is *not yours*: shown in one line,
# and never counted against the user's code.


def split_by_layer(
    case: Subject, target: Target, trial: Trial, reports: Mapping[str, Report]
) -> Mapping[str, Report]:
    """The reports, where violations of the layers before a user's target are *not yours*."""
    violations = [violation for report in reports.values() for violation in report.violations]
    if not target.yours or not violations:
        return reports
    layers = dict(_layers_at_fault(case, target, trial, violations))
    if not layers:
        return reports
    wrong = ", ".join(violation.describe() for violation in layers)
    names = ", ".join(dict.fromkeys(layers.values()))
    reason = f"not yours, since {names} is wrong before {target.yours}: {wrong}"
    return {name: _without_inherited(report, layers, reason) for name, report in reports.items()}


def _layers_at_fault(
    case: Subject, target: Target, trial: Trial, violations: Sequence[Violation]
) -> Iterator[tuple[Violation, str]]:
    """The violations that a layer of torch is at fault for, each with the layer's name."""
    for violation in inherited(case, target, trial):
        if violation in violations:
            yield violation, at_fault(case, target, trial, violation)[0].name
    on_graphs = [violation for violation in violations if violation.oracle in ON_GRAPHS]
    before = case.earlier_layers(target).after
    if not on_graphs or before is None:
        return
    # The graph that a pass gets is the last graph of the layer before it.
    examination = examine(case, before, every_oracle=True, attribute=False, search=Budget())
    for violation in on_graphs:
        if violation in examination.violations:
            yield violation, before.name


def _without_inherited(report: Report, layers: Mapping[Violation, str], reason: str) -> Report:
    inherited = tuple(violation for violation in report.violations if violation in layers)
    if not inherited:
        return report
    left = [violation for violation in report.violations if violation not in layers]
    unknown = Report(Verdict.UNKNOWN, reason=reason)
    reported = with_differences(left, report.documented, report.notes, unknown)
    return replace(reported, inherited=inherited)
