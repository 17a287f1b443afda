"""A shard is a pure function of its description; a worker that dies costs one program."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pebble import ProcessExpired

from campaigns.fuzz import Campaign, Plan, _Runner, worth_reducing
from campaigns.shard import Blame, Failure, Shard, Tally, reduce_failure, run_shard
from trials.attribution import Symptom


def test_a_shard_gives_the_same_twice() -> None:
    first, second = (run_shard(Shard(3, "functionalize")) for _ in range(2))
    assert first.failures == second.failures
    assert first.failures, "a shard without a failure shows nothing"


def test_a_failure_reduces_to_the_same_twice() -> None:
    failure = run_shard(Shard(3, "functionalize")).failures[0]
    first, second = reduce_failure(failure), reduce_failure(failure)
    assert first == second
    assert first is not None
    assert len(first.program) < len(failure.program)


def test_what_does_not_fail_is_not_reduced() -> None:
    failure = run_shard(Shard(3, "functionalize")).failures[0]
    assert (
        reduce_failure(Failure(replace(failure.symptom, kind="another"), failure.program)) is None
    )


@pytest.mark.parametrize(("oracle", "reduced"), [("errors", 2), ("values", 12 + 22)])
def test_errors_are_reduced_once_or_twice_and_silent_ones_again_and_again(
    oracle: str, reduced: int
) -> None:
    symptom = Symptom("aot", oracle, "a kind")
    assert sum(worth_reducing(symptom, number) for number in range(1, 101)) == reduced


def test_a_shard_tells_which_program_it_is_at() -> None:
    seen: list[int] = []
    run_shard(Shard(1, "identity", count=4), seen.append)
    assert seen == [0, 1, 2, 3]


def test_skipped_programs_leave_the_others_as_they_were() -> None:
    seen: list[int] = []
    shard = Shard(1, "identity", count=4, skip=frozenset({1}))
    run_shard(shard, seen.append)
    assert seen == [0, 2, 3]
    assert shard.program(3) == Shard(1, "identity", count=4).program(3)


def test_blame_survives_its_writer(tmp_path: Path) -> None:
    path = str(tmp_path / "blame")
    Blame.create(path)
    assert Blame.read(path) is None
    Blame(path)(7)
    assert Blame.read(path) == 7


def test_tallies_add_up() -> None:
    one, other = (run_shard(Shard(seed, "identity", count=3)).tally for seed in (1, 2))
    total = Tally()
    total.add(one)
    total.add(other)
    assert total.programs == 6
    assert total.instructions.kept == one.instructions.kept + other.instructions.kept
    assert total.spent.target == one.spent.target + other.spent.target


@pytest.mark.parametrize(("programs", "counts"), [(1, [1]), (25, [25]), (60, [25, 25, 10])])
def test_a_plan_covers_its_programs(programs: int, counts: list[int]) -> None:
    assert [each.count for each in Plan(("aot",), programs=programs).shards()] == counts


def test_plans_of_neighbouring_seeds_share_no_shard() -> None:
    seeds = [
        {each.seed for each in Plan(("aot",), seed=seed, programs=1000).shards()} for seed in (0, 1)
    ]
    assert not seeds[0] & seeds[1]


class _Pool:
    """Notes what is scheduled, runs nothing."""

    def __init__(self) -> None:
        self.scheduled: list[Shard] = []

    def schedule(self, function: Any, args: tuple[Shard, str], timeout: float) -> Future[Any]:
        self.scheduled.append(args[0])
        return Future()


def test_a_dead_worker_costs_one_program_and_is_no_finding_unless_it_dies_again(
    tmp_path: Path,
) -> None:
    shard, pool = Shard(5, "identity", count=4), _Pool()
    (tmp_path / "findings").mkdir()
    runner = _Runner(
        Campaign(Plan(("identity",)), tmp_path, {"identity": Tally()}), lambda campaign: None
    )
    runner.queue = deque()
    dead: Future[Any] = runner._schedule(pool, shard)  # type: ignore[arg-type]
    Blame(str(runner._blame_file(shard)))(2)
    dead.set_exception(ProcessExpired("Abnormal termination", -11))
    with ThreadPoolExecutor(1) as confirming:
        runner._take(shard, dead, pool, confirming)  # type: ignore[arg-type]
    runner._keep_confirmed()
    assert pool.scheduled[-1].skip == {2}
    assert not runner.campaign.findings
    [reason] = runner.campaign.unconfirmed.values()
    assert "dies of signal 11" in reason
