"""A target and its contract: preconditions, waived promises, documented refusals, disputes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from aliasproof.reports.console import new_table, print_lines, print_table

# It imports torch, and `aliasproof --help` must not.
if TYPE_CHECKING:
    from aliasproof.oracles.contract import Contract

EVERYTHING = ("promises", "everything that eager does", "")
CLAUSE_WIDTH = 16  # columns: the longest is "does not promise"


def print_contract(console: Console, target: Mapping[str, Any]) -> None:
    """Print a target and its contract, which are given as JSON values."""
    title = Text.assemble((target["name"], "bold"), f": {target['summary']}")
    console.print(title, soft_wrap=not console.is_terminal)
    table = new_table(header=False)
    table.add_column("", width=CLAUSE_WIDTH, style="dim")
    table.add_column("", overflow="fold")
    if target["unavailable"] is not None:
        table.add_row("not here", target["unavailable"])
    for clause, text, reason in _clauses(target) or [EVERYTHING]:
        table.add_row(clause, Text.assemble(text, (f": {reason}" if reason else "", "dim")))
    # Why a campaign can report a finding of another target than the one that it tests.
    if (after := target["builds on"]) is not None:
        attribution = f"{after}: a violation that {after} shows too is attributed to {after}"
        table.add_row("builds on", attribution)
    print_table(console, table)
    console.print()


def print_summaries(
    console: Console,
    targets: Sequence[Mapping[str, Any]],
    variants: Sequence[Mapping[str, Any]],
    own: Sequence[Mapping[str, Any]],
) -> None:
    """Print one line per target, variant and installed target, which are given as JSON values."""
    for target in targets:
        absent = "" if target["unavailable"] is None else f" (not here: {target['unavailable']})"
        _print_line(console, target["name"], f": {target['summary']}", absent)
    for target in own:
        what = target["summary"] if target["broken"] is None else f"broken: {target['broken']}"
        _print_line(console, target["name"], f" (entry point {target['code']}): {what}")
    print_lines(console, "\nVariants, which may be joined (aot-eager:grad:second-call):")
    for variant in variants:
        _print_line(console, f"TARGET:{variant['name']}", f": {variant['summary']}")
    print_lines(
        console,
        "\n'aliasproof targets NAME' shows what a target promises, with or without variants."
        " Which targets have a variant: docs/targets.md.",
    )


def _print_line(console: Console, name: str, what: str, note: str = "") -> None:
    line = Text.assemble((name, "bold"), what, (note, "dim"))
    console.print(line, soft_wrap=not console.is_terminal)


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
