"""`examine_graphs`: the oracles on graphs judge a target that has run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.execution import seed_generators
from aliasproof.oracles.equivalence import ValueHashes, differences, run_uninterpreted
from aliasproof.oracles.judge import (
    ON_GRAPHS,
    GraphRuns,
    Judgement,
    all_not_applicable,
    judge_graphs,
)
from aliasproof.oracles.stage_run import StageRun, run_stage
from aliasproof.oracles.verdict import Report, Verdict
from aliasproof.targets.target import Target
from aliasproof.trials.trial import Case, Trial

# These oracles take up to 100 bytes of memory per byte of the storages that a run makes.
MOST_BYTES = 32 << 20
TOO_LARGE = f"oracles on graphs judge runs of at most {MOST_BYTES:,}"


def examine_graphs(case: Case, target: Target, trial: Trial) -> Judgement:
    """Run the graphs of a trial's target and judge them.

    The oracles are not applicable to a trial that raised. Raises
    `InternalError` if a run that succeeded before fails now, and `Rejected` if an oracle cannot
    judge these graphs.
    """
    if trial.trace.nbytes > MOST_BYTES:
        reason = f"too large: the run has {trial.trace.nbytes:,} bytes of storages, {TOO_LARGE}"
        return Judgement(dict.fromkeys(ON_GRAPHS, Report(Verdict.UNKNOWN, reason=reason)))
    raised = trial.eager.error is not None or trial.target.error is not None
    if trial.build is None or raised:
        return all_not_applicable("a run that raised has no graphs to judge", ON_GRAPHS)
    function = trial.build.under_modes()
    if isinstance(function, str):
        return all_not_applicable(function, ON_GRAPHS)
    case = case.under(target)

    def value_hashes(*, named: bool, seed: int) -> tuple[ValueHashes, ValueHashes]:
        eager = _value_hashes(case.function, case, named=named, seed=seed)
        return eager, _value_hashes(function, case, named=named, seed=seed)

    hashes = value_hashes(named=False, seed=0)
    # Only a difference can be excused, and it takes one more run to know whether it is.
    if trial.trace.as_written is None and differences(*hashes):
        trial.trace.as_written = _is_as_written(case, trial)
    stages = _stage_runs(case, trial)
    # With names only on request: they cost time, and only a report of a violation needs them.
    runs = GraphRuns(hashes, lambda: value_hashes(named=True, seed=1), stages)
    return judge_graphs(target.contract, runs, trial.trace)


def _is_as_written(case: Case, trial: Trial) -> bool:
    """Whether a user's function is known to call no composite operator that computes."""
    # Composite operators show in inference mode alone, and there is no autograd in it.
    if trial.trace.differentiates:
        return False
    try:
        return (
            run_uninterpreted(case.function, case.fresh_inputs(), composites=True).composites == ()
        )
    # A function may need what inference mode forbids. Then nothing is known.
    except Exception:  # noqa: BLE001 - see above
        return False


def _stage_runs(case: Case, trial: Trial) -> list[StageRun]:
    """A run of each stage that can run by itself."""
    assert trial.build is not None
    runs = []
    for stage in trial.build.stages:
        # A whole stage takes the inputs of the case. Another one is called by a wrapper; its inputs
        # are clones of what the wrapper passed, None if the wrapper never called it.
        given = case.fresh_inputs() if stage.whole else stage.inputs
        if given is not None:
            seed_generators()
            runs.append(run_stage(stage, given))
    return runs


def _value_hashes(
    function: Callable[..., Any], case: Case, *, named: bool, seed: int
) -> ValueHashes:
    """What a function leaves behind under uninterpreted execution."""
    seed_generators()
    try:
        return run_uninterpreted(function, case.fresh_inputs(), named=named, seed=seed)
    except (Rejected, InternalError):
        raise
    except Exception as error:
        # The same function ran on real values before, so this error is ours.
        raise InternalError(
            f"uninterpreted execution failed: {type(error).__name__}: {error}"
        ) from error
