"""The benchmark of rediscovery: a blind campaign, and the known bugs that it names."""

import pytest

from aliasproof.campaigns.run.fuzz import fuzz
from aliasproof.campaigns.store.plan import Plan, Shard, written_for_bugs
from benchmarks.rediscovery import Rediscovery


def test_a_blind_shard_plays_no_scenario_of_a_known_bug() -> None:
    seeds = range(40)
    played = {it for seed in seeds for it in Shard(seed, "aot").features().scenarios}
    blind = {it for seed in seeds for it in Shard(seed, "aot", blind=True).features().scenarios}
    assert played & written_for_bugs()
    assert blind == played - written_for_bugs()
    shards = Plan(("aot",), programs=200, blind=True).shards()
    assert all(shard.blind for shard in shards)


@pytest.mark.thorough
def test_a_blind_campaign_counts_known_bugs(tmp_path) -> None:
    plan = Plan(("fx-reinplace",), programs=50, workers=1, blind=True)
    found = Rediscovery.of(fuzz(plan, tmp_path))
    assert sum(programs for programs, _ in found.programs.values()) == 50
    assert found.met
    (table,) = found.tables()
    assert any(line.startswith(f"Met: {len(found.met)} of the ") for line in table.notes)
