"""From the options of `fuzz` to a plan, for a new run and for one that goes on."""

from dataclasses import replace
from pathlib import Path

import pytest

from aliasproof.campaigns.run.plan import Plan
from aliasproof.commands.fuzz import DEFAULT_SECONDS, DEFAULT_TARGETS, FuzzOptions
from aliasproof.programs.errors import UserError


def test_without_options_there_is_a_time_limit():
    plan = FuzzOptions().plan()
    assert (plan.targets, plan.seconds, plan.finish) == (DEFAULT_TARGETS, DEFAULT_SECONDS, False)


def test_a_run_goes_on_as_it_was_and_finishes_what_it_found():
    stored = Plan(("aot",), 3, seconds=40.0, past_known=True, share=(2, 4), limit=5.0)
    plan = FuzzOptions().plan(stored)
    assert plan == replace(stored, finish=True)
    longer = FuzzOptions(seconds=80.0).plan(stored)
    assert (longer.seconds, longer.finish) == (80.0, False)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (FuzzOptions(seed=4), "seed 3, not 4"),
        (FuzzOptions(targets=("aot", "identity")), "targets aot, not aot, identity"),
        (FuzzOptions(programs=10), "programs None, not 10"),
        (FuzzOptions(past_known=True), "past known False, not True"),
        (FuzzOptions(shard="1/2"), "share 1, 1, not 1, 2"),
    ],
)
def test_a_run_does_not_go_on_with_other_programs(options, part):
    stored = Plan(("aot",), 3, seconds=40.0)
    with pytest.raises(UserError, match=part):
        options.plan(stored).require_same_programs(stored, Path("run"))


def test_the_shares_of_a_seed_are_all_its_shards():
    whole = Plan(("aot", "identity"), seed=1, programs=260)
    shares = [FuzzOptions(shard=f"{i}/3").plan(replace(whole)) for i in (1, 2, 3)]
    parts = [shard for share in shares for shard in share.shards()]
    assert sorted(parts, key=str) == sorted(whole.shards(), key=str)


def test_until_a_time_of_the_day_is_at_most_a_day():
    for given in ("0:00", "06:30", "23:59"):
        seconds = FuzzOptions(until=given).plan().seconds
        assert seconds is not None
        assert 0 < seconds <= 24 * 3600


def test_profiles():
    ci = FuzzOptions(profile="ci")
    assert ci.fails_on_findings
    assert (ci.plan().seconds, ci.plan().past_known) == (300.0, True)
    assert FuzzOptions(profile="nightly", programs=5).plan().seconds is None
