"""Looking inside a target that was tried: its terms, and each graph that it passed through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from oracles.equivalence import ValueHashes, run_uninterpreted
from oracles.judge import ON_GRAPHS, GraphRuns, Judgement, excluded, judge_graphs
from oracles.stage_run import StageRun, run_stage
from programs.errors import InternalError, Rejected
from targets.target import Target
from trials.trial import SEED, Case, Trial


def look_inside(subject: Case, target: Target, trial: Trial) -> Judgement:
    """What the oracles on terms and stages say of a trial. Nothing is said of one that raised, was refused or not judged.

    Raises `InternalError` if a run that went well before fails now.
    """
    if trial.judgement.refused is not None:
        return excluded(trial.judgement.refused, ON_GRAPHS)
    if (
        trial.build is None
        or trial.target is None
        or trial.eager.error is not None
        or trial.target.error is not None
    ):
        return excluded("there is no run to look into", ON_GRAPHS)
    function = trial.build.function

    def terms(*, named: bool = False) -> tuple[ValueHashes, ValueHashes]:
        return _terms(subject.function, subject, named=named), _terms(
            function, subject, named=named
        )

    stages: list[StageRun] = []
    for stage in trial.build.stages:
        given = subject.fresh_inputs() if stage.whole else stage.inputs
        if given is not None:
            torch.manual_seed(SEED)
            stages.append(run_stage(stage, given))
    return judge_graphs(
        target.contract, GraphRuns(terms(), lambda: terms(named=True), stages), trial.trace
    )


def _terms(function: Callable[..., Any], subject: Case, *, named: bool) -> ValueHashes:
    torch.manual_seed(SEED)
    try:
        return run_uninterpreted(function, subject.fresh_inputs(), named=named)
    except (Rejected, InternalError):
        raise
    except Exception as error:
        raise InternalError(
            f"following the terms of a run failed: {type(error).__name__}: {error}"
        ) from error
