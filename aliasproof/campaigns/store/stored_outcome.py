"""`stored_outcome`: the state of a campaign as its store tells it, without going on with it.

The fold of a campaign (`campaigns.scheduler`) comes to the same while it runs. A store that was
merged from several runs has no fold: their shards do not follow one plan.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from aliasproof.campaigns.publish.reproducer import Confirmation
from aliasproof.campaigns.run.campaign import Campaign, Parts
from aliasproof.campaigns.run.plan import Plan
from aliasproof.campaigns.run.shard import Shard
from aliasproof.campaigns.run.statistics import Statistics
from aliasproof.campaigns.run.tasks import outcome_from_json
from aliasproof.campaigns.store.finding import Finding
from aliasproof.campaigns.store.store import KNOWN, Store
from aliasproof.corpus.known_bugs import KNOWN_BUGS
from aliasproof.programs.errors import shown


def stored_outcome(store: Store, plan: Plan, folder: Path) -> Campaign:
    """The statistics, findings and counts of a store. `plan` says what the run was about."""
    campaign = Campaign(plan, folder, {name: Statistics() for name in plan.targets})
    _add_shards(campaign, store)
    _add_reductions(campaign, store)
    counts = store.occurrences()
    campaign.known = Counter(
        {name.removeprefix(KNOWN): n for name, n in counts.items() if name.startswith(KNOWN)}
    )
    if unknown := campaign.known.keys() - KNOWN_BUGS.keys():
        raise LookupError(f"known bugs that are not known here: {shown(sorted(unknown))}")
    for kept in store.findings():
        finding = replace(kept.finding, count=counts.get(kept.finding.identifier, 0))
        _add_finding(campaign, finding, kept.confirmation)
    campaign.elapsed, spent = store.elapsed()
    campaign.spent.confirming = spent.get("confirming", 0.0)
    campaign.spent.compiling = spent.get("compiling", 0.0)
    return campaign


def _add_finding(
    campaign: Campaign, finding: Finding, confirmation: dict[str, object] | None
) -> None:
    name = finding.identifier
    if finding.latent:
        campaign.latent[name] = finding
    elif confirmation is None:
        campaign.confirming += 1
    elif confirmation["shown"]:
        campaign.findings[name] = finding
    else:
        ending = Confirmation(**confirmation).ending  # type: ignore[arg-type]
        reason = f"{finding.kind}: the reproducer {ending} without showing it"
        campaign.unconfirmed[name] = reason


def _add_shards(campaign: Campaign, store: Store) -> None:
    campaign.spent = Parts()
    for target, seed, stored in store.results():
        if "mistake" in stored:
            campaign.mistakes.append(f"shard {seed} of {target}: {stored['mistake']}")
        elif "end" in stored:
            campaign.deaths += 1
        else:
            result = store.checked(outcome_from_json, stored, Shard(seed, target), [])
            campaign.statistics.setdefault(target, Statistics()).add(result.statistics)
            for symptom, (count, program) in result.suspicions.found.items():
                campaign.suspicions.add(symptom, program, count)
            campaign.spent.searching += result.searching
            campaign.spent.recognizing += result.recognizing
    # A program that ends workers is in no result.
    for target, count in store.deadly():
        campaign.statistics.setdefault(target, Statistics()).programs += count
        campaign.statistics[target].violating += count


def _add_reductions(campaign: Campaign, store: Store) -> None:
    for deaths, stored in store.reductions():
        campaign.deaths += len(deaths)
        if stored is None:
            continue
        if "mistake" in stored:
            campaign.mistakes.append(f"a reduction: {stored['mistake']}")
            continue
        campaign.spent.reducing += stored["seconds"]
        campaign.not_reproduced += stored["reduced"] is None
