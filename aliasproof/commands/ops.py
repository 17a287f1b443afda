"""The command `ops`: what programs are drawn from, and which views and writes of ATen are not."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

from aliasproof.commands.options import Json, argument, option
from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.reports.console import results, write_json
from aliasproof.reports.listings import print_ops

if TYPE_CHECKING:  # they import torch
    from torch._ops import OpOverload

    from aliasproof.generators.coverage import OpStatus

Name = Annotated[
    str | None,
    argument("NAME", "Only ops whose name has this in it, or fits it, as in 'aten.*_copy*'."),
]
Kind = Annotated[
    str | None,
    option("KIND", "Only this kind: view, in-place, mutating, out=, functional."),
]
Status = Annotated[
    str | None,
    option("STATUS", "Only this status: drawn, reachable, not applicable, undrawn."),
]


def ops(name: Name = None, kind: Kind = None, status: Status = None, json: Json = False) -> None:
    """List each op that is drawn, and each overload of ATen that gives a view or writes.

    Each of these is drawn, or reachable through another op, or a reason says why it is not.
    """
    listed = listed_ops()
    for column, wanted in (("kind", kind), ("status", status)):
        known = dict.fromkeys(str(op[column]) for op in listed)
        if wanted is not None and wanted not in known:
            none = f"no op has the {column} '{wanted}'{did_you_mean(wanted, list(known))}"
            raise UserError(f"{none}; there are {', '.join(known)}")
    shown = [op for op in listed if kind in (None, op["kind"]) and status in (None, op["status"])]
    if not shown:
        both = f"the kind '{kind}' and the status '{status}'"
        raise UserError(f"none of the {len(listed)} ops has {both}")
    if name is not None:
        pattern = name if set(name) & set("*?[") else f"*{name}*"
        names = [str(op["op"]) for op in shown]
        shown = [op for op in shown if fnmatchcase(str(op["op"]), pattern)]
        if not shown:
            hint = did_you_mean(name, names)
            raise UserError(f"none of {len(names)} ops has a name with '{name}'{hint}")
    if json:
        write_json({"ops": shown})
    else:
        print_ops(results(), shown, len(listed))


def listed_ops() -> list[dict[str, object]]:
    """Each ATen overload that gives a view or writes, with its status, and each other op drawn."""
    from aliasproof.generators.coverage import OpStatus, coverage
    from aliasproof.generators.ops import OPERATORS
    from aliasproof.ir.schemas import resolve

    covered = coverage()
    names = {str(entry.op) for entry in covered}
    others = [operator for operator in OPERATORS if operator.name not in names]
    return [
        *(_op(entry.op, entry.status, entry.detail) for entry in covered),
        *(_op(resolve(other.name), OpStatus.DRAWN, other.group) for other in others),
    ]


def _op(op: OpOverload, status: OpStatus, detail: str) -> dict[str, object]:
    from aliasproof.ir.schemas import facts

    known = facts(op)
    return {
        "op": str(op),
        "kind": known.kind.value,
        "status": status.value,
        "detail": detail,
        "writes": [op._schema.arguments[index].name for index in known.writes],
        "schema": str(op._schema),
    }
