"""The command `sites`: where the compiler may rewrite a program, and what programs fire there."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from aliasproof.commands.options import Json, flag, option, target_option, whole_number
from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.reports.console import notes, print_notes, progress_bar, results, write_json
from aliasproof.reports.listings import print_sites

if TYPE_CHECKING:  # it imports torch
    from aliasproof.campaigns.run.shard import Statistics

DEFAULT = "inductor-fx"

Of = Annotated[
    Path | None,
    option("RUN", "Show what the programs of this run fired. Nothing runs.", "--run"),
]
TargetName = Annotated[
    str | None,
    target_option(f"The target that runs them. Default: {DEFAULT}, or the run's first target."),
]
Programs = Annotated[int, whole_number("Run this many programs.", 0)]
Seed = Annotated[
    int | None,
    option("NUMBER", "Draw what a campaign with this seed draws. Default: 0."),
]
Rules = Annotated[
    int | None,
    whole_number("Of a hundred programs, how many are derived from rules, as for fuzz.", 0),
]
Kind = Annotated[str | None, option("KIND", "Only sites of this kind, such as pattern.")]
Every = Annotated[bool, flag("--all", "Name each site that never fired, not only the first ones.")]


def sites(
    run: Of = None,
    target: TargetName = None,
    programs: Programs = 300,
    seed: Seed = None,
    rules: Rules = None,
    kind: Kind = None,
    every: Every = False,
    json: Json = False,
) -> None:
    """List the places at which the installed torch may rewrite a program, and what fired there.

    A site that never fired has a reason, such as a setting that is off, or it is a gap in what is
    drawn.
    """
    from aliasproof.judge.trial import quiet_torch
    from aliasproof.torch_parts import require

    quiet_torch()
    require("sites")
    if not notes().is_terminal:
        first = f"running {programs} programs, then " if run is None and programs else ""
        print_notes([f"{first}reading the sites of torch: about a minute"])
    from aliasproof.campaigns.run.fired_sites import fired_sites, sites_json
    from aliasproof.campaigns.run.shard import Statistics

    with progress_bar() as bar:
        if run is not None:
            fired, target, seed = _of_run(run, target)
        else:
            target, seed = target or DEFAULT, seed or 0
            fired = Statistics()
            if programs:
                task = bar.add_task(f"running {programs} programs on {target}", total=programs)
                advance = partial(bar.advance, task)
                fired = fired_sites(target, seed, programs, advance, rules=rules)
        bar.add_task("reading the sites of torch", total=None)
        figures = sites_json(fired, target, seed)
    listed: Any = figures["sites"]
    kinds = list(dict.fromkeys(site["kind"] for site in listed))
    if kind is not None and kind not in kinds:
        hint = did_you_mean(kind, kinds)
        raise UserError(f"no site is of the kind '{kind}'{hint}; there are {', '.join(kinds)}")
    figures["sites"] = [site for site in listed if kind in (None, site["kind"])]
    if json:
        write_json(figures)
    else:
        print_sites(results(), figures, every=every)


def _of_run(run: Path, target: str | None) -> tuple[Statistics, str, int]:
    """What the programs of a run fired on a target, its first one by default; that, and the seed.

    Raises `UserError` if the run has not begun, or has no such target.
    """
    from aliasproof.campaigns.run.fired_sites import fired_in
    from aliasproof.campaigns.store.run_folder import open_store

    with open_store(run) as store:
        plan = store.plan(also_merged=True)
        assert plan is not None  # it has begun
        target = target or plan.targets[0]
        # A campaign gives variants to some shards.
        ran = {name for (name,) in store.all("SELECT DISTINCT target FROM shards")}
        if target not in (known := sorted({*plan.targets, *ran})):
            hint = did_you_mean(target, known)
            raise UserError(f"{run} has no target '{target}'{hint}; it has {', '.join(known)}")
        return fired_in(store, target), target, plan.seed
