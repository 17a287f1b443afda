"""Which failures are reduced, and when: before waiting shards, and again if a worker dies."""

from pathlib import Path

import pytest

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.run.executor import IsolatedReduction, Reduction
from aliasproof.campaigns.run.scheduler import LATENT_WAITS
from aliasproof.campaigns.run.tasks import TRIES, TRIES_OF_REDUCTION_IF_FROM_OUTSIDE
from aliasproof.campaigns.store.plan import PROGRAMS_PER_SHARD, Shard
from aliasproof.judge.attribution import Symptom
from tests.campaigns.test_scheduler import (
    ERROR,
    PROGRAM,
    SYMPTOM,
    dies,
    reducing,
    scheduler,
    unreduced,
)


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
    assert sum(failure.worth_reducing(number) for number in range(1, 101)) == reduced


def test_reductions_run_before_shards_that_wait(tmp_path: Path) -> None:
    subject, pool = scheduler(tmp_path, 20 * PROGRAMS_PER_SHARD, workers=4)
    subject.fill()
    assert [shard.seed for shard in pool.scheduled] == [0, 1, 2, 3]
    for seed in (0, 1):
        pool.complete(seed, *[Failure(SYMPTOM, PROGRAM, 0)] * (1 - seed))
        subject.take()
        subject.fill()
    assert isinstance(pool.scheduled[5], Failure), "the fifth shard was given before it was known"


def test_shards_go_before_the_reduction_of_a_latent_failure(tmp_path: Path) -> None:
    subject, pool = scheduler(tmp_path, 200 * PROGRAMS_PER_SHARD, seconds=100.0)
    latent = Failure(Symptom("identity", "equivalence", "wrong symbolic value"), PROGRAM, 0)
    subject.fill()
    pool.complete(0, latent)
    subject.take()
    subject.started -= 95
    assert not subject.is_due
    subject.fill()
    assert subject.campaign.latent_waiting == 1
    for number in range(1, LATENT_WAITS + 1):
        assert latent not in pool.scheduled, "an idle worker does not take it either"
        pool.complete(number)
        subject.take()
        subject.fill()
    assert subject.campaign.latent_waiting == 0
    pool.complete(LATENT_WAITS + 1)
    subject.take()
    assert pool.scheduled[-1] == latent, "a campaign without end reduces it, too"


def test_a_latent_failure_is_reduced_when_no_shard_is_left(tmp_path: Path) -> None:
    subject, pool = scheduler(tmp_path, PROGRAMS_PER_SHARD)
    latent = Failure(Symptom("identity", "equivalence", "wrong symbolic value"), PROGRAM, 0)
    subject.fill()
    pool.complete(0, latent)
    subject.take()
    assert subject.fill()
    assert pool.scheduled[-1] == latent


def test_isolated_reductions_keep_no_worker_from_shards(tmp_path: Path) -> None:
    subject, pool = scheduler(tmp_path, PROGRAMS_PER_SHARD, workers=1)
    workers = subject.tasks.executor
    for number in range(5):
        workers.start(number, IsolatedReduction(Failure(SYMPTOM, PROGRAM, number)))
    workers.start(5, next(subject.campaign.plan.shards()))
    assert isinstance(pool.scheduled[-1], Shard)


def test_reductions_are_taken_as_they_end_with_the_numbers_that_they_were_asked_with(tmp_path):
    subject, pool = scheduler(tmp_path, PROGRAMS_PER_SHARD, workers=3)
    subject.fill()
    pool.complete(0, *(Failure(SYMPTOM, PROGRAM, seed) for seed in (0, 1)))
    subject.take()
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
    told = "each worker that reduced it dies of signal 11"
    assert found.finding.evidence["not reduced"] == told
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
