"""The table of oracles, and the judgement of all oracles on one run of a target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from aliasproof.eager.trace import Trace
from aliasproof.oracles import (
    aliasing,
    bounds,
    clobbers,
    equivalence,
    errors,
    inputs,
    invariants,
    metadata,
    objects,
    structure,
    uninitialised,
    values,
)
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.equivalence import ValueHashes
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.oracle import Needs, Oracle
from aliasproof.oracles.stage_run import StageRun
from aliasproof.oracles.verdict import Report, Reported, not_applicable

# The order decides which violation is the main one: the most visible symptom first. *errors* must
# be the first: `judge` runs the others only if neither run raised. What code does to memory comes
# next: it explains wrong values, which depend on chance.
ORACLES: tuple[Oracle, ...] = (
    errors.ORACLE,
    bounds.ORACLE,
    uninitialised.ORACLE,
    values.ORACLE,
    inputs.ORACLE,
    aliasing.ORACLE,
    objects.ORACLE,
    metadata.ORACLE,
    structure.ORACLE,
    equivalence.ORACLE,
    clobbers.ORACLE,
    invariants.ORACLE,
)

ON_RESULTS = tuple(oracle.name for oracle in ORACLES if oracle.needs is Needs.RESULTS)
ON_GRAPHS = tuple(oracle.name for oracle in ORACLES if oracle.needs is not Needs.RESULTS)
EVERY_ORACLE = tuple(oracle.name for oracle in ORACLES)
# Used only for generated code, whose buffers are guarded.
ON_MEMORY = (bounds.ORACLE, uninitialised.ORACLE)


def oracle_names(*, paths: bool, memory: bool) -> tuple[str, ...]:
    """The names of the oracles that apply to runs, in their order.

    `paths` says whether outputs have paths, and `memory` whether buffers are guarded.
    """
    left_out = {
        *(() if paths else (structure.ORACLE.name,)),
        *(() if memory else (oracle.name for oracle in ON_MEMORY)),
    }
    return tuple(name for name in EVERY_ORACLE if name not in left_out)


@dataclass(frozen=True, slots=True)
class Judgement(Reported):
    """The report of each oracle, by the oracle's name."""

    reports: Mapping[str, Report]


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Judgement:
    """Compare what a target's run left behind with what eager's run left behind.

    After an error there is nothing to compare, so only *errors* decides. If the two runs leave
    objects at different paths, only *structure* decides. *structure* has no report if outputs have
    no paths, and the oracles of memory have none if no buffer was guarded.
    """
    if eager.error and target.error and eager.called and target.called:
        # Both raise in the backward pass. A compiler may refuse at compile time a function whose
        # backward pass raises. If both calls returned, the results before that pass are compared.
        return judge(contract, eager.called, target.called, trace)
    names = oracle_names(paths=bool(eager.paths or target.paths), memory=target.memory is not None)
    asked_here = (oracle for oracle in ORACLES if oracle.name in names)
    errors, *others = (oracle for oracle in asked_here if oracle.needs is Needs.RESULTS)
    # A run that raised leaves outputs and inputs in an intermediate state.
    raised = eager.error is not None or target.error is not None
    elsewhere = not raised and structure.other_path(eager, target) is not None
    # Autograd forbids reading some views after a write to their base.
    with torch.no_grad():
        reports = {errors.name: errors.judge(contract, eager, target, trace)}
        for oracle in others:
            if raised:
                report = not_applicable("a run that raised has no outputs to compare")
            elif elsewhere and oracle is not structure.ORACLE:
                report = not_applicable("eager and target leave other things behind")
            else:
                report = oracle.judge(contract, eager, target, trace)
            reports[oracle.name] = report
    return Judgement(reports)


def with_memory(
    judgement: Judgement, contract: Contract, runs: tuple[Observation, Observation], trace: Trace
) -> Judgement:
    """The judgement, extended by the oracles of memory once the target's memory use is known."""
    if any(run.error is not None for run in runs):
        return judgement
    reports = {each.name: each.judge(contract, *runs, trace) for each in ON_MEMORY}
    return Judgement({**judgement.reports, **reports})


def all_not_applicable(reason: str, oracles: Iterable[str] = ON_RESULTS) -> Judgement:
    """The judgement where none of these oracles applies."""
    return Judgement({name: not_applicable(reason) for name in oracles})


def judge_graphs(
    contract: Contract,
    hashes: tuple[ValueHashes, ValueHashes],
    spelled: Callable[[], tuple[ValueHashes, ValueHashes]],
    stages: Sequence[StageRun],
    trace: Trace,
) -> Judgement:
    """Judge what results of one run cannot show: value hashes and stages.

    `hashes` are the value hashes that eager and target left. `spelled` repeats these two runs with
    another seed and keeps the symbolic values. `stages` has a run of each stage, in their order.
    """
    reports = {equivalence.ORACLE.name: equivalence.judge(contract, *hashes, trace, spelled)}
    on_stages = (oracle for oracle in ORACLES if oracle.needs is Needs.STAGES)
    return Judgement(reports | {it.name: it.judge(contract, stages, trace) for it in on_stages})
