"""All oracles on one run: those that see what it left behind, and those that look inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from oracles import (
    aliasing,
    clobbers,
    equivalence,
    invariants,
    metadata,
    mutated_inputs,
    output_values,
    raised_errors,
)
from oracles.contract import Contract, Promise
from oracles.equivalence import ValueHashes
from oracles.observation import Observation
from oracles.stage_run import StageRun
from oracles.verdict import Report, Verdict, Violation, not_applicable
from programs.trace import Trace

Oracle: TypeAlias = Callable[[Contract, Observation, Observation, Trace], Report]

# In the order in which a violation counts as the main one: the plainest symptom first.
ORACLES: dict[str, Oracle] = {
    "errors": raised_errors.judge,
    "values": output_values.judge,
    "inputs": mutated_inputs.judge,
    "aliasing": aliasing.judge,
    "metadata": metadata.judge,
}


# What the others cannot see in numbers: a target that passes them by luck.
INSIDE = ("equivalence", "clobbers", "invariants")


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
    """Hold a target's run against eager's.

    After an error there is nothing to compare, so only *errors* decides.
    """
    reports = {"errors": raised_errors.judge(contract, eager, target, trace)}
    if eager.error is not None or target.error is not None:
        reason = reports["errors"].reason or "a run that raised has no outputs to compare"
        return Judgement(
            reports | {name: not_applicable(reason) for name in ORACLES if name != "errors"}
        )
    for name, oracle in ORACLES.items():
        if name != "errors":
            reports[name] = oracle(contract, eager, target, trace)
    return Judgement(reports)


def excluded(reason: str, oracles: Iterable[str] = ORACLES) -> Judgement:
    """The judgement on a run that the contract says nothing about."""
    return Judgement({name: not_applicable(reason) for name in oracles})


@dataclass(frozen=True, slots=True)
class Inside:
    """What was seen inside: the terms of eager and target, and a run of each stage.

    `spell` gives the terms with names.
    """

    terms: tuple[ValueHashes, ValueHashes]
    spell: Callable[[], tuple[ValueHashes, ValueHashes]]
    stages: Sequence[StageRun]


def judge_inside(contract: Contract, inside: Inside, trace: Trace) -> Judgement:
    """Judge what numbers do not show. The first stage has none before it."""
    stages = inside.stages
    pairs = [(None, stages[0]), *pairwise(stages)] if stages else []
    return Judgement(
        {
            "equivalence": equivalence.judge(contract, *inside.terms, trace, inside.spell),
            "clobbers": _of_stages([clobbers.judge_stage(run, before) for before, run in pairs]),
            "invariants": _of_stages([invariants.judge_stage(run) for run in stages])
            if contract.promises(Promise.GRAPHS, trace)
            else not_applicable("not promised"),
        }
    )


def _of_stages(reports: Sequence[Report]) -> Report:
    """One report of those on each stage: the worst verdict, with all violations and the first reason."""
    if not reports:
        return not_applicable("the target shows no graph")
    worst = min((each.verdict for each in reports), key=_FROM_WORST.index)
    reason = next((each.reason for each in reports if each.verdict is worst and each.reason), "")
    return Report(
        worst, tuple(violation for each in reports for violation in each.violations), reason
    )


_FROM_WORST = (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.HOLDS, Verdict.NOT_APPLICABLE)
