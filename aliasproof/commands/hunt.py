"""The command `hunt`: a campaign of programs as people write them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aliasproof.options import above_zero, whole_number
from aliasproof.programs.errors import UserError

if TYPE_CHECKING:
    from aliasproof.campaigns.run.python_hunt import PythonHunt

EXPECTED = "PACKAGE.MODULE:FUNCTION or FILE.py:FUNCTION"
LAYERS = ("identity", "dynamo", "aot-eager", "inductor", "reference")


def _known(name: str) -> str:
    if name not in LAYERS and ":" not in name:
        raise UserError(f"--target {name}: give one of {', '.join(LAYERS)}, or {EXPECTED}")
    return name


def hunt(
    target: Annotated[
        str,
        typer.Option(
            callback=_known,
            metavar="|".join(LAYERS),
            help=f"The layer of torch.compile; or your own pass or backend as {EXPECTED}.",
        ),
    ] = "aot-eager",
    programs: Annotated[int, whole_number("Draw so many programs.", 1)] = 1000,
    seconds: Annotated[float, above_zero("SECONDS", "Begin no program after that time.")] = 600.0,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Of the programs.")] = 0,
    workers: Annotated[int, whole_number("So many processes.", 1)] = 2,
    past_known: Annotated[
        bool, typer.Option("--past-known", help="Mend known bugs of torch, to find others.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Findings go there.")] = Path(
        "runs/hunt"
    ),
) -> int:
    """Search with programs as people write them: modules, gradients, closures, loops, state.

    Each program is called as a user calls it, several times; all that the caller can reach
    afterwards must be as in eager. A finding is a folder with finding.json and reproducer.py, which
    needs torch alone. The exit status is 1 if something was found.
    """
    from aliasproof.campaigns.run.python_hunt import PythonHunt
    from aliasproof.targets.user_names import grant
    from aliasproof.trials.python_trial import backend_of

    grant([target])
    backend_of(target)
    campaign = PythonHunt(seed, target, programs, seconds, workers, past_known)
    _print(campaign, out)
    return int(bool(campaign.findings))


def _print(campaign: PythonHunt, out: Path) -> None:
    """Run the campaign; store each finding, and print a line about it."""
    from aliasproof.campaigns.publish.python_reproducer import SCRIPT, script
    from aliasproof.reports.console import results

    console = results()
    for finding in campaign.run():
        folder = finding.save(out)
        (folder / SCRIPT).write_text(script(finding), encoding="utf-8")
        state = f" (known: {finding.known})" if finding.known else ""
        state += "" if finding.confirmed else " (not confirmed in a fresh process)"
        console.print(
            f"{folder.name}{state}: {finding.kind[:100]} at {finding.place},"
            f" {finding.drawn_lines} -> {finding.program.lines} lines",
            markup=False,
            soft_wrap=True,
        )
    counted = ", ".join(f"{count} {name}" for name, count in campaign.outcomes.most_common())
    console.print(f"{campaign.outcomes.total()} programs: {counted}", markup=False)
    for note in campaign.notes:
        console.print(note[:300], markup=False)
