"""The command `show`: what a run has stored, and what it does in the installed torch."""

from __future__ import annotations

from typing import Annotated

from aliasproof.commands.options import Json, OwnTarget, argument

FindingName = Annotated[
    str,
    argument(
        "FINDING", "Folder or name (under runs/) of a finding, a suspicion, an unconfirmed failure."
    ),
]


def show(finding: FindingName, target: OwnTarget = None, json: Json = False) -> None:
    """Show a finding: program, evidence, eager beside the target, graphs, reproducer.

    The program runs again in the installed torch.
    """
    from aliasproof.findings.showing import show_finding

    show_finding(finding, target, as_json=json)
