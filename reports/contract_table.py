"""A target and its contract: preconditions, waived promises, documented refusals, disputes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aliasproof.reports.console import new_table, print_table

# It imports torch, and `aliasproof --help` must not.
if TYPE_CHECKING:
    from aliasproof.oracles.contract import Contract

EVERYTHING = ("promises", "everything that eager does", "")
CLAUSE_WIDTH = 16  # columns: the longest is "does not promise"


def print_target(console: Console, target: Mapping[str, Any]) -> None:
    """Print a target, which is given as JSON values."""
    table = _begin(console, target["name"], target["summary"])
    for clause, text, reason in _clauses(target) or [EVERYTHING]:
        table.add_row(clause, Text.assemble(text, (f": {reason}" if reason else "", "dim")))
    # Why a campaign can report a finding of another target than the one that it tests.
    if (after := target["builds on"]) is not None:
        attribution = f"{after}: a violation that {after} shows too is attributed to {after}"
        table.add_row("builds on", attribution)
    print_table(console, table)
    console.print()


def print_variant(console: Console, variant: Mapping[str, Any]) -> None:
    """Print a variant, which is given as JSON values: who has it, and the clauses that it adds."""
    table = _begin(console, f"TARGET:{variant['name']}", variant["summary"])
    table.add_row("targets", ", ".join(variant["targets"]))
    for clause, text, reason in _clauses(variant):
        table.add_row(clause, Text.assemble(text, (f": {reason}", "dim")))
    print_table(console, table)
    console.print()


def print_own_target(console: Console, own: Mapping[str, Any]) -> None:
    """Print the target of an installed package, which is given as JSON values, in one line."""
    what = own["summary"] if own["broken"] is None else f"broken: {own['broken']}"
    title = Text.assemble((own["name"], "bold"), f" (entry point {own['code']}): {what}")
    console.print(title, soft_wrap=not console.is_terminal)


def _begin(console: Console, name: str, summary: str) -> Table:
    """Print the title. Returns an empty table of clauses."""
    title = Text.assemble((name, "bold"), f": {summary}")
    console.print(title, soft_wrap=not console.is_terminal)
    table = new_table(header=False)
    table.add_column("", width=CLAUSE_WIDTH, style="dim")
    table.add_column("", overflow="fold")
    return table


def _clauses(contract: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The clauses of a contract: the kind of clause, what it is about, and the reason."""
    rows = [
        ("requires", precondition["name"], precondition["reason"])
        for precondition in contract["preconditions"]
    ]
    for waiver in contract["waived"]:
        condition, scope = waiver["unless"], waiver["only"]
        exception = "" if condition is None else f" (it does if {condition})"
        exception += "" if scope is None else f" (only if {scope})"
        rows.append(("does not promise", f"'{waiver['meaning']}'{exception}", waiver["reason"]))
    rows += [
        ("may refuse", f"{refusal['name']}, with /{refusal['message']}/", refusal["reason"])
        for refusal in contract["refusals"]
    ]
    return rows + [
        ("disputed", dispute["name"], dispute["reason"]) for dispute in contract["disputes"]
    ]


def _sentence(condition: Callable[..., bool] | None) -> str | None:
    """A condition of a waiver in words."""
    if condition is None:
        return None
    # The docstring of a condition begins with one sentence that says when it holds.
    sentence = (condition.__doc__ or "a condition holds").strip().splitlines()[0].rstrip(".")
    return sentence[:1].lower() + sentence[1:]


def contract_json(contract: Contract) -> dict[str, object]:
    """A contract as JSON values."""
    return {
        "waived": [
            {
                "promise": waiver.promise.name.lower(),
                "meaning": waiver.promise.value,
                "reason": waiver.reason,
                "unless": _sentence(waiver.unless),
                "only": _sentence(waiver.only),
            }
            for waiver in contract.waivers
        ],
        "preconditions": [
            {"name": precondition.name, "reason": precondition.reason}
            for precondition in contract.preconditions
        ],
        "refusals": [
            {"name": refusal.name, "message": refusal.message, "reason": refusal.reason}
            for refusal in contract.refusals
        ],
        "disputes": [
            {"name": dispute.name, "reason": dispute.reason} for dispute in contract.disputes
        ],
    }
