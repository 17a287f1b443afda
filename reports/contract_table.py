"""A target and its contract: preconditions, waived promises, documented refusals."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from oracles.contract import Contract, Waiver
from reports.console import new_table, print_table

CLAUSE_WIDTH = 16  # columns: the longest is "does not promise"


def print_target(
    console: Console, name: str, summary: str, contract: Contract, after: str | None
) -> None:
    """Print a target. `after` is the target that it builds on."""
    title = Text.assemble((name, "bold"), f": {summary}")
    console.print(title, soft_wrap=not console.is_terminal)
    table = new_table(header=False)
    table.add_column("", width=CLAUSE_WIDTH, style="dim")
    table.add_column("", overflow="fold")
    for clause, text, reason in _clauses(contract):
        table.add_row(clause, Text.assemble(text, (f": {reason}" if reason else "", "dim")))
    # Why a campaign can report a finding of another target than the one that it tests.
    if after is not None:
        attribution = f"{after}: a violation that {after} shows too is attributed to {after}"
        table.add_row("builds on", attribution)
    print_table(console, table)
    console.print()


def print_variant(
    console: Console, name: str, summary: str, targets: Sequence[str], contract: Contract
) -> None:
    """Print a variant. `targets` have it, `contract` has the clauses that it adds."""
    title = Text.assemble((f"TARGET:{name}", "bold"), f": {summary}")
    console.print(title, soft_wrap=not console.is_terminal)
    table = new_table(header=False)
    table.add_column("", width=CLAUSE_WIDTH, style="dim")
    table.add_column("", overflow="fold")
    table.add_row("targets", ", ".join(targets))
    if contract != Contract():
        for clause, text, reason in _clauses(contract):
            table.add_row(clause, Text.assemble(text, (f": {reason}", "dim")))
    print_table(console, table)
    console.print()


def _clauses(contract: Contract) -> list[tuple[str, str, str]]:
    """The clauses of a contract: the kind of clause, what it is about, and the reason."""
    rows = [
        ("requires", precondition.name, precondition.reason)
        for precondition in contract.preconditions
    ]
    rows += [
        ("does not promise", f"'{waiver.promise.value}'{_exception(waiver)}", waiver.reason)
        for waiver in contract.waivers
    ]
    rows += [
        ("may refuse with", f"/{refusal.message}/", refusal.reason) for refusal in contract.refusals
    ]
    return rows or [("promises", "everything that eager does", "")]


def _exception(waiver: Waiver) -> str:
    return "" if waiver.unless is None else f" (it does if {_condition(waiver)})"


def _condition(waiver: Waiver) -> str:
    """The condition under which the promise is made, from its docstring."""
    # A condition is a function, and its docstring is one sentence that says when it holds.
    sentence = (getattr(waiver.unless, "__doc__", None) or "a condition holds").strip().rstrip(".")
    return sentence[:1].lower() + sentence[1:]


def contract_json(contract: Contract) -> dict[str, object]:
    """A contract as JSON values."""
    return {
        "waived": [
            {
                "promise": waiver.promise.name.lower(),
                "meaning": waiver.promise.value,
                "reason": waiver.reason,
                "unless": None if waiver.unless is None else _condition(waiver),
            }
            for waiver in contract.waivers
        ],
        "preconditions": [
            {"name": precondition.name, "reason": precondition.reason}
            for precondition in contract.preconditions
        ],
        "refusals": [
            {"message": refusal.message, "reason": refusal.reason} for refusal in contract.refusals
        ],
    }
