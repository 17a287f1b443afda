"""The eager run of a check: twice, since a function that differs from itself cannot be judged."""

from __future__ import annotations

from pathlib import Path

import torch

from aliasproof.eager.definedness_rules import Fill
from aliasproof.eager.trace import Trace
from aliasproof.ir.errors import Rejected
from aliasproof.judge.trial import Case, EagerRun, run_eager
from aliasproof.oracles.check_result import EagerResult
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import judge
from aliasproof.oracles.observation import Observation, observe
from aliasproof.reports.side_by_side import value_text
from aliasproof.user_code.comparable import Leaves
from aliasproof.user_code.user_file import raised_text


def run_eager_twice(case: Case, file: Path | None) -> EagerResult:
    """Run in eager twice. If two runs on equal inputs differ, no target can be compared."""
    try:
        first, trace = run_eager(case)
        again, _ = run_eager(case)
    except Rejected as undefined:
        runs = _filled_runs(case)
        if not runs:
            return eager_result(None, Trace(), f"it is undefined in eager: {undefined}")
        (first, trace), (again, _) = runs[:2]
    raised = None if first.error is None else raised_text(first.error, file)
    if first.error is not None:
        # Some functions raise only under the dispatch mode that watches the eager run. For
        # example, torch.cond requires that a mode knows it.
        unwatched = observe(case.function, case.fresh_inputs())
        if type(unwatched.error) is not type(first.error):
            return eager_result(None, trace, f"aliasproof cannot watch its eager run: {raised}")
    # The empty contract promises everything: any difference between the two runs counts.
    difference = next(iter(judge(Contract(), first, again, trace).violations), None)
    if difference is not None:
        reason = (
            f"two eager runs on equal inputs differ: {difference.describe()}; the function keeps"
            " state outside of its inputs, or uses random numbers that torch.manual_seed does not"
            " control"
        )
        return eager_result(first, trace, reason, raised)
    return eager_result(first, trace, None, raised)


def _filled_runs(case: Case) -> list[EagerRun]:
    """Runs with other values where a cast is undefined; none if what they leave differs."""
    if not isinstance(case.function, Leaves):
        return []
    runs = []
    try:
        for fill in Fill:
            case.function.fill = fill
            runs.append(run_eager(case))
            differs = judge(Contract(), runs[0].observation, *runs[-1]).violations
            if differs or runs[-1].observation.error is not None:
                raise Rejected("what an undefined cast leaves is used")
    except Rejected:
        case.function.fill = None
        return []
    return runs


def eager_result(
    seen: Observation | None, trace: Trace, unjudged: str | None, raised: str | None = None
) -> EagerResult:
    """The eager run with its texts."""
    return EagerResult(
        seen,
        trace,
        unjudged,
        raised,
        outputs=() if seen is None else tuple(map(value_text, seen.outputs)),
        inputs=() if seen is None else tuple(map(value_text, seen.inputs)),
        rounded=trace.rounding.first,
        unspecified=trace.unspecified,
        torch=str(torch.__version__),
    )
