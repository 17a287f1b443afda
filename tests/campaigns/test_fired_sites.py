"""The sites that the programs of a shard fire are counted, whatever becomes of the programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aliasproof.campaigns.run.fired_sites import (
    conditions_of,
    fired_by,
    fired_by_shard,
    fired_sites,
)
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.generators.sites.site import SiteRecorder


def test_a_shard_counts_programs_by_site():
    shard = Shard(1, "aot", 6)
    counted = fired_by_shard(shard)
    assert counted.programs == 6
    assert 0 < max(counted.fired.values()) <= 6
    assert counted.fired == fired_by_shard(shard).fired


def test_programs_that_are_skipped_change_no_other():
    whole = fired_by_shard(Shard(1, "aot", 6))
    without = fired_by_shard(Shard(1, "aot", 6, skip=frozenset({2})))
    alone = [fired_by_shard(Shard(1, "aot", 3, skip=frozenset({0, 1})))]
    assert whole.fired - without.fired == alone[0].fired
    assert without.lost == 1


def test_a_recorder_that_forgets_is_noticed():
    """Without hooks nothing fires: the counts above are the recorder's."""
    assert not fired_by(Shard(1, "aot", 6), SiteRecorder()).fired


def test_programs_that_are_compiled_as_one_count_as_one():
    shard = replace(next(Plan(("inductor",), programs=3).shards()), target="inductor")
    counted = fired_by_shard(shard)
    assert counted.programs == 3
    assert set(counted.fired.values()) == {1}
    assert any(name.startswith("lowering/") for name in counted.fired)


@pytest.mark.parametrize(
    ("name", "settings", "gradients", "freezing", "generates_code"),
    [
        ("aot", {}, False, False, False),
        ("inductor-fx", {"fallback_random": True}, False, False, False),
        ("inductor-fx:half-grad", {"fallback_random": True}, True, False, False),
        ("inductor:freezing", {"fallback_random": True}, False, True, True),
    ],
)
def test_a_name_says_what_a_target_can_fire(name, settings, gradients, freezing, generates_code):
    conditions = conditions_of(name)
    assert dict(conditions.settings) == settings
    assert (conditions.gradients, conditions.freezing) == (gradients, freezing)
    assert conditions.generates_code is generates_code


def test_a_campaign_counts_all_its_shards():
    told: list[int] = []
    counted = fired_sites("identity", 3, 30, told.append)
    assert (counted.programs, counted.lost, sum(told)) == (30, 0, 30)
