"""A shard is a function of its description; the loop of a campaign, and its outcome."""

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.failure.reduction import reduce_failure
from aliasproof.campaigns.run.campaign import Campaign, Parts
from aliasproof.campaigns.run.fuzz import fuzz
from aliasproof.campaigns.run.shard import Statistics, run_shard
from aliasproof.campaigns.run.worker_calls import CACHE, cleaned_worker
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.judge.trial import Spent
from aliasproof.processes.pool import Pool


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


# --- the outcome ----------------------------------------------------------------------------------


def test_known_bugs_are_listed_the_most_frequent_first(tmp_path: Path) -> None:
    campaign = Campaign(Plan(("aot",)), tmp_path)
    campaign.known.update({"as-strided-of-new-base": 1, "lost-strides": 3})
    listed: Any = campaign.to_json()["known bugs"]
    first, second = listed
    assert first == {
        "identifier": "lost-strides",
        "title": known_bugs()["lost-strides"].title,
        "link": "https://github.com/pytorch/pytorch/issues/133512",
        "attributed": "by patching it",
        "violations": 3,
    }
    assert (second["violations"], second["attributed"]) == (1, "by its signature")


def test_the_seconds_of_each_target_are_listed_by_part(tmp_path: Path) -> None:
    campaign = Campaign(Plan(("aot",)), tmp_path, {"aot": Statistics(spent=Spent(target=2.04))})
    rest = dict.fromkeys(("generation", "eager", "oracles", "graphs"), 0.0)
    assert campaign.to_json()["seconds by target"] == {"aot": rest | {"target": 2.0}}


@pytest.mark.parametrize(
    ("parts", "share"),
    [
        (Parts(), 0.0),
        (Parts(searching=7.0, reducing=3.0), 0.3),
        (Parts(searching=2.0, recognizing=1.0, reducing=1.0, confirming=1.0, compiling=1.0), 0.5),
    ],
)
def test_the_share_after_the_search(parts: Parts, share: float) -> None:
    assert parts.after_search == pytest.approx(share)


# --- the loop -------------------------------------------------------------------------------------


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_does_not_break_a_step(presses, monkeypatch, tmp_path):
    submit = Pool.submit
    scheduled: list[Any] = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        for _ in range(presses if not scheduled else 0):
            os.kill(os.getpid(), signal.SIGINT)
        scheduled.append(submit(*args, **kwargs))
        return scheduled[-1]

    monkeypatch.setattr(Pool, "submit", interrupted)
    before = signal.getsignal(signal.SIGINT)
    campaign = fuzz(Plan(("identity",), programs=1000, workers=1), tmp_path / "run")
    assert campaign.interrupted
    assert scheduled, "the step that it came in went on"
    assert campaign.statistics["identity"].programs < 1000
    assert (tmp_path / "run" / "run.json").exists()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_process_that_is_no_worker_deletes_no_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    with cleaned_worker():
        pass
    assert tmp_path.is_dir()
