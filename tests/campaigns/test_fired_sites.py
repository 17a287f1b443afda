"""The sites that the programs of a shard fire are counted, whatever their verdict."""

import contextlib
import os
import signal
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
)
from aliasproof.campaigns.run.fuzz import fuzz
from aliasproof.campaigns.run.shard import Statistics, recording_for, run_shard
from aliasproof.campaigns.store import plan as plans
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.campaigns.store.store import Store
from aliasproof.generators.features import swarm
from aliasproof.generators.sites.site import SiteRecorder
from aliasproof.generators.strategies import sample
from aliasproof.ir.execution import ProgramFunction
from aliasproof.targets.registry import TARGETS, target
from aliasproof.targets.target import Build
from aliasproof.targets.user_names import grant


def test_a_shard_counts_programs_by_site():
    shard = Shard(1, "aot", 6)
    counted = fired_by_shard(shard)
    assert counted.programs == 6
    assert 0 < max(counted.fired.values()) <= 6
    assert counted.fired == fired_by_shard(shard).fired


def test_programs_that_are_skipped_change_no_other():
    whole = fired_by_shard(Shard(1, "aot", 6))
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
    told: list[int] = []
    name = f"{tmp_path / 'deadly.py'}:deadly"
    grant([name])
    counted = fired_sites(name, 3, 30, told.append)
    assert counted.programs == sum(told) == 30
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
