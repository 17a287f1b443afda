"""The commands `targets` and `ops`: what there is, for people and for programs."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from aliasproof.console import print_lines, print_table, results, write_json
from generators.operators import OPERATORS, Operator
from oracles.contract import Contract, Waiver
from programs.schemas import facts, resolve
from targets.registry import TARGETS
from targets.target import Target


def list_targets(*, as_json: bool) -> None:
    """Each target with the promises that it does not make, its preconditions and its refusals."""
    if as_json:
        write_json({"targets": [_target_json(each) for each in TARGETS.values()]})
        return
    console = results()
    for each in TARGETS.values():
        console.print(
            Text.assemble((each.name, "bold"), f": {each.summary}"),
            soft_wrap=not console.is_terminal,
        )
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        table.add_column("", width=15, style="dim")
        table.add_column("", overflow="fold")
        for what, text, reason in _clauses(each.contract):
            table.add_row(what, Text.assemble(text, (f": {reason}" if reason else "", "dim")))
        if each.after is not None:
            table.add_row(
                "builds on",
                f"{each.after.name}: what that one breaks already is not this one's fault",
            )
        print_table(console, table)
        console.print()


def _clauses(contract: Contract) -> list[tuple[str, str, str]]:
    rows = [("only if", each.name, each.reason) for each in contract.preconditions]
    rows += [
        ("does not promise", f"'{each.promise.value}'{_exception(each)}", each.reason)
        for each in contract.waivers
    ]
    rows += [("may refuse", f"raising /{each.message}/", each.reason) for each in contract.refusals]
    return rows or [("promises", "all that eager does", "")]


def _exception(waiver: Waiver) -> str:
    return "" if waiver.unless is None else f" (it does where {_condition(waiver)})"


def _condition(waiver: Waiver) -> str:
    """The sentence that the condition's docstring is."""
    sentence = (getattr(waiver.unless, "__doc__", None) or "a condition holds").strip().rstrip(".")
    return sentence[:1].lower() + sentence[1:]


def _target_json(target: Target) -> dict[str, object]:
    contract = target.contract
    return {
        "name": target.name,
        "summary": target.summary,
        "waived": [
            {
                "promise": each.promise.name.lower(),
                "meaning": each.promise.value,
                "reason": each.reason,
                "unless": None if each.unless is None else _condition(each),
            }
            for each in contract.waivers
        ],
        "preconditions": [
            {"name": each.name, "reason": each.reason} for each in contract.preconditions
        ],
        "refusals": [
            {"message": each.message, "reason": each.reason} for each in contract.refusals
        ],
        "builds on": None if target.after is None else target.after.name,
    }


def list_ops(*, as_json: bool) -> None:
    """Each op with its kind and what it writes, as its schema says."""
    if as_json:
        write_json({"ops": [_op_json(each) for each in OPERATORS]})
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("op", "kind", "group", "writes"):
        table.add_column(name, no_wrap=True)
    for each in OPERATORS:
        kind, writes = _facts(each)
        table.add_row(each.name, kind, each.group, ", ".join(writes))
    console = results()
    print_table(console, table)
    console.print()
    print_lines(
        console,
        f"{len(OPERATORS)} ops. Kind and writes are read off the schema; the group is a swarm switch.",
    )


def _op_json(operator: Operator) -> dict[str, object]:
    kind, writes = _facts(operator)
    return {
        "op": operator.name,
        "kind": kind,
        "group": operator.group,
        "writes": writes,
        "schema": str(resolve(operator.name)._schema),
    }


def _facts(operator: Operator) -> tuple[str, list[str]]:
    known = facts(resolve(operator.name))
    return known.kind.value, [known.op._schema.arguments[index].name for index in known.writes]
