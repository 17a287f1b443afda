"""All oracles on one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from generators.trace import Trace
from oracles import aliasing, errors, inputs, metadata, values
from oracles.contract import Contract
from oracles.observation import Observation
from oracles.verdict import Report, Verdict, Violation, not_applicable

Oracle: TypeAlias = Callable[[Contract, Observation, Observation, Trace], Report]

# In the order in which a violation counts as the main one: the plainest symptom first.
ORACLES: dict[str, Oracle] = {
    "errors": errors.judge,
    "values": values.judge,
    "inputs": inputs.judge,
    "aliasing": aliasing.judge,
    "metadata": metadata.judge,
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """The report of each oracle, by its name."""

    reports: Mapping[str, Report]

    @property
    def violations(self) -> list[Violation]:
        """All violations, the main one first."""
        return [violation for report in self.reports.values() for violation in report.violations]

    @property
    def refused(self) -> str | None:
        """Why the target is not for this program, if all oracles say so."""
        first = next(iter(self.reports.values()))
        return first.reason if first.verdict is Verdict.NOT_APPLICABLE else None


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Judgement:
    """Hold a target's run against eager's. After an error there is nothing to compare, so only *errors* decides."""
    reports = {"errors": errors.judge(contract, eager, target, trace)}
    if eager.error is not None or target.error is not None:
        reason = reports["errors"].reason or "a run that raised has no outputs to compare"
        return Judgement(reports | {name: not_applicable(reason) for name in ORACLES if name != "errors"})
    for name, oracle in ORACLES.items():
        if name != "errors":
            reports[name] = oracle(contract, eager, target, trace)
    return Judgement(reports)


def excluded(reason: str) -> Judgement:
    """The judgement on a run that the contract says nothing about."""
    return Judgement({name: not_applicable(reason) for name in ORACLES})
