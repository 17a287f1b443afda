"""The command `targets`: what can be tested, the contract of each target, and the variants."""

from __future__ import annotations

from aliasproof.listing_cache import listing
from reports.console import results, write_json
from reports.contract_table import print_target, print_variant


def list_targets(*, as_json: bool) -> None:
    """Print each target with its contract, and each variant with the clauses that it adds."""
    found = listing("targets")
    if as_json:
        write_json(found)
        return
    for target in found["targets"]:
        print_target(results(), target)
    for variant in found["variants"]:
        print_variant(results(), variant)
