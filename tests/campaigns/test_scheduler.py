"""Results are taken in order, a death costs one program, and reductions have their turn."""

from collections.abc import Hashable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from aliasproof.campaigns.failure import reduction
from aliasproof.campaigns.failure.failure import AnyFailure, Failure
from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.failure.recognition import BLOCK, OFTEN
from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.executor import IsolatedReduction, LocalWorkers, Reduction
from aliasproof.campaigns.run.scheduler import (
    LATENT_WAITS,
    TRIES_IF_FROM_OUTSIDE,
    FoundFailure,
    Scheduler,
)
from aliasproof.campaigns.run.shard import ShardResult, Statistics
from aliasproof.campaigns.run.tasks import TRIES, TRIES_OF_REDUCTION_IF_FROM_OUTSIDE, Tasks
from aliasproof.campaigns.store.plan import PROGRAMS_PER_SHARD, Plan, Shard
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.campaigns.store.store import Store
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.ir.errors import DeviceLost
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.outcome import Death, Outcome, Returned, death_of, outcome_here
from aliasproof.processes.pool import RemoteCall


class FakePool:
    """Records what is scheduled, and runs nothing."""

    def __init__(self) -> None:
        self.scheduled: list[Any] = []  # shards and failures
        self.keys: list[Hashable] = []
        self.futures: list[Future[Any]] = []

    def submit(self, call: RemoteCall) -> None:
        self.scheduled.append(call.arguments[0])
        self.keys.append(call.key)
        self.futures.append(Future())

    @property
    def pending(self) -> int:
        """Without isolated reductions, which have a pool of their own in a campaign."""
        calls = zip(self.keys, self.scheduled, strict=True)
        return sum(key is not None and type(it) is not IsolatedReduction for key, it in calls)

    def outcomes(self) -> Iterator[tuple[Hashable, Outcome]]:
        for number, future in enumerate(self.futures):
            if future.done() and self.keys[number] is not None:
                key, self.keys[number] = self.keys[number], None
                result = future.result()
                yield key, result if isinstance(result, Death) else Returned(result)

    def complete(self, number: int, *failures: AnyFailure, programs: int = 25) -> None:
        """Complete the shard that was scheduled as the `number`-th."""
        result = ShardResult(self.scheduled[number], Statistics(programs=programs), [*failures])
        self.futures[number].set_result(result)

    def wait(self, seconds: float) -> None: ...

    def stop(self) -> None: ...


PROGRAM = known_bugs()["expand-inverse"].program


def scheduler(
    folder: Path, programs: int, *, workers: int = 1, **more: Any
) -> tuple[Scheduler, FakePool]:
    """A scheduler for `programs` programs of one target, in a pool that runs nothing."""
    files, pool = RunFolder.create(folder), FakePool()
    plan = Plan(("identity",), programs=programs, workers=workers, **more)
    campaign = Campaign(plan, folder, {"identity": Statistics()})
    processes = LocalWorkers(workers, pool, pool)  # type: ignore[arg-type]
    tasks = Tasks(Store.open(folder), files, processes)
    return Scheduler(campaign, tasks), pool


def filled(folder: Path, programs: int = 4, **more: Any) -> tuple[Scheduler, FakePool]:
    """A scheduler that gave its workers the first shards."""
    subject, pool = scheduler(folder, programs, **more)
    subject.fill()
    return subject, pool


def after_a_shard(
    folder: Path, *failures: AnyFailure, programs: int = 4, **more: Any
) -> tuple[Scheduler, FakePool]:
    """A scheduler that took the first shard, which has these failures."""
    subject, pool = filled(folder, programs, **more)
    pool.complete(0, *failures)
    subject.take()
    return subject, pool


def dies(
    subject: Scheduler, pool: FakePool, programs: list[int], status: int = -11
) -> FoundFailure | None:
    """Let the worker of the last scheduled task die while these programs run."""
    running = range(min(programs), max(programs) + 1) if programs else range(0)
    pool.futures[-1].set_result(replace(death_of(status, ""), programs=running))
    return subject.take()


