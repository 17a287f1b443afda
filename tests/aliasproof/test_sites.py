"""`aliasproof sites`: where torch may rewrite a program, and what programs fire there."""

import contextlib
import os
import re
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta
from torch._inductor import lowering
from torch._inductor.fx_passes import post_grad
from torch._subclasses.functional_tensor import FunctionalTensorMode

from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.fired_sites import (
    conditions_of,
    fired_by,
    fired_by_shard,
    fired_in,
    fired_sites,
    sites_json,
)
from aliasproof.campaigns.run.fuzz import fuzz
from aliasproof.campaigns.run.shard import Statistics, recording_for, run_shard
from aliasproof.campaigns.store import plan as plans
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.campaigns.store.store import Store
from aliasproof.generators.features import swarm
from aliasproof.generators.sites.all_sites import all_sites
from aliasproof.generators.sites.site import SiteRecorder
from aliasproof.generators.strategies import sample
from aliasproof.ir.execution import ProgramFunction
from aliasproof.reports.console import results
from aliasproof.reports.listings import print_sites
from aliasproof.targets.registry import TARGETS, target
from aliasproof.targets.target import Build
from aliasproof.targets.user_names import grant


def test_sites_of_a_few_programs(call):
    outcome = call("sites", "--programs", "8", "--target", "aot", "--json")
    found = outcome.json()
    assert outcome.err == (
        "note: running 8 programs, then reading the sites of torch: about a minute\n"
    )
    assert found["programs"] == 8
    assert len(found["sites"]) == len(all_sites())
    fired = {site["name"]: site["fired"] for site in found["sites"] if site["fired"]}
    assert fired["wrapper/RuntimeWrapper.post_compile"] <= 8
    assert all(site["reason"] is None for site in found["sites"] if site["fired"])
    patterns = [site for site in found["sites"] if site["kind"] == "pattern"]
    assert {site["reason"] for site in patterns} == {"is Inductor's: the target does without"}


def test_sites_alone_are_listed_with_their_reasons_and_gaps(call):
    outcome = call("sites", "--programs", "0", "--kind", "pattern")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    count = "206" if torch.__version__.startswith("2.13.") else r"\d+"
    freezing = f"{count} never, runs only with the passes of freezing"
    assert any(re.match(freezing, line) for line in lines)
    assert any("no reason: a gap" in line for line in lines)
    assert f"0 of {sum(site.kind == 'pattern' for site in all_sites())} sites fired" in lines[-1]
    assert all(line == line.rstrip() for line in lines)
    every = call("sites", "--programs", "0", "--kind", "pattern", "--all").out
    assert len(every.splitlines()) > len(lines)


def test_a_kind_that_does_not_exist_is_refused(call):
    refusal = call("sites", "--programs", "0", "--kind", "patern").refusal
    assert "'patern'; did you mean 'pattern'?" in refusal


def test_a_run_shows_what_its_programs_fired(call):
    ran = call("fuzz", "--target", "aot", "--programs", "3", "--seed", "15", "--run", "mine")
    assert ran.code == 0, ran.err
    found = call("sites", "--run", "mine", "--json").json()
    assert (found["target"], found["seed"], found["programs"]) == ("aot", 15, 3)
    fired = sum(site["fired"] > 0 for site in found["sites"])
    assert fired > 0
    line = f"{fired} sites of the compiler fired, 0 first in the last quarter"
    assert line in ran.out
    assert line in call("watch", "mine").out
    of_campaign = call(
        "sites", "--programs", "3", "--seed", "15", "--target", "aot", "--json"
    ).json()
    assert found["sites"] == of_campaign["sites"]
    assert "no target 'identity'" in call("sites", "--run", "mine", "--target", "identity").refusal
    assert call("sites", "--run", "elsewhere").code == 2


def test_a_site_that_torch_no_longer_has_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    counted = Statistics(programs=2, fired=Counter({"joint_graph.patterns/gone(aten.mm)": 2}))
    print_sites(results(), sites_json(counted, "inductor-fx", 1))
    assert "2 joint_graph.patterns/gone(aten.mm)" in capsys.readouterr().out


# --- what programs fire ---------------------------------------------------------------------------


def test_a_shard_counts_programs_by_site_and_those_that_are_skipped_change_no_other():
    whole = fired_by_shard(Shard(1, "aot", 6))
    assert whole.programs == 6
    assert 0 < max(whole.fired.values()) <= 6
    without = fired_by_shard(Shard(1, "aot", 6, skip=frozenset({2})))
    alone = fired_by_shard(Shard(1, "aot", 3, skip=frozenset({0, 1})))
    assert whole.fired - without.fired == alone.fired
    assert without.dies == 1


def test_a_recorder_that_forgets_is_noticed():
    """Without hooks nothing fires: the counts above come from the recorder."""
    assert not fired_by(Shard(1, "aot", 6), SiteRecorder()).fired


def test_hooks_are_there_for_what_a_target_fires_and_gone_afterwards():
    """A site that is not recorded costs nothing: torch has no hook for it."""

    def hooked() -> dict[str, object]:
        return {
            "write": vars(FunctionalTensorMode)["__torch_dispatch__"],
            "case": vars(ViewAndMutationMeta)["__post_init__"],
            "no-op": next(iter(post_grad.noop_registry.values())),
            "lowering": lowering.lowerings[torch.ops.aten.add.Tensor],
        }

    before = hooked()
    for name, changed in (("aot", {"write", "case"}), ("inductor-fx", {*before})):
        with recording_for(name):
            within = hooked()
        assert {kind for kind in before if within[kind] is not before[kind]} == changed
        assert hooked() == before


