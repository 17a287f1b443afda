"""Results are taken in order, and a worker that dies costs one program."""

from __future__ import annotations

import os
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from pebble import ProcessExpired

from campaigns.blame import Blame
from campaigns.campaign import Campaign
from campaigns.confirmations import Confirmations
from campaigns.failure import Failure
from campaigns.plan import Plan
from campaigns.scheduler import Scheduler, _ending_without_device, worth_reducing
from campaigns.shard import PROGRAMS_PER_SHARD, Shard, ShardResult
from campaigns.statistics import Statistics
from campaigns.store import Store
from corpus.known_bugs import KNOWN_BUGS
from programs.errors import DeviceLost
from trials.attribution import Symptom


class Pool:
    """Notes what is scheduled, runs nothing."""

    def __init__(self) -> None:
        self.scheduled: list[Shard] = []
        self.futures: list[Future[Any]] = []

    def schedule(self, function: Any, args: tuple[Shard, str], timeout: float) -> Future[Any]:
        self.scheduled.append(args[0])
        self.futures.append(Future())
        return self.futures[-1]


PROGRAM = KNOWN_BUGS["expand-inverse"].program


def scheduler(folder: Path, programs: int, *, past_known: bool = False) -> tuple[Scheduler, Pool]:
    """A scheduler for `programs` programs of one target, in a pool that runs nothing."""
    store, pool = Store.create(folder), Pool()
    plan = Plan(("identity",), programs=programs, workers=1, past_known=past_known)
    campaign = Campaign(plan, folder, {"identity": Statistics()})
    return Scheduler(campaign, store, pool), pool  # type: ignore[arg-type]


SYMPTOM = Symptom("aot", "values", "a kind")
ERROR = Symptom("aot", "errors", "a kind")


@pytest.mark.parametrize(
    ("failure", "reduced"),
    [
        (Failure(ERROR, PROGRAM, 0), 2),
        (Failure(SYMPTOM, PROGRAM, 0), 12 + 22),
        (Failure(SYMPTOM, PROGRAM, 0, known="expand-inverse"), 1),
        (Failure(SYMPTOM, PROGRAM, 0, suspected="as-strided-of-new-base"), 2 + 12),
    ],
)
def test_what_is_nearly_told_already_is_reduced_less_often(failure: Failure, reduced: int) -> None:
    assert sum(worth_reducing(failure, number) for number in range(1, 101)) == reduced


def test_known_bugs_are_counted_and_reduced_once_or_past_them_never(tmp_path: Path) -> None:
    for past_known, reductions in ((False, 1), (True, 0)):
        subject, pool = scheduler(tmp_path / str(past_known), 4, past_known=past_known)
        subject.fill()
        known = [Failure(SYMPTOM, PROGRAM, 0, known="expand-inverse")] * 3
        pool.futures[0].set_result(ShardResult(pool.scheduled[0], failures=known))
        subject.take()
        assert subject.campaign.known == {"expand-inverse": 3}
        assert len(pool.scheduled) == 1 + reductions
        assert subject.campaign.repeats == 0


def test_results_are_taken_in_the_order_of_the_shards(tmp_path: Path) -> None:
    subject, pool = scheduler(tmp_path, 2 * PROGRAMS_PER_SHARD)
    assert subject.fill()
    first, second = pool.scheduled
    counts = subject.campaign.statistics["identity"]
    pool.futures[1].set_result(ShardResult(second, Statistics(programs=2)))
    subject.take()
    assert counts.programs == 0
    pool.futures[0].set_result(ShardResult(first, Statistics(programs=1)))
    subject.take()
    assert counts.programs == 1
    subject.take()
    assert counts.programs == 3
    assert not subject.fill(), "all shards are done"


def test_a_dead_worker_costs_one_program_and_is_no_finding_unless_it_dies_again(
    tmp_path: Path,
) -> None:
    subject, pool = scheduler(tmp_path, 4)
    subject.fill()
    [shard] = pool.scheduled
    Blame(str(subject.store.blame_file(shard)))([2])
    pool.futures[0].set_exception(ProcessExpired("Abnormal termination", -11))
    reduced = subject.take()
    assert reduced is not None
    assert pool.scheduled[-1].skip == {2}
    assert subject.campaign.deaths == 1
    confirmations = Confirmations(subject.campaign, subject.store)
    confirmations.add(reduced)
    confirmations.executor.shutdown(wait=True)
    confirmations.take_finished()
    assert not subject.campaign.findings
    [reason] = subject.campaign.unconfirmed.values()
    assert "dies of signal 11" in reason


@pytest.mark.parametrize("alone", [True, False])
def test_after_a_death_in_company_programs_run_one_by_one(tmp_path: Path, alone: bool) -> None:
    subject, pool = scheduler(tmp_path, 4)
    subject.fill()
    [shard] = pool.scheduled
    Blame(str(subject.store.blame_file(shard)))([1, 2, 3])
    pool.futures[0].set_exception(ProcessExpired("Abnormal termination", -11))
    assert subject.take() is None
    again = pool.scheduled[-1]
    assert (again.group, again.skip) == (1, frozenset())
    if alone:  # one of them dies alone, so the company is not at fault
        Blame(str(subject.store.blame_file(again)))([2])
        pool.futures[1].set_exception(ProcessExpired("Abnormal termination", -11))
        reduced = subject.take()
        assert reduced is not None
        assert reduced.program == shard.program(2)
        pool.futures[2].set_result(ShardResult(pool.scheduled[-1]))
        assert subject.take() is None
    else:
        pool.futures[1].set_result(ShardResult(again))
        reduced = subject.take()
        assert reduced is not None
        assert reduced.program == shard.together(range(1, 4))
    assert reduced.signature.symptom.kind == "dies of signal 11"


def lose_device() -> None:
    raise DeviceLost("a CUDA kernel ends with: device-side assert")


def test_a_worker_that_loses_its_device_ends_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []
    monkeypatch.setattr(os, "_exit", ends.append)
    with _ending_without_device():
        lose_device()
    subject, pool = scheduler(tmp_path, 4)
    subject.fill()
    [shard] = pool.scheduled
    Blame(str(subject.store.blame_file(shard)))([1])
    pool.futures[0].set_exception(ProcessExpired("Abnormal termination", ends[0]))
    reduced = subject.take()
    assert reduced is not None
    assert reduced.program == shard.program(1)
    assert reduced.violation.kind == "loses its device"
    assert pool.scheduled[-1].skip == {1}


def test_a_worker_that_dies_before_its_first_program_blames_none(tmp_path: Path) -> None:
    subject, pool = scheduler(tmp_path, 4)
    subject.fill()
    pool.futures[0].set_exception(ProcessExpired("Abnormal termination", -9))
    assert subject.take() is None
    assert subject.campaign.deaths == 1
    assert len(pool.scheduled) == 1
