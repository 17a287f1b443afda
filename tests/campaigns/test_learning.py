"""What a campaign learns depends on its plan alone: not on workers, speed or interruptions."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aliasproof.campaigns.run import learning
from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.fuzz import fuzz
from aliasproof.campaigns.run.learning import PARENTS, PER_SITE, Learning, generation, pairs_of
from aliasproof.campaigns.run.shard import RanProgram, ShardResult, run_shard
from aliasproof.campaigns.run.site_counts import FiredSites
from aliasproof.campaigns.run.statistics import Statistics
from aliasproof.campaigns.run.tasks import task_name
from aliasproof.campaigns.store import plan as plans
from aliasproof.campaigns.store.plan import Plan, Shard, StoredProgram
from aliasproof.campaigns.store.store import Store
from aliasproof.generators.features import Features
from aliasproof.generators.strategies import sample

SEED = 15  # its programs show nothing, so that none is reduced
PROGRAMS = list(sample(Features(), 3, 12))


def ran(shard: Shard, fired: dict[int, tuple[str, ...]]) -> ShardResult:
    """A result in which the programs with these numbers fired sites."""
    programs = [RanProgram(number, PROGRAMS[number], sites) for number, sites in fired.items()]
    counts = Statistics()
    counts.fired.update(site for sites in fired.values() for site in sites)
    return ShardResult(shard, counts, ran=programs)


def taught(results: list[ShardResult]) -> Learning:
    subject = Learning()
    for result in results:
        subject.add(result)
        subject.take()
    return subject


# --- what is learned ------------------------------------------------------------------------------


def test_a_program_is_kept_for_a_pair_that_none_met_before():
    subject, shard = Learning(), Shard(1, "aot")
    first, same = ran(shard, {0: ("a", "b")}), ran(shard, {0: ("a",)})
    assert subject.worth_storing(first) == first.ran
    subject.add(first)
    assert subject.worth_storing(same) == []
    assert subject.worth_storing(ran(shard, {0: ("c",)}))
    assert subject.worth_storing(ran(Shard(1, "inductor-fx"), {0: ("a",)})), "it has its own"


def test_a_pair_is_a_site_and_a_kind_of_aliasing():
    pairs = pairs_of(PROGRAMS[0], ("a",))
    assert ("a", "") in pairs
    assert len(pairs) > 1
    assert {site for site, _ in pairs} == {"a"}


def test_a_shard_knows_what_all_generations_but_the_one_before_it_stored():
    starts = [0, *(p for p in range(1, 100) if generation(p) > generation(p - 1))]
    results = [ran(Shard(seed, "aot"), {seed % 12: (f"site {seed}",)}) for seed in range(100)]
    for number in range(2, 5):
        position = starts[number]
        complete, early = taught(results[: starts[number - 1]]), taught(results[:position])
        for seed in range(8):
            shard = Shard(1000 + seed, "aot")
            assert complete.prepared(shard, position) == early.prepared(shard, position)
        lacking = taught(results[: starts[number - 1] - 1])
        assert lacking.prepared(Shard(1000, "aot"), position) is None, "it is open yet"
    assert Learning().prepared(Shard(0, "aot"), starts[2] - 1) == Shard(0, "aot")


def test_programs_of_rare_sites_are_edited_more_often_and_the_shortest_are_kept():
    often = [ran(Shard(seed, "aot"), {seed % 12: ("often",)}) for seed in range(40)]
    subject = taught([*often, ran(Shard(99, "aot"), {5: ("rare",)})]).of("aot")
    assert len(subject.by_site["often"]) <= PER_SITE
    chosen = [subject.chosen(Shard(seed, "aot")) for seed in range(60)]
    edits = [stored for stored in chosen if stored]
    assert 15 < len(edits) < 45, "half of the shards"
    assert all(99 in {program.seed for program in stored} for stored in edits)
    assert max(map(len, edits)) <= PARENTS


def test_the_name_of_a_task_says_which_programs_it_edits():
    shard = Shard(7, "aot", stored=(StoredProgram(3, 1, PROGRAMS[0]),))
    assert json.loads(task_name(shard, 1))["stored"] == [[3, 1]]
    assert "stored" not in json.loads(task_name(Shard(7, "aot"), 1))


# --- edited programs in shards and campaigns ------------------------------------------------------


def test_a_shard_that_edits_is_a_function_of_its_description():
    stored = tuple(StoredProgram(3, number, program) for number, program in enumerate(PROGRAMS))
    shard = Shard(7, "aot", 6, stored=stored)
    one, other = run_shard(shard), run_shard(shard)
    programs = list(shard.drawn())
    assert programs == list(shard.drawn())
    assert [shard.program(number) for number in range(6)] == programs
    assert [it.program for it in one.ran] == [it.program for it in other.ran]
    assert one.statistics.fired == other.statistics.fired
    assert not {*programs} & {*PROGRAMS}
    assert {*programs}.isdisjoint(Shard(7, "aot", 6).drawn())


def test_what_a_shard_fires_does_not_depend_on_the_shards_before_it():
    shards = [Shard(seed, "aot", 4) for seed in (1, 2)]
    counts = [run_shard(shard).statistics.fired for shard in (*shards, *reversed(shards))]
    assert counts == [*counts[:2], *reversed(counts[:2])]


@contextlib.contextmanager
def stopped_after(programs: int) -> Iterator[Any]:
    """A listener that presses Ctrl-C once so many programs have run."""
    pressed: list[int] = []

    def listen(campaign: Campaign) -> None:
        if campaign.total.programs >= programs and not pressed:
            pressed.append(1)
            os.kill(os.getpid(), signal.SIGINT)

    yield listen
    assert pressed


def tasks(folder: Path) -> dict[str, Any]:
    """What the shards of a run did, by their description; times are left out."""
    store = Store.open(folder)
    try:
        rows = store.all("SELECT task, result FROM shards")
        results = {task: store.json_values(result) for task, result in rows}
    finally:
        store.close()
    for result in results.values():
        del result["searching"], result["recognizing"], result["statistics"]["spent"]
        # Which of them are stored beside those that are kept depends on what was taken before.
        del result["ran"]
    return results


def test_a_resumed_run_and_one_of_two_workers_equal_an_uninterrupted_one(monkeypatch, tmp_path):
    monkeypatch.setattr(plans, "PROGRAMS_PER_SHARD", 2)
    monkeypatch.setattr(learning, "GENERATION", 1)
    monkeypatch.setattr(learning, "EDITING", 1.0)
    plan = Plan(("aot",), seed=SEED, programs=12, workers=1)
    whole = fuzz(plan, tmp_path / "whole")
    expected = tasks(tmp_path / "whole")
    assert sum('"stored"' in task for task in expected) == 4
    with stopped_after(6) as listener:
        assert fuzz(plan, tmp_path / "resumed", listener).interrupted
    assert len(tasks(tmp_path / "resumed")) < len(expected)
    resumed = fuzz(plan, tmp_path / "resumed")
    assert tasks(tmp_path / "resumed") == expected
    two = fuzz(Plan(("aot",), seed=SEED, programs=12, workers=2), tmp_path / "two")
    assert tasks(tmp_path / "two") == expected
    assert whole.sites == resumed.sites == two.sites
    assert {*whole.findings} == {*resumed.findings} == {*two.findings}


def test_without_learning_programs_are_drawn_as_before(monkeypatch, tmp_path):
    monkeypatch.setattr(learning, "GENERATION", 1)
    monkeypatch.setattr(learning, "EDITING", 1.0)
    monkeypatch.setattr(plans, "PROGRAMS_PER_SHARD", 2)
    plan = Plan(("aot",), seed=SEED, programs=8, workers=1, learning=False)
    campaign = fuzz(plan, tmp_path / "run")
    assert [json.loads(task).get("stored") for task in tasks(tmp_path / "run")] == [None] * 4
    store = Store.open(tmp_path / "run")
    counted = FiredSites.of_store(store, "aot")
    store.close()
    assert counted.programs == 8
    assert counted.fired == campaign.statistics["aot"].fired
    assert len(counted.fired) == campaign.sites.fired > 0
