"""The command `hunt`: `fuzz --language python`, with the options that it needs."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from aliasproof.commands.fuzz import (
    HUNTED,
    LAYERS,
    FailOnFindings,
    Jobs,
    PastKnown,
    RunFolder,
    Seed,
    Share,
    exit_status,
    plan_of,
    run_campaign,
    share_of,
    start_early,
    worker_count,
)
from aliasproof.commands.options import Json, KnownToo, above_zero, whole_number
from aliasproof.commands.startup import quitting_at_ctrl_c
from aliasproof.ir.errors import UserError
from aliasproof.targets.names import PYTHON

EXPECTED = "PACKAGE.MODULE:FUNCTION or FILE.py:FUNCTION"


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
        f" {HUNTED}.",
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
    given: dict[str, Any] = {"language": PYTHON, "seed": seed, "programs": programs}
    given |= {"seconds": seconds, "share": share_of(shard)}
    given |= {"workers": worker_count(workers, None), "past_known": past_known or None}
    given |= {"finish": (seconds, programs) == (None, None)}
    with quitting_at_ctrl_c():
        start_early([target or HUNTED])
        plan = plan_of(run, () if target is None else [target], given)
        campaign = run_campaign(plan, run, (None, None), started, as_json=json, everything=known)
    return exit_status(campaign, campaign.total.judged, fail_on_findings)
