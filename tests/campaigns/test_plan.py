"""A plan covers its programs, and neighbouring seeds draw different ones."""

import itertools
from collections import Counter

import pytest

from aliasproof.campaigns.store.plan import EVERY, WAYS, Plan, Shard
from aliasproof.generators.features import RULES_OF, RULES_SHARE, swarm
from aliasproof.targets.user_names import grant


@pytest.mark.parametrize(("programs", "counts"), [(1, [1]), (25, [25]), (60, [25, 25, 10])])
def test_a_plan_covers_its_programs(programs: int, counts: list[int]) -> None:
    assert [shard.count for shard in Plan(("aot",), programs=programs).shards()] == counts


def test_plans_of_neighbouring_seeds_share_no_shard() -> None:
    seeds = [
        {shard.seed for shard in Plan(("aot",), seed=seed, programs=1000).shards()}
        for seed in (0, 1)
    ]
    assert not seeds[0] & seeds[1]


def test_each_target_has_its_size_of_groups_unless_the_plan_says_another() -> None:
    targets = ("identity", "inductor")
    for group, sizes in ((None, [1, 25]), (4, [4, 4])):
        shards = Plan(targets, programs=1, group=group).shards()
        assert [shard.group for shard in shards] == sizes


def test_a_target_that_takes_long_has_fewer_turns_and_the_same_programs() -> None:
    targets = ("inductor", "aot", "identity")
    shards = [*Plan(targets, programs=500).shards()]
    plain = [shard.target.partition(":")[0] for shard in shards]
    assert plain[:10] == ["aot", "identity"] * 4 + ["inductor", "aot"]
    turns = list(zip(plain, shards, strict=True))
    seeds = {name: [shard.seed for on, shard in turns if on == name] for name in targets}
    assert seeds["inductor"] == seeds["aot"] == seeds["identity"] == [*range(20)]
    endless = itertools.islice(Plan(targets, programs=20_000).shards(), 850)
    assert Counter(it.target.partition(":")[0] for it in endless) == {
        "aot": 400,
        "identity": 400,
        "inductor": 50,
    }


def test_a_campaign_on_time_begins_with_few_programs_of_each_target() -> None:
    targets = ("inductor", "aot")
    shards = [*itertools.islice(Plan(targets).shards(), 16)]
    first = [(it.target, range(it.count)[len(it.skip) :]) for it in shards if it.seed == 0]
    for name, sizes in (("aot", [1, 5, 19]), ("inductor", [6, 19])):
        ran = [programs for target, programs in first if target == name]
        assert [*itertools.chain(*ran)] == [*range(25)]
        assert [len(programs) for programs in ran] == sizes
    # Starting a compiler that generates code takes as long as some programs.
    assert [name for name, _ in first[:4]] == ["aot", "aot", "aot", "inductor"]
    assert {it.rules for it in shards if it.seed == 0} == {0}


def test_some_shards_of_a_target_are_compiled_in_each_way_that_its_programs_need() -> None:
    plain = ("aot", "inductor-fx")
    ways: dict[str, list[Shard]] = {}
    for shard in Plan(plain, programs=2000).shards():
        ways.setdefault(shard.target, []).append(shard)
    assert {*ways} == {
        *plain,
        *(f"{on}:{it.variant}" for it in WAYS for on in it.targets if on in plain),
    }
    assert len(ways["aot"]) == 80 - 80 // EVERY
    for way in WAYS:
        for shard in ways.get(f"inductor-fx:{way.variant}", ()):
            assert way.useful(shard.features())


def test_rules_are_drawn_most_where_they_can_fire() -> None:
    shards = [*Plan(("aot", "inductor-fx"), programs=3000).shards()]
    rules = {shard: shard.features().rules for shard in shards}
    for shard in shards:
        if shard.target == "aot":
            assert rules[shard] == swarm(shard.seed).rules
        elif shard.variant:  # of freezing, of functions, of fusions
            assert rules[shard] == RULES_SHARE
    named = Plan(("inductor-fx:freezing",), programs=500).shards()
    assert {shard.features().rules for shard in named} == {0, RULES_SHARE}
    share = {
        name: [rules[shard] > 0 for shard in shards if shard.target == name]
        for name in ("aot", "inductor-fx")
    }
    assert sum(share["inductor-fx"]) > 1.2 * sum(share["aot"])
    assert {shard.variant for shard in shards} == {"", *RULES_OF}


def test_half_of_a_backends_shards_are_as_people_write_them(tmp_path, monkeypatch) -> None:
    (tmp_path / "backends.py").write_text("def mine(graph, example_inputs): return graph.forward\n")
    monkeypatch.chdir(tmp_path)
    grant(["backends.py:mine", "backends.py:mine:symbolic"])
    named = [shard.target for shard in Plan(("backends.py:mine",), programs=200).shards()]
    assert named[::2] == ["backends.py:mine:as-written"] * 4
    assert named[1::2] == [
        f"backends.py:mine{variant}" for variant in ("", ":second-values", ":kept-outputs", "")
    ]
    asked = Plan(("backends.py:mine:symbolic",), programs=100).shards()
    assert {shard.target for shard in asked} == {"backends.py:mine:symbolic"}


def test_a_variant_that_was_asked_for_has_no_other_ways() -> None:
    assert {shard.target for shard in Plan(("aot:grad",), programs=500).shards()} == {"aot:grad"}


def test_programs_that_are_trained_have_dtypes_with_gradients() -> None:
    for seed in range(20):
        dtypes = Shard(seed, "aot:grad").features().dtypes
        assert all(dtype.is_floating_point or dtype.is_complex for dtype in dtypes)
        assert set(dtypes) <= set(Shard(seed, "aot").features().dtypes)


def test_a_quarter_is_python_where_both_languages_are_drawn() -> None:
    both = Plan(("aot", "inductor"), programs=400, language="both")
    assert both.python_targets == ("inductor",)
    counts = Counter[tuple[str, str]]()
    for shard in both.shards():
        counts[shard.target.partition(":")[0], shard.language] += shard.count
    assert counts == {("aot", "aten"): 400, ("inductor", "aten"): 300, ("inductor", "python"): 100}


def test_beside_aot_the_layers_of_all_backends_only_get_python() -> None:
    targets = ("aot", "aot-eager", "inductor")
    shards = [*itertools.islice(Plan(targets, language="both").shards(), 200)]
    on = Counter((it.target.partition(":")[0], it.language) for it in shards)
    assert on["aot-eager", "python"] > on["inductor", "python"] > 0 == on["aot-eager", "aten"]
    plain = Plan(targets).shards()
    assert "aot-eager" in {shard.target for shard in itertools.islice(plain, 20)}


def test_with_both_languages_each_draws_what_it_draws_alone() -> None:
    both = [*itertools.islice(Plan(("inductor",), 3, language="both").shards(), 80)]
    for language in ("aten", "python"):
        mixed = [shard for shard in both if shard.language == language]
        alone = Plan(("inductor",), 3, language=language).shards()
        assert mixed
        assert mixed == [*itertools.islice(alone, len(mixed))]
