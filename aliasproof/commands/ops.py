"""The command `ops`: the ops that programs are drawn from."""

from __future__ import annotations

from aliasproof.listing_cache import listing
from reports.console import results, write_json
from reports.op_table import print_ops


def list_ops(*, as_json: bool) -> None:
    """Print each op with its kind and the arguments that it writes, from its schema."""
    found = listing("ops")
    if as_json:
        write_json(found)
    else:
        print_ops(results(), found["ops"])
