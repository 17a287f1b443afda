"""The command `targets`: what can be tested, and the contract of each target."""

from __future__ import annotations

from reports.console import results, write_json
from reports.contract_table import contract_json, print_target
from targets.registry import TARGETS


def list_targets(*, as_json: bool) -> None:
    """Print each target with its contract: exceptions, preconditions, documented refusals."""
    if as_json:
        found = [
            {"name": target.name, "summary": target.summary}
            | contract_json(target.contract)
            | {"builds on": None if target.after is None else target.after.name}
            for target in TARGETS.values()
        ]
        write_json({"targets": found})
        return
    console = results()
    for target in TARGETS.values():
        after = None if target.after is None else target.after.name
        print_target(console, target.name, target.summary, target.contract, after)