def test_a_program_without_a_part_for_an_operator_is_discarded():
    counted = fired_by_shard(Shard(3, "inductor-fx:scan", count=2, rules=0))
    assert counted.discarded == counted.programs == 2


def test_programs_that_are_compiled_as_one_count_as_one():
    shard = replace(next(Plan(("inductor",), programs=3).shards()), target="inductor")
    counted = fired_by_shard(shard)
    assert counted.programs == 3
    assert set(counted.fired.values()) == {1}
    assert any(name.startswith("lowering/") for name in counted.fired)


def test_a_program_that_raises_hides_nothing_of_those_compiled_with_it(monkeypatch) -> None:
    def build(function: ProgramFunction, inputs: Sequence[torch.Tensor]) -> Build:
        if len(function.program) > longest:
            raise NotImplementedError("as long as two of them")
        return target("aot").build(function, inputs)

    longest = sorted(len(program) for program in sample(swarm(1), 1, 8))[-2]
    shard = Shard(1, "short-alone", 8)
    together = replace(target("aot"), name="short-alone", build=build, group=8)
    monkeypatch.setitem(TARGETS, "short-alone", together)
    counted = fired_by_shard(shard)
    alone = fired_by_shard(replace(shard, target="aot"))
    assert 0 < counted.fired["wrapper/RuntimeWrapper.post_compile"] < 8
    assert set(counted.fired) <= set(alone.fired)


@pytest.mark.parametrize(
    ("name", "settings", "gradients", "freezing", "generates_code"),
    [
        ("aot", {}, False, False, False),
        ("inductor-fx", {"fallback_random": True}, False, False, False),
        ("inductor-fx:half-grad", {"fallback_random": True}, True, False, False),
        ("inductor:freezing", {"fallback_random": True}, False, True, True),
        ("my_inductor.py:grad", {}, False, False, False),
    ],
)
def test_a_name_says_what_a_target_can_fire(name, settings, gradients, freezing, generates_code):
    conditions = conditions_of(name)
    assert dict(conditions.settings) == settings
    assert (conditions.gradients, conditions.freezing) == (gradients, freezing)
    assert conditions.generates_code is generates_code


DEADLY = """
import os

def deadly(gm):
    if len(gm.graph.nodes) > 9:
        os._exit(3)
"""


def test_a_campaign_counts_all_its_shards_and_the_programs_that_end_their_process(tmp_path):
    (tmp_path / "deadly.py").write_text(DEADLY)
    counts: list[int] = []
    name = f"{tmp_path / 'deadly.py'}:deadly"
    grant([name])
    counted = fired_sites(name, 3, 30, counts.append)
    assert counted.programs == sum(counts) == 30
    assert 0 < counted.dies < 30
    assert "wrapper/RuntimeWrapper.post_compile" in counted.fired


# --- in campaigns ---------------------------------------------------------------------------------


def sites_of(run: Path) -> Statistics:
    with contextlib.closing(Store.open(run)) as store:
        return fired_in(store, "aot-epilogue")


def test_a_resumed_run_and_one_of_two_workers_have_the_sites_of_an_uninterrupted_one(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(plans, "PROGRAMS_PER_SHARD", 2)
    pressed: list[int] = []

    def stop_at_half(campaign: Campaign) -> None:
        if campaign.total.programs >= 6 and not pressed:
            pressed.append(1)
            os.kill(os.getpid(), signal.SIGINT)

    # Programs of this seed show no violation, so that none is reduced. No shard has a variant.
    plan = Plan(("aot-epilogue",), seed=15, programs=10, workers=1)
    whole = fuzz(plan, tmp_path / "whole")
    assert fuzz(plan, tmp_path / "resumed", stop_at_half).interrupted
    resumed = fuzz(plan, tmp_path / "resumed")
    two = fuzz(replace(plan, workers=2), tmp_path / "two")
    counts = [sites_of(tmp_path / name) for name in ("whole", "resumed", "two")]
    assert counts == counts[:1] * 3
    assert counts[0].fired == whole.statistics["aot-epilogue"].fired
    assert whole.sites == resumed.sites == two.sites
    assert whole.sites.fired == len(counts[0].fired)


def test_what_experiments_fire_is_not_the_programs() -> None:
    """Attribution runs the program through the targets below, and these runs do not count."""
    shard = Shard(1007, "aot", 6)
    campaign = run_shard(shard)
    assert campaign.statistics.violating
    assert campaign.statistics.fired == fired_by_shard(shard).fired


def test_programs_that_are_compiled_as_one_count_once_in_a_campaign():
    """Programs that a campaign runs by themselves, such as random ones, count by themselves."""
    shard = next(Plan(("inductor",), programs=3).shards())
    together = run_shard(shard).statistics.fired
    alone = run_shard(replace(shard, group=1)).statistics.fired
    assert 0 < max(together.values()) < max(alone.values()) <= 3
    assert any(name.startswith("lowering/") for name in together)
