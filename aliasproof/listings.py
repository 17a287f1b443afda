"""What the commands `targets` and `ops` list, as JSON values."""

from __future__ import annotations

from torch._ops import OpOverload

from aliasproof.generators.coverage import OpStatus, coverage
from aliasproof.generators.operators import OPERATORS
from aliasproof.programs.errors import UserError
from aliasproof.programs.schemas import facts, resolve
from aliasproof.reports.contract_table import contract_json
from aliasproof.targets.registry import TARGETS, target
from aliasproof.targets.user_names import installed
from aliasproof.targets.variant_table import VARIANTS


def targets() -> dict[str, object]:
    """The targets with their contracts, and the variants with the clauses that they add."""
    return {
        "targets": [
            {"name": each.name, "summary": each.summary}
            | contract_json(each.contract)
            | {"builds on": None if each.after is None else each.after.name}
            for each in TARGETS.values()
        ],
        "variants": [
            {"name": variant.name, "summary": variant.summary, "targets": list(variant.targets)}
            | contract_json(variant.clauses)
            for variant in VARIANTS.values()
        ],
    }


def installed_targets() -> list[dict[str, object]]:
    """The entry points of installed packages. A broken one says what is wrong with it."""
    found: list[dict[str, object]] = []
    for name, point in sorted(installed().items()):
        described: dict[str, object] = {"name": name, "code": point.value, "broken": None}
        try:
            if name in TARGETS or ":" in name:
                raise UserError("it cannot be named: a target has this name, or it has a colon")
            described["summary"] = target(name).summary
        except UserError as error:
            described["broken"] = str(error)
        found.append(described)
    return found


def ops() -> dict[str, list[dict[str, object]]]:
    """Each ATen overload that gives a view or writes, with its status, and each other op drawn."""
    covered = coverage()
    listed = {str(each.op) for each in covered}
    others = [operator for operator in OPERATORS if operator.name not in listed]
    return {
        "ops": [
            *(_op(each.op, each.status, each.detail) for each in covered),
            *(_op(resolve(each.name), OpStatus.DRAWN, each.group) for each in others),
        ]
    }


def _op(op: OpOverload, status: OpStatus, detail: str) -> dict[str, object]:
    known = facts(op)
    return {
        "op": str(op),
        "kind": known.kind.value,
        "status": status.value,
        "detail": detail,
        "writes": [op._schema.arguments[index].name for index in known.writes],
        "schema": str(op._schema),
    }
