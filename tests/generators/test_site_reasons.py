"""A site that never fires has a reason that is derived from torch, or none: a coverage gap."""

import sys

import pytest
from torch._inductor import config

from aliasproof.generators.sites import reasons
from aliasproof.generators.sites.all_sites import all_sites
from aliasproof.generators.sites.reasons import Conditions, why_never_fired

BY_NAME = {site.name: site for site in all_sites()}
PASSES = "graph pass/_inductor.fx_passes"


PLAIN = Conditions()
CODE = Conditions(generates_code=True)


def reason(name: str, conditions: Conditions = PLAIN) -> str | None:
    return why_never_fired(BY_NAME[name], conditions)


B2B = "b2b_gemm.B2B_GEMM_PASS/b2b_gemm_handler(aten.mm)"
FOLDED = "freezing_patterns.binary_folding_pass/binary_folding_init.folded_op(aten.add.Tensor)"
MIN_CUT = "graph pass/_functorch.partitioners.min_cut_rematerialization_partition"
FUSED = "post_grad.pass_patterns[1]/_register_unary_fusion_lowering.fn(aten.relu)"
CAT_SLICE_CAT = "post_grad.pass_patterns[1]/cat_slice_cat(aten.cat)"
MERGE_SPLITS = "pre_grad.PRE_GRAD_PATTERNS[merge_splits_pass]/merge_splits(split)"
DECOMPOSE_MM = "post_grad.POST_GRAD_PATTERNS[decompose_mm_pass]/decompose_mm(aten.mm)"
HAS_THE_NAME = "that has the name of the pass"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        (B2B, "config.b2b_gemm_pass = True"),
        (MERGE_SPLITS, f"config.pre_grad_fusion_options {HAS_THE_NAME}"),
        (DECOMPOSE_MM, f"config.post_grad_fusion_options {HAS_THE_NAME}"),
        (FOLDED, "freezing"),
        (f"{PASSES}.pre_grad.fuse_conv_bn", "config.freezing = True"),
        (MIN_CUT, "gradients"),
        (FUSED, "target inductor"),
        (CAT_SLICE_CAT, "target inductor"),
        (
            "pre_grad.apply_gumbel_max_trick_pass/apply_gumbel_max_trick(argmax)",
            "functions of Python",
        ),
        ("post_grad/decompose_scan_to_while_loop._(scan)", "calls of scan"),
        ("lowering/aten.mul.Tensor", "generated code"),
        ("decomposition/aten.rad2deg.out", "out="),
        ("no-op/aten.slice_scatter.out", "out="),
        ("write through a view/crow_indices", "sparse"),
        # A pass for several machines is distinguished from a pass that mentions them.
        (f"{PASSES}.ddp_fusion._fuse_allreduce", "collectives"),
    ],
)
def test_what_a_site_needs_is_found_out(name: str, part: str) -> None:
    assert part in (reason(name) or "")


@pytest.mark.parametrize(
    ("name", "conditions", "part"),
    [
        (FUSED, CODE, "calls of mkldnn"),
        ("lowering/aten.mul.Tensor", Conditions(inductor=False), "Inductor"),
    ],
)
def test_other_programs_need_something_else(name: str, conditions: Conditions, part: str) -> None:
    assert part in (reason(name, conditions) or "")


@pytest.mark.parametrize(
    ("name", "conditions"),
    [
        # With programs that meet its conditions.
        (FOLDED, Conditions(freezing=True)),
        (MIN_CUT, Conditions(gradients=True)),
        ("lowering/aten.mul.Tensor", CODE),
        (CAT_SLICE_CAT, CODE),
        (FUSED, Conditions(generates_code=True, freezing=True)),
        (B2B, Conditions(settings={"b2b_gemm_pass": True})),
        ("case/OutputType.is_input", Conditions(inductor=False)),
        # Programs could reach these.
        (f"{PASSES}.post_grad.reorder_for_locality", PLAIN),
        ("graph pass/_functorch.partitioners.default_partition", PLAIN),
        ("post_grad.pass_patterns[2]/splitwithsizes_cat_replace(aten.cat)", PLAIN),
        ("decomposition/aten.rad2deg.default", PLAIN),
        # A straight-line program can contain a backward pass.
        ("joint_graph.patterns/mm_pattern_training(aten.mm.default)", PLAIN),
    ],
)
def test_what_programs_reach_or_could_reach_is_a_gap(name: str, conditions: Conditions) -> None:
    assert reason(name, conditions) is None


@pytest.mark.parametrize(
    "conditions", [Conditions(), Conditions(gradients=True, freezing=True, generates_code=True)]
)
def test_each_site_has_a_reason_or_is_a_gap(conditions):
    for site in all_sites():
        assert why_never_fired(site, conditions) != ""


def test_torch_is_as_before():
    before, profiler = dict(config.get_config_copy()), sys.getprofile()
    reasons._started_by_changes.cache_clear()
    assert reason(B2B) is not None
    assert config.get_config_copy() == before
    assert sys.getprofile() is profiler
