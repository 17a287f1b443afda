"""What `targets` and `ops` list, as JSON values."""

from __future__ import annotations

from generators.operators import OPERATORS, Operator
from programs.schemas import facts, resolve
from reports.contract_table import contract_json
from targets.registry import TARGETS
from targets.variants import VARIANTS


def targets() -> dict[str, object]:
    """The targets with their contracts, and the variants with the clauses that they add."""
    return {
        "targets": [
            {"name": target.name, "summary": target.summary}
            | contract_json(target.contract)
            | {"builds on": None if target.after is None else target.after.name}
            for target in TARGETS.values()
        ],
        "variants": [
            {"name": variant.name, "summary": variant.summary, "targets": list(variant.targets)}
            | contract_json(variant.clauses)
            for variant in VARIANTS.values()
        ],
    }


def ops() -> dict[str, object]:
    """The ops with their kinds and the arguments that they write, from their schemas."""
    return {"ops": [_op(operator) for operator in OPERATORS]}


def _op(operator: Operator) -> dict[str, object]:
    op = resolve(operator.name)
    known = facts(op)
    return {
        "op": operator.name,
        "kind": known.kind.value,
        "group": operator.group,
        "writes": [known.op._schema.arguments[index].name for index in known.writes],
        "schema": str(op._schema),
    }
