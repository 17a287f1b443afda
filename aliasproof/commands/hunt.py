"""The command `hunt`: a campaign of programs as people write them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aliasproof.commands.fuzz import (
    FailOnFindings,
    Jobs,
    PastKnown,
    RunFolder,
    Seed,
    Share,
    exit_status,
    run_campaign,
    share_of,
    start_early,
    worker_count,
)
from aliasproof.commands.options import Json, KnownToo, above_zero, whole_number
from aliasproof.commands.startup import quitting_at_ctrl_c
from aliasproof.ir.errors import UserError

if TYPE_CHECKING:  # it imports torch
    from aliasproof.campaigns.store.plan import Plan

EXPECTED = "PACKAGE.MODULE:FUNCTION or FILE.py:FUNCTION"
DEFAULT, DEFAULT_SECONDS = "aot-eager", 600.0
LAYERS = ("identity", "dynamo", "aot-eager", "inductor", "reference")


def _known(name: str | None) -> str | None:
    if name is not None and name not in LAYERS and ":" not in name:
        raise UserError(f"--target {name}: give one of {', '.join(LAYERS)}, or {EXPECTED}")
    return name


LayerOrCode = Annotated[
    str | None,
    typer.Option(
        callback=_known,
        metavar="|".join(LAYERS),
        help=f"The layer of torch.compile; or your own pass or backend as {EXPECTED}. Default:"
        f" {DEFAULT}.",
    ),
]
Programs = Annotated[int | None, whole_number("Draw this many programs at most.", 1)]
Seconds = Annotated[
    float | None,
    above_zero("SECONDS", "End after this time. Default, without --programs: 600."),
]


def hunt(
    target: LayerOrCode = None,
    programs: Programs = None,
    seconds: Seconds = None,
    seed: Seed = None,
    workers: Jobs = None,
    past_known: PastKnown = False,
    run: RunFolder = None,
    shard: Share = None,
    json: Json = False,
    known: KnownToo = False,
    fail_on_findings: FailOnFindings = False,
) -> int:
    """Search with programs as people write them: modules, gradients, closures, loops, state.

    Each program is called as a user calls it, several times; all that the caller can reach
    afterwards must be as in eager. What differs is reduced, and its script runs in a fresh process.
    A finding is a folder with finding.json, issue.md and reproducer.py, which needs torch alone.
    All is stored at once: a run that was ended or killed goes on where it was, with --run DIR.

    Exit status: 0; 1 for a finding, or a violation that waits to be reduced, with
    --fail-on-findings; 2 bad input, or a full disk; 3 internal error; 4 no program was judged; 130
    interrupted.
    """
    started = time.monotonic()  # what is asked to take 40 seconds includes the import of torch
    given = {"seed": seed, "programs": programs, "seconds": seconds, "share": share_of(shard)}
    given |= {"workers": worker_count(workers, None), "past_known": past_known or None}
    given |= {"finish": (seconds, programs) == (None, None)}
    with quitting_at_ctrl_c():
        start_early([target or DEFAULT])
        plan = _plan(run, target, given)
        campaign = run_campaign(plan, run, (None, None), started, as_json=json, everything=known)
    return exit_status(campaign, campaign.total.judged, fail_on_findings)


def _plan(run: Path | None, target: str | None, given: Mapping[str, Any]) -> Plan:
    """The plan with what is given by options; the rest is as in the run that goes on."""
    from aliasproof.campaigns.store.plan import HUNT, Plan
    from aliasproof.campaigns.store.run_folder import stored_plan
    from aliasproof.judge.python_case import EAGER
    from aliasproof.targets.registry import backend_source
    from aliasproof.targets.user_names import grant

    stored = None if run is None else stored_plan(run)
    plan = replace(stored or Plan((DEFAULT,)), command=HUNT, workers=Plan(()).workers)
    if target is not None:
        # Only what the command line names: a file names no code to import.
        grant([target])
        plan = replace(plan, targets=(target,))
    if plan.targets != (EAGER,):
        backend_source(plan.targets[0])  # it says what is wrong with a user's code
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    # Who goes on without a limit wants all that was found.
    plan = replace(plan, finish=plan.finish and stored is not None)
    limited = plan.seconds is not None or plan.programs is not None
    return plan if limited else replace(plan, seconds=DEFAULT_SECONDS)
