"""A site that never fires has a reason that is found out from torch, or none: a gap."""

from __future__ import annotations

import sys

import pytest
from torch._inductor import config

from aliasproof.generators.sites import reasons
from aliasproof.generators.sites.all_sites import all_sites
from aliasproof.generators.sites.reasons import Conditions, why_never_fired

BY_NAME = {site.name: site for site in all_sites()}
PASSES = "graph pass/_inductor.fx_passes"


def reason(name: str, conditions: Conditions | None = None) -> str | None:
    return why_never_fired(BY_NAME[name], conditions or Conditions())


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("b2b_gemm.B2B_GEMM_PASS/b2b_gemm_handler(aten.mm)", "config.b2b_gemm_pass = True"),
        (
            "pre_grad.PRE_GRAD_PATTERNS[merge_splits_pass]/merge_splits(split)",
            "config.pre_grad_fusion_options that has the name of the pass",
        ),
        (
            "post_grad.POST_GRAD_PATTERNS[decompose_mm_pass]/decompose_mm(aten.mm)",
            "config.post_grad_fusion_options that has the name of the pass",
        ),
        (
            "freezing_patterns.binary_folding_pass/binary_folding_init.folded_op(aten.add.Tensor)",
            "freezing",
        ),
        (f"{PASSES}.pre_grad.fuse_conv_bn", "config.freezing = True"),
        ("graph pass/_functorch.partitioners.min_cut_rematerialization_partition", "gradients"),
        (
            "post_grad.pass_patterns[1]/_register_unary_fusion_lowering.fn(aten.relu)",
            "target inductor",
        ),
        (
            "pre_grad.apply_gumbel_max_trick_pass/apply_gumbel_max_trick(argmax)",
            "functions of Python",
        ),
        ("post_grad/decompose_scan_to_while_loop._(scan)", "calls of scan"),
        ("lowering/aten.mul.Tensor", "generated code"),
        ("decomposition/aten.rad2deg.out", "out="),
        ("no-op/aten.slice_scatter.out", "out="),
        ("write through a view/crow_indices", "sparse"),
    ],
)
def test_what_a_site_needs_is_found_out(name, part):
    found = reason(name)
    assert found is not None
    assert part in found


@pytest.mark.parametrize(
    ("name", "conditions"),
    [
        (
            "freezing_patterns.binary_folding_pass/binary_folding_init.folded_op(aten.add.Tensor)",
            Conditions(freezing=True),
        ),
        (
            "graph pass/_functorch.partitioners.min_cut_rematerialization_partition",
            Conditions(gradients=True),
        ),
        ("lowering/aten.mul.Tensor", Conditions(generates_code=True)),
        ("post_grad.pass_patterns[1]/cat_slice_cat(aten.cat)", Conditions(generates_code=True)),
        (
            "post_grad.pass_patterns[1]/_register_unary_fusion_lowering.fn(aten.relu)",
            Conditions(generates_code=True, freezing=True),
        ),
        (
            "b2b_gemm.B2B_GEMM_PASS/b2b_gemm_handler(aten.mm)",
            Conditions(settings={"b2b_gemm_pass": True}),
        ),
    ],
)
def test_where_the_programs_have_what_it_needs_it_is_a_gap(name, conditions):
    assert reason(name) is not None
    assert reason(name, conditions) is None


def test_a_pass_for_several_machines_is_told_from_one_that_mentions_them():
    assert "collectives" in (reason(f"{PASSES}.ddp_fusion._fuse_allreduce") or "")
    assert reason(f"{PASSES}.post_grad.reorder_for_locality") is None
    assert reason("graph pass/_functorch.partitioners.default_partition") is None


def test_what_programs_could_reach_is_a_gap():
    assert reason("post_grad.pass_patterns[2]/splitwithsizes_cat_replace(aten.cat)") is None
    assert reason("decomposition/aten.rad2deg.default") is None
    # A straight line can spell out a backward pass.
    assert reason("joint_graph.patterns/mm_pattern_training(aten.mm.default)") is None


def test_what_freezing_brings_is_told():
    code = Conditions(generates_code=True)
    fused = "post_grad.pass_patterns[1]/_register_unary_fusion_lowering.fn(aten.relu)"
    assert "calls of mkldnn" in (reason(fused, code) or "")


@pytest.mark.parametrize(
    "conditions", [Conditions(), Conditions(gradients=True, freezing=True, generates_code=True)]
)
def test_each_site_has_a_reason_or_is_a_gap(conditions):
    for site in all_sites():
        assert why_never_fired(site, conditions) != ""


def test_a_target_without_inductor_has_none_of_its_sites():
    without = Conditions(inductor=False)
    assert "Inductor" in (reason("lowering/aten.mul.Tensor", without) or "")
    assert reason("case/OutputType.is_input", without) is None


def test_torch_is_as_before():
    before, profiler = dict(config.get_config_copy()), sys.getprofile()
    reasons._started_by_changes.cache_clear()
    assert reason("b2b_gemm.B2B_GEMM_PASS/b2b_gemm_handler(aten.mm)") is not None
    assert config.get_config_copy() == before
    assert sys.getprofile() is profiler
