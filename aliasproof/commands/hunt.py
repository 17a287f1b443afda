"""The command `hunt`: a campaign of programs as people write them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aliasproof.commands.fuzz import FailOnFindings, new_folder
from aliasproof.options import Json, above_zero, whole_number
from aliasproof.programs.errors import UserError
from aliasproof.startup import INTERRUPTED, quit_now, quitting_at_ctrl_c

if TYPE_CHECKING:  # it imports torch
    from aliasproof.campaigns.run.python_hunt import PythonHunt

EXPECTED = "PACKAGE.MODULE:FUNCTION or FILE.py:FUNCTION"
LAYERS = ("identity", "dynamo", "aot-eager", "inductor", "reference")


def _known(name: str) -> str:
    if name not in LAYERS and ":" not in name:
        raise UserError(f"--target {name}: give one of {', '.join(LAYERS)}, or {EXPECTED}")
    return name


LayerOrCode = Annotated[
    str,
    typer.Option(
        callback=_known,
        metavar="|".join(LAYERS),
        help=f"The layer of torch.compile; or your own pass or backend as {EXPECTED}.",
    ),
]
RunFolder = Annotated[
    Path | None,
    typer.Option(
        "--run",
        "--out",
        metavar="DIR",
        help="Folder for the findings. Default: runs/<date>-<time>.",
    ),
]


def hunt(
    target: LayerOrCode = "aot-eager",
    programs: Annotated[int, whole_number("Draw so many programs.", 1)] = 1000,
    seconds: Annotated[float, above_zero("SECONDS", "End the search after that time.")] = 600.0,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Of the programs.")] = 0,
    workers: Annotated[int, whole_number("So many processes.", 1)] = 2,
    past_known: Annotated[
        bool, typer.Option("--past-known", help="Mend known bugs of torch, to find others.")
    ] = False,
    run: RunFolder = None,
    json: Json = False,
    fail_on_findings: FailOnFindings = False,
) -> int:
    """Search with programs as people write them: modules, gradients, closures, loops, state.

    Each program is called as a user calls it, several times; all that the caller can reach
    afterwards must be as in eager. What differs is reduced, and its script runs in a fresh process.
    A finding is a folder with finding.json, issue.md and reproducer.py, which needs torch alone.

    Exit status: 0; 1 for a finding, with --fail-on-findings; 2 bad input; 3 internal error; 130
    interrupted.
    """
    with quitting_at_ctrl_c():
        if "torch" not in sys.modules:
            print("Starting. To import torch takes some seconds.", file=sys.stderr, flush=True)
        from aliasproof.campaigns.run.python_hunt import PythonHunt
        from aliasproof.targets.registry import backend_source
        from aliasproof.targets.user_names import grant

        grant([target])
        backend_source(target)  # it says what is wrong with a user's code
        campaign = PythonHunt(seed, target, programs, seconds, workers, past_known)
        _run(campaign, run, as_json=json)
    if campaign.interrupted:
        return INTERRUPTED
    return int(bool(campaign.findings) and fail_on_findings)


def _run(campaign: PythonHunt, run: Path | None, *, as_json: bool) -> None:
    """Run the campaign, store its findings, and print the outcome."""
    from aliasproof.campaigns.publish.python_issue import python_issue
    from aliasproof.campaigns.publish.python_reproducer import SCRIPT, script
    from aliasproof.campaigns.store.hunt_folder import ISSUE, PythonRunFolder
    from aliasproof.processes.interrupts import Interrupts
    from aliasproof.reports.console import notes, results, write_json
    from aliasproof.reports.hunt_report import HuntProgress, print_hunt

    folder = PythonRunFolder.create(run if run is not None else new_folder(Path("runs")))
    progress = HuntProgress(notes(), folder.folder)
    for finding, confirmation in campaign.run(progress, Interrupts(at_third=quit_now)):
        issue = python_issue(finding, confirmation.output)
        folder.write(finding, {SCRIPT: script(finding), ISSUE: issue})
        progress.tell(finding)
    folder.write_outcome(campaign.to_json())
    if as_json:
        write_json(campaign.to_json() | {"folder": str(folder.folder)})
    else:
        print_hunt(results(), campaign, folder)
