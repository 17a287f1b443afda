"""The command `targets`: what can be tested, the contract of each target, and the variants."""

from __future__ import annotations

from aliasproof.listing_cache import listing
from aliasproof.reports.console import output_for_results, results, write_json
from aliasproof.reports.contract_table import print_own_target, print_target, print_variant
from aliasproof.targets.user_names import installed


def list_targets(*, as_json: bool) -> None:
    """Print each target with its contract, and each variant with the clauses that it adds."""
    found = listing("targets")
    found["installed"] = _installed_targets() if installed() else []
    if as_json:
        write_json(found)
        return
    for target in found["targets"]:
        print_target(results(), target)
    for variant in found["variants"]:
        print_variant(results(), variant)
    for own in found["installed"]:
        print_own_target(results(), own)


def _installed_targets() -> list[dict[str, object]]:
    """The targets of installed packages. Not from the cache, which does not know these packages."""
    from aliasproof.listings import installed_targets  # noqa: PLC0415 - it imports torch

    with output_for_results():  # their import may print
        return installed_targets()
