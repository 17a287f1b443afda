"""A shard is a pure function of its description; its failures reduce to the same each time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.failure.reduction import reduce_failure
from aliasproof.campaigns.run.shard import Statistics, run_shard
from aliasproof.campaigns.store.plan import Shard


def test_a_shard_gives_the_same_twice() -> None:
    first, second = (run_shard(Shard(3, "functionalize")) for _ in range(2))
    assert first.failures == second.failures
    assert first.failures, "a shard without a failure shows nothing"


def test_a_failure_reduces_to_the_same_twice() -> None:
    failure: Any = run_shard(Shard(3, "functionalize")).failures[0]
    first, second = reduce_failure(failure), reduce_failure(failure)
    assert first == second
    assert first is not None
    assert len(first.program) < len(failure.program)
    assert first.seed == failure.seed == 3


def test_what_does_not_fail_is_not_reduced() -> None:
    failure: Any = run_shard(Shard(3, "functionalize")).failures[0]
    symptom = replace(failure.symptom, kind="another")
    assert reduce_failure(Failure(symptom, failure.program, failure.seed)) is None


def test_skipped_programs_leave_the_others_as_they_were() -> None:
    announced: list[Sequence[int]] = []
    shard = Shard(1, "identity", count=4, skip=frozenset({1}))
    run_shard(shard, announced.append)
    assert announced == [[0], [2], [3]]
    assert shard.program(3) == Shard(1, "identity", count=4).program(3)


def test_a_shard_announces_which_programs_run_together() -> None:
    announced: list[Sequence[int]] = []
    # None of these programs draws random numbers: such programs run by themselves.
    shard = Shard(3, "identity", count=6, skip=frozenset({1}), group=3)
    run_shard(shard, announced.append)
    assert [0, 2] in announced
    assert [3, 4, 5] in announced


@pytest.mark.parametrize("target", ["identity", "functionalize"])
def test_findings_do_not_depend_on_the_size_of_groups(target: str) -> None:
    alone, together = (run_shard(Shard(3, target, group=group)) for group in (1, 16))
    assert together.failures == alone.failures
    counts = together.statistics.to_json() | {"companions": 0}
    assert counts == alone.statistics.to_json()


def test_groups_of_a_shard_have_about_equal_sizes() -> None:
    assert list(map(len, Shard(1, "aot", count=25, group=16).groups())) == [12, 13]
    assert list(map(len, Shard(1, "aot:grad", count=2, group=16).groups())) == [1, 1]


def test_statistics_add_up() -> None:
    one, other = (run_shard(Shard(seed, "identity", count=3)).statistics for seed in (1, 2))
    total = Statistics()
    total.add(one)
    total.add(other)
    assert total.programs == 6
    assert total.instructions.kept == one.instructions.kept + other.instructions.kept
    assert total.spent.target == one.spent.target + other.spent.target
