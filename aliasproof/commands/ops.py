"""The command `ops`: the ops that programs are drawn from."""

from __future__ import annotations

from generators.operators import OPERATORS, Operator
from programs.schemas import facts, resolve
from reports.console import results, write_json
from reports.op_table import OpRow, print_ops


def list_ops(*, as_json: bool) -> None:
    """Print each op with its kind and the arguments that it writes, from its schema."""
    rows = [_row(operator) for operator in OPERATORS]
    if as_json:
        write_json({"ops": [row.to_json() for row in rows]})
    else:
        print_ops(results(), rows)


def _row(operator: Operator) -> OpRow:
    op = resolve(operator.name)
    known = facts(op)
    writes = [known.op._schema.arguments[index].name for index in known.writes]
    return OpRow(operator.name, known.kind.value, operator.group, writes, str(op._schema))
