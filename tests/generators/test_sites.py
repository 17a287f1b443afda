"""The sites of the installed torch have stable names, and those that fire are recorded."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta
from torch._inductor import decomposition, lowering
from torch._inductor.fx_passes import joint_graph, post_grad, reinplace
from torch._inductor.pattern_matcher import (
    Arg,
    CallFunction,
    GraphPatternEntry,
    PatternMatcherPass,
    register_graph_pattern,
)
from torch._subclasses.functional_tensor import FunctionalTensorMode

from aliasproof.generators.sites import patterns
from aliasproof.generators.sites.all_sites import KINDS, all_sites, recording
from aliasproof.ir.lifting import lift_program
from aliasproof.ir.program import Program
from aliasproof.judge.trial import Case, Spent, run_target
from aliasproof.targets.registry import target

Function = Callable[..., object]


def fired(function: Function, inputs: Sequence[Tensor], name: str = "inductor-fx") -> set[str]:
    """The sites that fire while a function is compiled."""
    program = lift_program(function, inputs).program
    with recording() as recorder:
        run(program, name)
        return set(recorder.take()[0])


def run(program: Program, name: str = "inductor-fx") -> None:
    tested = target(name)
    _, build = run_target(Case.of(program).under(tested), tested, Spent())
    assert build is not None, "the build raises"


def of_kind(kind: str, names: Iterable[str]) -> set[str]:
    """The names of this kind."""
    known = {site.name for site in all_sites() if site.kind == kind}
    return known.intersection(names)


# --- the list -------------------------------------------------------------------------------------


def test_each_site_has_one_name_and_is_code_of_torch():
    sites = all_sites()
    assert len({site.name for site in sites}) == len(sites)
    assert {site.kind for site in sites} == {kind.name for kind in KINDS}
    for site in sites:
        assert site.line > 0, site
        assert (Path(torch.__file__).parent / site.file).is_file(), site


# In a process in which nothing else has run: which passes exist then, and which were found.
IN_ANOTHER_PROCESS = """
import gc
from torch._inductor.pattern_matcher import PatternMatcherPass
from aliasproof.generators.sites import patterns
from aliasproof.generators.sites.all_sites import all_sites

