"""Options of `hunt` become a plan; a run that goes on has the rest from its store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.shard import Statistics
from aliasproof.campaigns.store import run_folder
from aliasproof.campaigns.store.plan import Plan
from aliasproof.commands import fuzz

STORED = Plan(("dynamo",), 7, 40, workers=3, past_known=True, share=(1, 2), language="python")


@pytest.fixture
def plan_of(monkeypatch, call) -> Callable[..., Plan]:
    def plan_of(*options: str, stored: Plan | None = None) -> Plan:
        plans: list[Plan] = []

        def keep(
            plan: Plan, folder: Path, *more: object, as_json: bool, everything: bool
        ) -> Campaign:
            plans.append(plan)
            return Campaign(plan, folder, {"aot-eager": Statistics(programs=1)})

        monkeypatch.setattr(fuzz, "run_campaign", keep)
        monkeypatch.setattr(run_folder, "stored_plan", lambda run: stored)
        outcome = call("hunt", "--run", "run", *options)
        assert outcome.code == 0, outcome.err
        return plans[0]

    return plan_of


def test_without_a_limit_a_hunt_takes_ten_minutes(plan_of):
    plan = plan_of()
    assert (plan.command, plan.targets, plan.seconds, plan.programs) == (
        "hunt",
        ("aot-eager",),
        600.0,
        None,
    )
    assert plan_of("--programs", "30").seconds is None
    both = plan_of("--programs", "30", "--seconds", "60")
    assert (both.programs, both.seconds) == (30, 60.0)


def test_a_run_goes_on_as_it_was_asked_for(plan_of):
    plan = plan_of(stored=STORED)
    assert (plan.targets, plan.seed, plan.programs) == (("dynamo",), 7, 40)
    assert (plan.share, plan.past_known, plan.finish) == ((1, 2), True, True)
    assert plan.workers == Plan(()).workers
    assert not plan_of("--seconds", "5", stored=STORED).finish


def test_shares_and_targets_are_checked(call):
    for options, says in (
        (("--shard", "3/2"), "give I/N"),
        (("--target", "functionalize"), "give one of identity, dynamo"),
        (("--workers", "9999"), "give at most"),
    ):
        done = call("hunt", *options)
        assert done.code == 2
        assert says in done.err
