"""How many programs fired each site of the compiler (`aliasproof.generators.sites`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from aliasproof.campaigns.run.shard import ShardResult
from aliasproof.campaigns.run.tasks import outcome_from_json
from aliasproof.campaigns.store.plan import Shard
from aliasproof.campaigns.store.store import Store
from aliasproof.campaigns.store.store_schema import DEADLY
from aliasproof.generators.sites.all_sites import all_sites
from aliasproof.generators.sites.reasons import Conditions, why_never_fired
from aliasproof.generators.sites.site import Site
from aliasproof.targets.dynamo import DRAWS_AS_EAGER
from aliasproof.targets.registry import user_code


@dataclass(slots=True)
class FiredSites:
    """By site: how many programs fired it, and in how many its check refused a match.

    Programs that are compiled as one count as one. `discarded` are undefined in eager, or the
    target rejects them. `lost` programs ended their process.
    """

    programs: int = 0
    discarded: int = 0
    lost: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, other: FiredSites) -> None:
        """Add what other programs fired."""
        self.programs += other.programs
        self.discarded += other.discarded
        self.lost += other.lost
        self.fired += other.fired
        self.refused += other.refused

    @classmethod
    def of_store(cls, store: Store, target: str) -> FiredSites:
        """What the shards of a run fired on a target. Raises `UserError` for a damaged store."""
        total = cls()
        deadly = dict(store.all(DEADLY)).get(target, 0)
        for (text,) in store.all("SELECT result FROM shards WHERE target = ?", target):
            outcome = store.checked(outcome_from_json, store.json_values(text), Shard(0, target))
            if isinstance(outcome, ShardResult):
                counts = outcome.statistics
                total.add(cls(counts.programs, counts.discarded, 0, counts.fired, counts.refused))
        total.add(cls(deadly, lost=deadly))
        return total

    def to_json(self, target: str, seed: int) -> dict[str, object]:
        """All sites, as JSON values: those that fired, and why others did not."""
        conditions = conditions_of(target)
        known = {site.name for site in all_sites()}
        return {
            "target": target,
            "seed": seed,
            "programs": self.programs,
            "discarded": self.discarded,
            "lost": self.lost,
            "unlisted": {name: count for name, count in self.fired.items() if name not in known},
            "sites": [self._site(site, conditions) for site in all_sites()],
        }

    def _site(self, site: Site, conditions: Conditions) -> dict[str, object]:
        fired, refused = self.fired[site.name], self.refused[site.name]
        reason = None if fired else why_never_fired(site, conditions)
        return {
            "name": site.name,
            "kind": site.kind,
            "layer": site.layer,
            "location": site.location,
            "fires_when": site.fires_when,
            "fired": fired,
            "refused": refused,
            "reason": reason,
        }


def conditions_of(name: str) -> Conditions:
    """What decides which sites a target can fire, as its name says."""
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
