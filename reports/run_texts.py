"""The runs of a check become texts, in the process that has their tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from aliasproof.oracles.check_result import Check, EagerResult, TargetResult
from aliasproof.oracles.judge import EVERY_ORACLE
from aliasproof.oracles.place_names import renamed
from aliasproof.reports.shown_runs import ShownCheck, ShownEager, ShownTarget
from aliasproof.reports.side_by_side import (
    SHARED,
    SHARED_STORAGE,
    first_call_rows,
    rows,
    value_text,
)


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
        eager.names,
    )


def shown_target(eager: EagerResult, result: TargetResult) -> ShownTarget:
    """The texts of a target's run. Runs that do not differ are not shown."""
    # A target with conditions of its own has an eager run of its own.
    seen = result.eager or eager.observation
    differs = any(report.differences for report in result.reports.values())
    beside = (
        tuple(
            (renamed(place, eager.names), renamed(ours, eager.names), renamed(theirs, eager.names))
            if place.startswith((SHARED, SHARED_STORAGE))
            else (renamed(place, eager.names), ours, theirs)
            for place, ours, theirs in (
                *first_call_rows(result.first_call),
                *rows(seen, result.observation),
            )
        )
        if differs and seen is not None and result.observation is not None
        else ()
    )
    return ShownTarget(replace(result, observation=None, eager=None, first_call=()), beside)


def shown_check(found: Check) -> ShownCheck:
    """The texts of a check that has ended."""
    targets = {name: shown_target(found.eager, result) for name, result in found.results.items()}
    return ShownCheck(shown_eager(found.eager, found.notes), targets)
