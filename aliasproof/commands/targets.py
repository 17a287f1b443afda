"""The command `targets`: what can be tested, the contract of each target, and the variants."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument

from aliasproof.commands.options import Json
from aliasproof.ir.errors import UserError
from aliasproof.plugins import BROKEN, GROUP
from aliasproof.reports.console import output_for_results, results, write_json
from aliasproof.reports.listings import contract_json, print_contract, print_summaries
from aliasproof.targets.user_names import grant, installed

Names = Annotated[
    list[str] | None,
    Argument(metavar="[TARGET]...", help="Show the contracts of these.", show_default=False),
]


def targets(names: Names = None, json: Json = False) -> None:
    """List the targets; with names, show what each promises.

    Your own pass or torch.compile backend is a target, too: --target PACKAGE.MODULE:FUNCTION,
    --target FILE.py:FUNCTION, or an entry point of the group 'aliasproof.targets'.
    """
    from aliasproof.targets.registry import TARGETS, taken_by
    from aliasproof.targets.registry import target as target_named
    from aliasproof.targets.variants import VARIANTS

    grant(names or ())
    with output_for_results():  # the import of others' targets may print
        asked = [target_named(name) for name in names or TARGETS]
        own = [] if names else installed_targets()
    plain: list[dict[str, Any]] = [
        {"name": target.name, "summary": target.summary, "unavailable": target.unavailable()}
        | contract_json(target.contract)
        | {"builds on": None if target.after is None else target.after.name}
        | {"page": None if target.needs is None else target.needs.page}
        for target in asked
    ]
    variants: list[dict[str, Any]] = [
        {"name": variant.name, "summary": variant.summary, "targets": taken_by(variant)}
        | contract_json(variant.clauses)
        for variant in ([] if names else VARIANTS.values())
    ]
    if json:
        write_json({"targets": plain, "variants": variants, "installed": own})
    elif names:
        for target in plain:
            print_contract(results(), target)
    else:
        print_summaries(results(), plain, variants, own)


def installed_targets() -> list[dict[str, object]]:
    """The entry points of installed packages. A broken one says what is wrong with it."""
    from aliasproof.targets.registry import TARGETS
    from aliasproof.targets.registry import target as target_named

    entries: list[dict[str, object]] = []
    for name, point in sorted(installed().items()):
        entry: dict[str, object] = {"name": name, "code": point.value, "broken": None}
        try:
            if name in TARGETS or ":" in name:
                raise UserError("it cannot be named: a target has this name, or it has a colon")
            entry["summary"] = target_named(name).summary
        except UserError as error:
            entry["broken"] = str(error)
        entries.append(entry)
    return entries + [
        {"name": name, "code": GROUP, "broken": reason} for name, reason in sorted(BROKEN.items())
    ]
