"""The command `ops`: what programs are drawn from, and which views and writes of ATen are not."""

from __future__ import annotations

from aliasproof.listing_cache import listing
from aliasproof.programs.errors import UserError, did_you_mean
from aliasproof.reports.console import results, write_json
from aliasproof.reports.op_table import print_ops


def list_ops(*, kind: str | None, status: str | None, as_json: bool) -> None:
    """Print each op with its kind, its status, and the arguments that it writes.

    Raises `UserError` for an unknown kind or status.
    """
    ops = listing("ops")["ops"]
    for name, wanted in (("kind", kind), ("status", status)):
        known = dict.fromkeys(op[name] for op in ops)
        if wanted is not None and wanted not in known:
            hint = did_you_mean(wanted, list(known))
            raise UserError(f"no op has the {name} '{wanted}'{hint}; there are {', '.join(known)}")
    shown = [op for op in ops if kind in (None, op["kind"]) and status in (None, op["status"])]
    if as_json:
        write_json({"ops": shown})
    else:
        print_ops(results(), shown)
