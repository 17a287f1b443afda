"""The runs of a check become texts, in the process that has their tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from oracles.check_result import Check, EagerResult, TargetResult
from oracles.judge import EVERY_ORACLE
from oracles.observation import Observation
from reports.shown_runs import ShownCheck, ShownEager, ShownTarget
from reports.side_by_side import rows, value_text


def shown_eager(eager: EagerResult, notes: Sequence[str] = ()) -> ShownEager:
    """The texts of an eager run."""
    seen = eager.observation
    return ShownEager(
        str(torch.__version__),
        EVERY_ORACLE,
        tuple(map(value_text, seen.outputs)) if seen is not None else (),
        tuple(map(value_text, seen.inputs)) if seen is not None else (),
        eager.unjudged,
        eager.raised,
        eager.trace.rounding.first if eager.trace is not None else None,
        tuple(notes),
        eager.trace.unspecified if eager.trace is not None else None,
    )


def shown_target(eager: Observation | None, result: TargetResult) -> ShownTarget:
    """The texts of a target's run. Runs that do not differ are not shown."""
    differs = any(report.differences for report in result.reports.values())
    beside = (
        tuple(rows(eager, result.observation))
        if differs and eager is not None and result.observation is not None
        else ()
    )
    return ShownTarget(replace(result, observation=None), beside)


def shown_check(found: Check) -> ShownCheck:
    """The texts of a check that has ended."""
    seen = found.eager.observation
    targets = {name: shown_target(seen, result) for name, result in found.results.items()}
    return ShownCheck(shown_eager(found.eager, found.notes), targets)
