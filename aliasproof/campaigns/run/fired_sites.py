"""Which sites of the compiler programs fire, and how many do (`aliasproof.generators.sites`)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from aliasproof.campaigns.run.executor import start_pool
from aliasproof.campaigns.run.shard import ShardResult, Statistics, recording_for
from aliasproof.campaigns.run.tasks import outcome_from_json
from aliasproof.campaigns.run.worker_calls import cleaned_worker
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.campaigns.store.store import Store
from aliasproof.campaigns.store.store_schema import DEADLY
from aliasproof.generators.sites.all_sites import all_sites
from aliasproof.generators.sites.reasons import Conditions, why_never_fired
from aliasproof.generators.sites.site import SiteRecorder
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import glue
from aliasproof.ir.program import Program
from aliasproof.judge.groups import can_glue
from aliasproof.judge.trial import Case, Spent, run_eager, run_target
from aliasproof.processes import isolation
from aliasproof.processes.outcome import Death, Raised
from aliasproof.processes.pool import Pool
from aliasproof.targets.dynamo import DRAWS_AS_EAGER
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.registry import user_code
from aliasproof.targets.target import Target


def fired_in(store: Store, target: str) -> Statistics:
    """What the shards of a run fired on a target. Raises `UserError` for a damaged store."""
    total = Statistics()
    for (text,) in store.all("SELECT result FROM shards WHERE target = ?", target):
        outcome = store.checked(outcome_from_json, store.json_values(text), Shard(0, target))
        if isinstance(outcome, ShardResult):
            done = outcome.statistics
            total.add(
                Statistics(done.programs, done.discarded, fired=done.fired, refused=done.refused)
            )
    deadly = dict(store.all(DEADLY)).get(target, 0)
    total.add(Statistics(deadly, dies=deadly))
    return total


def sites_json(counts: Statistics, target: str, seed: int) -> dict[str, object]:
    """All sites, as JSON values: those that fired, and the reasons why others did not.

    Of the counts, `discarded` programs are undefined in eager, or rejected by the target.
    """
    conditions = conditions_of(target)
    known = {site.name for site in all_sites()}
    sites = [
        {
            "name": site.name,
            "kind": site.kind,
            "layer": site.layer,
            "location": site.location,
            "fires_when": site.fires_when,
            "fired": counts.fired[site.name],
            "refused": counts.refused[site.name],
            "reason": None if counts.fired[site.name] else why_never_fired(site, conditions),
        }
        for site in all_sites()
    ]
    return {
        "target": target,
        "seed": seed,
        "programs": counts.programs,
        "discarded": counts.discarded,
        "lost": counts.dies,
        "unlisted": {name: count for name, count in counts.fired.items() if name not in known},
        "sites": sites,
    }


def conditions_of(name: str) -> Conditions:
    """What decides which sites a target can fire, read from its name."""
    if user_code(name) is not None:
        return Conditions(inductor=False)
    plain, *variants = name.split(":")
    return Conditions(
        inductor="inductor" in plain,
        settings=DRAWS_AS_EAGER if "inductor" in plain else {},
        gradients=any("grad" in variant for variant in variants),
        freezing="freezing" in variants,
        generates_code=plain == "inductor",
    )


def fired_sites(
    name: str,
    seed: int,
    programs: int,
    progress: Callable[[int], None] = lambda programs: None,
    *,
    rules: int | None = None,
) -> Statistics:
    """Run the programs of a campaign on a target, in a separate process, and count.

    `rules` of a hundred programs are derived from rules. `progress` is called after each shard with
    how many programs have run. Raises an error of aliasproof itself.
    """
    total = Statistics()
    with tempfile.TemporaryDirectory() as folder:
        # Sites are read from Inductor, so each process needs it, whatever the target.
        pool = start_pool(1, Path(folder), [name, "inductor-fx"])
        with pool.at_work():
            for shard in Plan((name,), seed=seed, programs=programs, rules=rules).shards():
                total.add(_of_shard(shard, pool))
                progress(shard.count)
    return total


def _of_shard(shard: Shard, pool: Pool) -> Statistics:
    """What the programs of a shard fire. Programs that end the process are left out."""
    while True:
        outcome = pool.call(f"{__name__}:fired_by_shard", shard)
        if isinstance(outcome, Raised):
            raise outcome.error
        if not isinstance(outcome, Death):
            counted: Statistics = outcome.value
            return counted
        # If it died between two programs, there is nothing to leave out.
        skip = shard.skip.union(outcome.programs)
        if skip == shard.skip:
            return Statistics(shard.count, dies=shard.count)
        shard = replace(shard, skip=skip)


def fired_by_shard(shard: Shard) -> Statistics:
    """What the programs of a shard fire, called in a worker."""
    with cleaned_worker(), recording_for(shard.target) as recorder:
        return fired_by(shard, recorder)


def fired_by(shard: Shard, recorder: SiteRecorder) -> Statistics:
    """What the programs of a shard fire while a recorder is active."""
    result, target = Statistics(shard.count, dies=len(shard.skip)), target_named(shard.target)
    drawn = list(enumerate(sample(shard.features(), shard.seed, shard.count)))
    taken = [member for member in drawn if member[0] not in shard.skip]
    taken = [member for member in taken if _takes(target, member[1])]
    result.discarded = shard.count - result.dies - len(taken)
    size = target.group if can_glue(target) else 1
    waiting = [taken[start : start + size] for start in range(0, len(taken), size)]
    while waiting:
        members = waiting.pop(0)
        indices, programs = zip(*members, strict=True)
        program = programs[0] if len(programs) == 1 else glue(programs).program
        isolation.begin_programs(indices)
        recorder.take()
        try:
            ran, _ = run_target(Case.of(program).under(target), target, Spent())
        except Rejected:  # by a variant whose operator applies to no part of the program
            result.discarded += len(members)
            continue
        fired, refused = recorder.take()
        if ran.error is not None and len(members) > 1:
            # In a group, a program that raises hides what the others would fire: split the group.
            middle = len(members) // 2
            waiting[:0] = [members[:middle], members[middle:]]
            continue
        result.fired.update(fired)
        result.refused.update(refused)
    return result


def _takes(target: Target, program: Program) -> bool:
    try:
        run_eager(Case.of(program).under(target))
    except Rejected:
        return False
    return True
