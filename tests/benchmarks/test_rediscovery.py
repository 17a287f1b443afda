"""The benchmark of rediscovery: a blind campaign, and the known bugs that it names."""

import pytest

from aliasproof.campaigns.store.plan import Plan, Shard, written_for_bugs
from benchmarks.rediscovery import measure


def test_a_blind_shard_plays_no_scenario_of_a_known_bug() -> None:
    seeds = range(40)
    played = {it for seed in seeds for it in Shard(seed, "aot").features().scenarios}
    blind = {it for seed in seeds for it in Shard(seed, "aot", blind=True).features().scenarios}
    assert played & written_for_bugs()
    assert blind == played - written_for_bugs()
    shards = Plan(("aot",), programs=200, blind=True).shards()
    assert all(shard.blind for shard in shards)


@pytest.mark.thorough
def test_a_blind_campaign_counts_known_bugs_and_sites() -> None:
    found = measure(30, ["aot"])
    assert found.programs["aot"][0] > 0
    assert found.met
    (table,) = found.tables()
    assert any(line.startswith(f"Met: {len(found.met)} of the ") for line in table.notes)
    assert found.fired
