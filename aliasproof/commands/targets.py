"""The command `targets`: what can be tested, the contract of each target, and the variants."""

from __future__ import annotations

from reports.console import results, write_json
from reports.contract_table import contract_json, print_target, print_variant
from targets.registry import TARGETS
from targets.variants import VARIANTS


def list_targets(*, as_json: bool) -> None:
    """Print each target with its contract, and each variant with the clauses that it adds."""
    if as_json:
        found = [
            {"name": target.name, "summary": target.summary}
            | contract_json(target.contract)
            | {"builds on": None if target.after is None else target.after.name}
            for target in TARGETS.values()
        ]
        variants = [
            {"name": variant.name, "summary": variant.summary, "targets": variant.targets}
            | contract_json(variant.clauses)
            for variant in VARIANTS.values()
        ]
        write_json({"targets": found, "variants": variants})
        return
    console = results()
    for target in TARGETS.values():
        after = None if target.after is None else target.after.name
        print_target(console, target.name, target.summary, target.contract, after)
    for variant in VARIANTS.values():
        print_variant(console, variant.name, variant.summary, variant.targets, variant.clauses)
