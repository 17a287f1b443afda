"""The commands about runs of campaigns, with their options: `fuzz` and what is done with its runs.

A command is imported when it is called: `--help` must not wait for torch.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from aliasproof.options import (
    ClusterAddress,
    DeviceName,
    Group,
    Jobs,
    Json,
    OwnTarget,
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
    cluster: ClusterAddress = None,
    json: Json = False,
    fail_on_findings: Annotated[
        bool, typer.Option("--fail-on-findings", help="Exit with status 1 if there is a finding.")
    ] = False,
) -> int:
    """Search for miscompiles with random programs.

    Each miscompile is reduced, confirmed in a fresh process, and stored in a folder of its own. All
    is stored at once, so that a run that was ended or killed goes on where it was, with --run DIR.
    """
    started = time.monotonic()  # what is asked to take 40 seconds includes the import of torch
    given = (tuple(target or ()), seconds, programs, until, seed, run, workers, shard, profile)
    with quitting_at_ctrl_c():
        if "torch" not in sys.modules:
            print("Starting. To import torch takes some seconds.", file=sys.stderr, flush=True)
        from aliasproof.commands.fuzz import FuzzOptions, run_campaign

        options = FuzzOptions(*given, limit, memory, past_known, device, group, cluster)
        found = run_campaign(options, started, as_json=json)
    return int(found and (fail_on_findings or options.fails_on_findings))


def merge(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the joined run.")],
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")],
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the outcome as a page in HTML.")
    ] = None,
    summary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write new findings, with their issues, in Markdown."),
    ] = None,
    fail_on_new: Annotated[
        bool,
        typer.Option(
            "--fail-on-new",
            help="Exit with status 1 if there is a finding that DIR did not have, and that is no"
            " known bug.",
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Join runs by signature, such as the shares of 'fuzz --shard I/N', and print the outcome.

    What is in several runs counts once, so a run can be joined again.
    """
    from aliasproof.commands.merge import merge_runs

    found = merge_runs(folder, runs, as_json=json, page_file=page, summary_file=summary)
    return int(found and fail_on_new)


def triage(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    finding: Annotated[
        str | None, typer.Argument(metavar="FINDING", help="Name of a finding to set.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="new, reduced, known, fixed, documented, flaky, ..."),
    ] = None,
    link: Annotated[str, typer.Option(metavar="URL", help="The issue of the finding.")] = "",
    note: Annotated[str, typer.Option(metavar="TEXT", help="A note for readers.")] = "",
    json: Json = False,
) -> None:
    """List the findings of a run with their states, or set the state of one."""
    from aliasproof.commands.triage import triage_run

    triage_run(run, finding, state, (link, note), as_json=json)


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
) -> None:
    """Show a run while it goes on: progress, findings by target and state, throughput, memory.

    The view ends with the run, or at Ctrl-C, which the run does not notice. Where the output is no
    terminal, the state is printed once.
    """
    from aliasproof.commands.watch import watch_run

    watch_run(run)


def replay(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="CORPUS|RUN",
            help="Folder of findings, or of a run. Default: the known bugs of torch.",
        ),
    ] = None,
    torch: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PYTHON",
            help="An interpreter that has the torch to run in. Repeat the option for more. Default:"
            " this one.",
        ),
    ] = None,
    target: OwnTarget = None,
    json: Json = False,
) -> int:
    """Run reproducers again: each bug is still failing, fixed, changed, or has regressed.

    They are written anew from the programs: what a folder has as reproducer is not run.

    A finding has regressed if its state is 'fixed' (see 'aliasproof triage') and it shows again. So
    has a known bug that shows in a torch in which it was fixed, as its file says.

    Exit status: 0, or 1 if a bug regressed.
    """
    from aliasproof.commands.replay import replay_bugs

    return int(replay_bugs(folder, torch or (), target, as_json=json))