print(*(site.name for site in all_sites()), sep="\\n")
found = {id(matcher) for _, matcher in patterns.matcher_passes()}
kept = {id(it) for it in gc.get_objects() if type(it) is PatternMatcherPass}
assert kept <= found, kept - found
"""


def test_another_process_gives_the_same_names_and_has_no_other_passes():
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    other = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert other.returncode == 0, other.stderr
    here, there = [site.name for site in all_sites()], other.stdout.splitlines()
    assert sorted(set(here) ^ set(there)) == []
    assert here == there


def test_a_pattern_that_torch_drops_is_missed_and_the_others_keep_their_names():
    before = [site.name for site, _ in patterns.pattern_sites()]
    entries = joint_graph.early_patterns.patterns["call_function", torch.ops.aten.permute.default]
    dropped = entries.pop()
    try:
        after = [site.name for site, _ in patterns.pattern_sites.__wrapped__()]
    finally:
        entries.append(dropped)
    lost = "joint_graph.early_patterns/pointless_permute_pair(aten.permute.default)"
    assert after == [name for name in before if name != lost] != before


# --- what fires -----------------------------------------------------------------------------------


def cumulated(x: Tensor) -> Tensor:
    return x + torch.full([2, 3], 1.0).cumsum(1)


def permuted_twice(x: Tensor) -> Tensor:
    return x.permute(1, 0).permute(1, 0) + 1


def split_and_joined(x: Tensor) -> Tensor:
    return torch.cat(torch.split_with_sizes(x, [1, 2], 1), 1) + 1


@pytest.mark.parametrize(
    ("function", "site"),
    [
        (cumulated, "post_grad.pass_patterns[1]/pointless_cumsum_replacement(aten.cumsum.default)"),
        (permuted_twice, "joint_graph.early_patterns/pointless_permute_pair(aten.permute.default)"),
        (split_and_joined, "post_grad.pass_patterns[2]/splitwithsizes_cat_replace(aten.cat)"),
    ],
)
def test_a_program_written_for_a_pattern_fires_it_and_no_other_pattern(function, site):
    assert of_kind("pattern", fired(function, [torch.ones(2, 3)])) == {site}


def scattered(x: Tensor, index: Tensor) -> Tensor:
    y = x + 1
    y[index] = 5.0
    return y


def written_through_a_slice(x: Tensor) -> Tensor:
    x[:, 1:].mul_(2)
    return x[0:]


IN_PASSES = "graph pass/_inductor.fx_passes"
A_PROGRAM_PER_KIND: dict[str, tuple[Function, str]] = {
    "pattern": (
        permuted_twice,
        "joint_graph.early_patterns/pointless_permute_pair(aten.permute.default)",
    ),
    "graph pass": (written_through_a_slice, f"{IN_PASSES}.reinplace.canonicalize_view_scatter_ops"),
    "no-op": (lambda x: x.clone() + 1, "no-op/aten.clone.default"),
    "put in place": (written_through_a_slice, "put in place/_generalized_scatter"),
    "decomposition": (torch.rad2deg, "decomposition/aten.rad2deg.default"),
    "write through a view": (written_through_a_slice, "write through a view/slice_Tensor"),
    "case": (written_through_a_slice, "case/OutputType.alias_of_input"),
    "wrapper": (written_through_a_slice, "wrapper/RuntimeWrapper.post_compile"),
}


@pytest.mark.parametrize("kind", A_PROGRAM_PER_KIND)
def test_a_program_fires_a_site_of_each_kind(kind):
    function, site = A_PROGRAM_PER_KIND[kind]
    assert site in fired(function, [torch.ones(2, 3)])


@pytest.mark.skipif(target("inductor").unavailable() is not None, reason="no C++ compiler")
def test_generated_code_fires_lowerings():
    names = fired(lambda x: x.mul(3).sum(), [torch.ones(2, 3)], "inductor")
    assert {"lowering/aten.mul.Tensor", "lowering/aten.sum.default"} <= names
    assert set(A_PROGRAM_PER_KIND) | {"lowering"} == {kind.name for kind in KINDS}


def test_two_operands_that_share_memory_fire_the_synthetic_base():
    base = torch.ones(4)
    names = fired(lambda x, y: (x.add_(1), y.mul(2))[1], [base[:3], base[1:]], "aot")
    assert "wrapper/AOTSyntheticBaseWrapper.pre_compile" in names


def test_a_pattern_that_matches_and_refuses_is_told_apart():
    program = lift_program(lambda x: torch.mm(x, x), [torch.ones(3, 3)]).program
    with recording() as recorder:
        run(program)
        names, refused = recorder.take()
    site = "joint_graph.patterns/mm_pattern_inference(aten.mm.default)"
    assert site in refused
    assert site not in names


def test_a_pass_does_not_fire_for_what_another_one_changes():
    names = of_kind("graph pass", fired(permuted_twice, [torch.ones(2, 3)]))
    assert "graph pass/_inductor.fx_passes.post_grad.post_grad_passes" not in names


def test_a_pattern_that_torch_gets_afterwards_fires_as_unlisted():
    all_sites()
    roots = joint_graph.early_patterns.patterns
    root = "call_function", torch.ops.aten.permute.default
    before = list(roots[root])
    try:

        @register_graph_pattern(
            CallFunction(torch.ops.aten.permute.default, Arg(), Arg()),
            pass_dict=joint_graph.early_patterns,
            prepend=True,
        )
        def late(match: object, *arguments: object) -> None:
            """Changes nothing."""

        names = fired(permuted_twice, [torch.ones(2, 3)])
    finally:
        roots[root][:] = before
    assert any(name.startswith("unlisted/") and "late" in name for name in names)


# --- the recorder ---------------------------------------------------------------------------------


def test_each_program_has_its_own_sites():
    with recording() as recorder:
        for function in (permuted_twice, torch.rad2deg):
            run(lift_program(function, [torch.ones(2, 3)]).program)
            first_or_second, _ = recorder.take()
            assert ("decomposition/aten.rad2deg.default" in first_or_second) is (
                function is torch.rad2deg
            )
        assert recorder.take() == (frozenset(), frozenset())


def state_of_torch() -> list[object]:
    """The present values of all that the recorder replaces."""
    tables: list[dict] = [
        decomposition.decompositions,
        decomposition.fast_random_decomps(),
        lowering.lowerings,
        post_grad.noop_registry,
        reinplace.inplaceable_ops,
        reinplace.inplaceable_foreach_ops,
        vars(joint_graph),
        vars(post_grad),
        vars(reinplace),
    ]
    return [
        *[dict(table) for table in tables],
        *(entry.extra_check for _, entry in patterns.pattern_sites()),
        *(vars(it).get("apply") for it in (GraphPatternEntry, PatternMatcherPass)),
        ViewAndMutationMeta.__post_init__,
        FunctionalTensorMode.__torch_dispatch__,
    ]


def test_torch_is_as_before_after_an_exception():
    all_sites()
    before = state_of_torch()
    during = []

    def raise_while_recording() -> None:
        with recording():
            during.extend(state_of_torch())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        raise_while_recording()
    assert during != before
    assert state_of_torch() == before


def test_what_torch_puts_into_a_table_meanwhile_stays():
    key = torch.ops.aten.rad2deg.default
    mine = decomposition.decompositions[key]
    with mock.patch.dict(decomposition.decompositions):
        with recording():
            decomposition.decompositions[key] = torch.rad2deg
        assert decomposition.decompositions[key] is torch.rad2deg
    assert decomposition.decompositions[key] is mine
