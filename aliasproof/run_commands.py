"""The commands about runs of campaigns, with their options: `fuzz` and what is done with its runs.

A command is imported when it is called: `--help` must not wait for torch.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from aliasproof.options import (
    DeviceName,
    Group,
    Jobs,
    Json,
    PastKnown,
    Profile,
    ProgramLimit,
    Programs,
    RunFolder,
    Seconds,
    Seed,
    ShareOfShards,
    Targets,
    Until,
    WorkerMemory,
)
from aliasproof.startup import quitting_at_ctrl_c


def fuzz(
    target: Targets = None,
    seconds: Seconds = None,
    programs: Programs = None,
    until: Until = None,
    seed: Seed = None,
    run: RunFolder = None,
    workers: Jobs = None,
    shard: ShareOfShards = None,
    profile: Profile = None,
    limit: ProgramLimit = None,
    memory: WorkerMemory = None,
    past_known: PastKnown = False,
    device: DeviceName = None,
    group: Group = None,
    json: Json = False,
    fail_on_findings: Annotated[
        bool, typer.Option("--fail-on-findings", help="Exit with status 1 if there is a finding.")
    ] = False,
) -> int:
    """Search for miscompiles with random programs.

    Each miscompile is reduced, confirmed in a fresh process, and stored in a folder of its own. All
    is stored at once, so that a run that was ended or killed goes on where it was, with --run DIR.
    """
    given = (tuple(target or ()), seconds, programs, until, seed, run, workers, shard, profile)
    with quitting_at_ctrl_c():
        if "torch" not in sys.modules:
            print("Starting. To import torch takes some seconds.", file=sys.stderr, flush=True)
        from aliasproof.commands.fuzz import FuzzOptions, run_campaign

        options = FuzzOptions(*given, limit, memory, past_known, device, group)
        found = run_campaign(options, as_json=json)
    return int(found and (fail_on_findings or options.fails_on_findings))