SYMPTOM = Symptom("aot", "values", "a kind")


def unreduced(failure: Failure) -> Finding[Program]:
    return reduction.unreduced(failure, "a reason")


ERROR = Symptom("aot", "errors", "a kind")
LATENT = Failure(Symptom("identity", "equivalence", "wrong symbolic value"), PROGRAM, 0)


def test_known_bugs_are_counted_and_reduced_once_or_past_them_never(tmp_path: Path) -> None:
    for past_known, reductions in ((False, 1), (True, 0)):
        failures = [Failure(SYMPTOM, PROGRAM, 0, known="expand-inverse")] * 3
        subject, pool = after_a_shard(tmp_path / str(past_known), *failures, past_known=past_known)
        assert subject.campaign.known == {"expand-inverse": 3}
        assert len(pool.scheduled) == 1 + reductions
        assert subject.campaign.repeats == 0


@pytest.mark.parametrize("workers", [1, 4])
def test_frequent_known_bugs_are_patched_in_later_shards(tmp_path: Path, workers: int) -> None:
    subject, pool = scheduler(tmp_path, 5 * BLOCK * PROGRAMS_PER_SHARD, workers=workers)
    often, seldom = (
        Failure(SYMPTOM, PROGRAM, 0, known=name) for name in ("expand-inverse", "lost-strides")
    )
    while subject.fill():
        for number, shard in enumerate(pool.scheduled):
            if pool.futures[number].done():
                continue
            if isinstance(shard, Shard):
                failures = [often] * 2 * (shard.seed < OFTEN // 2)
                pool.complete(number, *failures, *[seldom] * (shard.seed < OFTEN - 1))
            else:
                pool.futures[number].set_result(Reduction(None, 0.0))
        subject.take()
    patched = {each.seed: each.patched for each in pool.scheduled if isinstance(each, Shard)}
    assert patched == {n: ("expand-inverse",) * (n >= 2 * BLOCK) for n in range(5 * BLOCK)}


def test_many_workers_wait_only_at_the_first_blocks(tmp_path: Path) -> None:
    subject, pool = filled(tmp_path, 40 * BLOCK * PROGRAMS_PER_SHARD, workers=5 * BLOCK)
    assert len(pool.scheduled) == 2 * BLOCK
    for number in range(10 * BLOCK):
        pool.complete(number)
        subject.take()
        subject.fill()
    assert len(pool.scheduled) >= 10 * BLOCK + 5 * BLOCK, "all workers have a shard"


def test_no_worker_waits_for_a_shard_that_takes_long(tmp_path: Path) -> None:
    subject, pool = scheduler(tmp_path, 30 * PROGRAMS_PER_SHARD, workers=2)
    while subject.fill() and (
        undone := [n for n, f in enumerate(pool.futures) if not f.done()][1:]
    ):
        assert len(undone) <= 3
        pool.complete(undone[0])
        assert subject.take() is None
    assert len(pool.scheduled) == 30, "all others were run"
    assert subject.campaign.total.programs == 0, "results are taken in order"
    pool.complete(0)
    while subject.fill():
        subject.take()
    assert subject.campaign.total.programs == 30 * 25


@pytest.mark.parametrize("status", [-9, -15])
def test_who_is_killed_from_outside_is_not_at_fault(tmp_path: Path, status: int) -> None:
    subject, pool = filled(tmp_path)
    [shard] = pool.scheduled
    for _ in range(TRIES_IF_FROM_OUTSIDE - 1):
        assert dies(subject, pool, [2], status) is None
        assert pool.scheduled[-1] == shard
    pool.complete(-1, programs=4)
    assert subject.take() is None
    assert subject.campaign.statistics["identity"].programs == 4
    assert not subject.fill()


@pytest.mark.parametrize("alone", [True, False])
def test_after_a_death_in_a_group_programs_run_one_by_one(tmp_path: Path, alone: bool) -> None:
    subject, pool = filled(tmp_path)
    [shard] = pool.scheduled
    assert dies(subject, pool, [1, 2, 3]) is None
    again = pool.scheduled[-1]
    assert (again.group, again.skip) == (1, frozenset())
    if alone:  # one program dies by itself, so the group is not at fault
        assert dies(subject, pool, [2]) is None
        found = dies(subject, pool, [2])
        assert found is not None
        assert found.finding.program == shard.program(2)
        pool.complete(-1)
        assert subject.take() is None
    else:
        pool.complete(1)
        found = subject.take()
        assert found is not None
        assert found.finding.program == shard.together(range(1, 4))
    assert found.finding.kind == "dies of signal 11"


def reducing(folder: Path) -> tuple[Scheduler, FakePool]:
    """A scheduler that reduces a failure."""
    seen = Violation("values", "a kind", "output 0", {"eager": "0", "target": "1"})
    return after_a_shard(folder, Failure(SYMPTOM, PROGRAM, 0, violation=seen))


def test_a_worker_that_loses_its_device_ends_and_says_so(tmp_path: Path) -> None:
    lose_device = mock.Mock(side_effect=DeviceLost("a kernel ends with: device-side assert"))
    end = outcome_here(lose_device)
    assert isinstance(end, Death)
    subject, pool = filled(tmp_path)
    [shard] = pool.scheduled
    found = None
    for _ in range(TRIES):
        assert found is None
        pool.futures[-1].set_result(replace(end, programs=range(1, 2)))
        found = subject.take()
    assert found is not None
    assert found.finding.program == shard.program(1)
    assert found.finding.kind == "loses its device"
    assert pool.scheduled[-1].skip == {1}
    assert subject.campaign.deaths == TRIES
    assert subject.campaign.statistics["identity"].violating == 1


def test_a_worker_that_dies_before_its_first_program_blames_none(tmp_path: Path) -> None:
    subject, pool = filled(tmp_path)
    for _ in range(TRIES_IF_FROM_OUTSIDE):
        assert not subject.campaign.mistakes
        assert dies(subject, pool, []) is None
    assert subject.campaign.mistakes == ["shard 0 of identity: dies of signal 11 at its start"]
    assert not subject.fill()


@pytest.mark.parametrize(("seconds", "passed"), [(100.0, 90.0), (10_000.0, 9_800.0)])
def test_the_end_of_a_campaign_is_for_what_waits_and_then_for_more(seconds, passed, tmp_path):
    subject, pool = scheduler(tmp_path, 100, seconds=seconds)
    subject.started -= passed
    subject.others_wait, subject._scheduled = True, 1
    assert subject.fill(), "it waits"
    assert not pool.scheduled
    subject.others_wait = False
    assert subject.fill()
    assert pool.scheduled, "nothing waits any more, and there is time"
    subject.started -= seconds
    subject.others_wait, subject._next = True, pool.scheduled[0]
    subject._queue.clear()
    assert not subject.fill(), "the time is up"


def test_a_campaign_judges_something_however_long_its_start_takes(tmp_path: Path) -> None:
    subject, pool = scheduler(tmp_path, 100, seconds=10.0)
    subject.started -= 20
    assert subject.fill()
    assert len(pool.scheduled) == 1
    before = subject.is_due
    pool.complete(0)
    subject.take()
    assert (before, subject.is_due) == (True, False)
    assert not subject.fill(), "the time is up"


def test_half_of_the_time_is_for_the_first_reduced_failure_of_each_kind(tmp_path: Path) -> None:
    subject, pool = filled(tmp_path, 200, seconds=100.0)
    failures = [Failure(symptom, PROGRAM, 0) for symptom in (SYMPTOM, SYMPTOM, ERROR)]
    for number, found in enumerate((failures, [])):  # the second failure was reported already
        pool.complete(number, *found)
        subject.take()
    subject.started -= 60
    for number, symptom in enumerate((SYMPTOM, ERROR), 2):  # one of each kind
        assert subject.is_due
        subject.fill()
        assert len(pool.scheduled) == number + 1
        assert pool.scheduled[number].symptom == symptom
        pool.futures[number].set_result(Reduction(unreduced(pool.scheduled[number]), 0.0))
        assert subject.take() is not None
    assert not subject.is_due
    subject.fill()
    pool.futures[4].set_result(Reduction(None, 0.0))
    subject.take()
    assert isinstance(pool.scheduled[5], Shard), "others are reduced beside shards"


@pytest.mark.parametrize("reductions", [1, 2])
def test_a_worker_that_would_be_idle_draws_beside_reductions(
    reductions: int, tmp_path: Path
) -> None:
    subject, pool = filled(tmp_path, 200, seconds=100.0, workers=2)
    failures = [Failure(symptom, PROGRAM, 0) for symptom in (SYMPTOM, ERROR)[:reductions]]
    for number, work in enumerate(pool.scheduled):  # grows
        if isinstance(work, Shard):
            pool.complete(number, *(failures if number == 0 else ()))
            subject.take()
    before = len(pool.scheduled)
    subject.started -= 60
    subject.fill()
    assert [type(work) for work in pool.scheduled[before:]] == [Shard] * (2 - reductions)


@pytest.mark.parametrize(("passed", "taken"), [(50.0, 0), (90.0, 1)])
def test_a_slow_shard_hides_no_later_one_when_the_time_ends(
    passed: float, taken: int, tmp_path: Path
) -> None:
    subject, pool = filled(tmp_path, 200, seconds=100.0, workers=2)
    subject.started -= passed
    pool.complete(1, Failure(SYMPTOM, PROGRAM, 0, known="expand-inverse"))
    subject.take()
    assert subject.campaign.known.total() == taken
    pool.complete(0)
    for _ in range(2):
        subject.take()
    assert subject.campaign.known.total() == 1


def test_a_long_campaign_reserves_minutes_and_not_hours(tmp_path: Path) -> None:
    subject, pool = scheduler(tmp_path, 100, seconds=8 * 3600.0)
    subject.started -= 0.95 * 8 * 3600
    subject.others_wait = True
    assert subject.fill()
    assert pool.scheduled


# --- reductions: which are scheduled, when, and again if a worker dies ----------------------------


@pytest.mark.parametrize(
    ("failure", "reduced"),
    [
        (Failure(ERROR, PROGRAM, 0), 1),
        (Failure(SYMPTOM, PROGRAM, 0), 12 + 22),
        (Failure(SYMPTOM, PROGRAM, 0, known="expand-inverse"), 1),
        (Failure(SYMPTOM, PROGRAM, 0, suspected="as-strided-of-new-base"), 1 + 12),
    ],
)
def test_what_is_nearly_told_already_is_reduced_less_often(failure: Failure, reduced: int) -> None:
    assert sum(failure.worth_reducing(number) for number in range(1, 101)) == reduced


@pytest.mark.parametrize("seen_later", [False, True])
def test_a_second_failure_is_reduced_only_if_the_first_was_in_vain(
    seen_later: bool, tmp_path: Path
) -> None:
    for in_vain in (False, True):
        failures = [Failure(ERROR, PROGRAM, seed) for seed in range(3)]
        now = 1 if seen_later else 3
        more = {"programs": 50, "workers": 2}
        subject, pool = after_a_shard(tmp_path / str(in_vain), *failures[:now], **more)
        pool.futures[2].set_result(Reduction(None if in_vain else unreduced(failures[0]), 0.0))
        assert (subject.take() is None) == in_vain
        pool.complete(1, *failures[now:])
        subject.take()
        reduced = [work.seed for work in pool.scheduled if isinstance(work, Failure)]
        assert reduced == ([0, 1] if in_vain else [0])
        assert subject.campaign.repeats == 3 - len(reduced)


def test_reductions_run_before_shards_that_wait(tmp_path: Path) -> None:
    subject, pool = filled(tmp_path, 20 * PROGRAMS_PER_SHARD, workers=4)
    assert [shard.seed for shard in pool.scheduled] == [0, 1, 2, 3]
    for seed in (0, 1):
        pool.complete(seed, *[Failure(SYMPTOM, PROGRAM, 0)] * (1 - seed))
        subject.take()
        subject.fill()
    assert isinstance(pool.scheduled[5], Failure), "the fifth shard was given before it was known"


def test_shards_go_before_the_reduction_of_a_latent_failure(tmp_path: Path) -> None:
    programs = 200 * PROGRAMS_PER_SHARD
    subject, pool = after_a_shard(tmp_path, LATENT, programs=programs, seconds=100.0)
    subject.started -= 95
    assert not subject.is_due
    subject.fill()
    assert subject.campaign.latent_waiting == 1
    for number in range(1, LATENT_WAITS + 1):
        assert LATENT not in pool.scheduled, "an idle worker does not take it either"
        pool.complete(number)
        subject.take()
        subject.fill()
    assert subject.campaign.latent_waiting == 0
    pool.complete(LATENT_WAITS + 1)
    subject.take()
    assert pool.scheduled[-1] == LATENT, "a campaign without end reduces it, too"


def test_a_latent_failure_is_reduced_when_no_shard_is_left(tmp_path: Path) -> None:
    subject, pool = after_a_shard(tmp_path, LATENT)
    assert subject.fill()
    assert pool.scheduled[-1] == LATENT


def test_isolated_reductions_keep_no_worker_from_shards(tmp_path: Path) -> None:
    subject, pool = scheduler(tmp_path, PROGRAMS_PER_SHARD, workers=1)
    workers = subject.tasks.executor
    for number in range(5):
        workers.start(number, IsolatedReduction(Failure(SYMPTOM, PROGRAM, number)))
    workers.start(5, next(subject.campaign.plan.shards()))
    assert isinstance(pool.scheduled[-1], Shard)


def test_reductions_are_taken_as_they_end_with_the_numbers_that_they_were_asked_with(tmp_path):
    failures = [Failure(SYMPTOM, PROGRAM, seed) for seed in (0, 1)]
    subject, pool = after_a_shard(tmp_path, *failures, workers=3)
    numbers = []
    for position in (2, 1):
        reduced = unreduced(pool.scheduled[position])
        pool.futures[position].set_result(Reduction(reduced, 0.0))
        found = subject.take()
        assert found is not None
        numbers.append((found.number, found.finding.seed))
    assert numbers == [(1, 1), (0, 0)]


def test_a_reduction_that_ends_workers_leaves_the_failure_with_its_evidence(tmp_path: Path) -> None:
    subject, pool = reducing(tmp_path)
    for _ in range(TRIES - 1):
        assert dies(subject, pool, []) is None
    found = dies(subject, pool, [])
    assert found is not None
    assert (found.finding.program, found.finding.place) == (PROGRAM, "output 0")
    assert found.finding.evidence["target"] == "1"
    reason = "each worker that reduced it dies of signal 11"
    assert found.finding.evidence["not reduced"] == reason
    # No program that was reduced to a fixpoint has this identifier.
    assert found.finding.cause == "not reduced: a kind"
    assert not subject.fill()


def test_ends_from_outside_say_nothing_of_a_reduction(tmp_path: Path) -> None:
    subject, pool = reducing(tmp_path)
    for status in (-9, -11, *(-9,) * (TRIES_OF_REDUCTION_IF_FROM_OUTSIDE - 2)):
        assert dies(subject, pool, [], status) is None
    assert dies(subject, pool, [], -9) is not None, "it does not go on for ever"


def test_errors_of_aliasproof_on_candidates_are_told(tmp_path: Path) -> None:
    subject, pool = reducing(tmp_path)
    reduced = unreduced(Failure(SYMPTOM, PROGRAM, 0))
    pool.futures[-1].set_result(Reduction(reduced, 0.0, ("watching failed",)))
    assert subject.take() is not None
    assert [text.split(": ", 1)[1] for text in subject.campaign.mistakes] == ["watching failed"]
