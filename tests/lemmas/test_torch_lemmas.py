"""Lemmas about torch: the restated predicates are the installed ones, and refutations are real."""

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from torch._C._dynamo.guards import compute_overlapping_tensors
from torch._inductor.fx_passes.reinplace import reinplace_inplaceable_ops_core
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.checks.check import check
from aliasproof.ir import regions
from aliasproof.ir.program import Program
from aliasproof.ir.regions import Region
from aliasproof.oracles import smt
from aliasproof.oracles.verdict import Verdict
from tests.lemmas.lemma import Refuted, prove
from tests.lemmas.lemma_formulas import SymbolicView
from tests.lemmas.torch_lemmas import SAYS_DISJOINT, TORCH_LEMMAS, says_no, says_yes
from tests.short_programs import program_of, view

# Later layers of `torch.compile` inherit what AOTAutograd does wrong.
FIRST_LAYERS = ("functionalize", "fx-reinplace", "aot", "aot-epilogue", "reference")
# Refuted lemmas, and the targets that miscompile the program of the counterexample.
BROKEN_TARGETS = {
    "contiguous, mixed": {"aot", "aot-epilogue"},
    "last before first, mixed": {"aot", "aot-epilogue"},
    "rows: between": {"aot", "aot-epilogue"},
    "internal: not yes": {"fx-reinplace"},
}


def refuted(name: str) -> Refuted:
    answer = prove(TORCH_LEMMAS[name])
    assert isinstance(answer, Refuted)
    return answer


# --- counterexamples as tensors, and as programs that a target can get wrong ----------------------

# By item size in bytes. Integers: every bit pattern is a value, so no comparison fails on a NaN.
DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def tensors(views: Sequence[SymbolicView]) -> list[torch.Tensor]:
    """Views of plain integers as tensors over one storage, in which byte n has the value n."""
    # Distinct values (up to 256 bytes), so that a moved or stale byte shows.
    flat = torch.arange(_nbytes(views), dtype=torch.int64).to(torch.uint8)
    return [
        torch.empty(0, dtype=DTYPES[x.itemsize]).set_(
            flat.untyped_storage(), x.offset, x.sizes, x.strides
        )
        for x in views
    ]


def write_one_read_other(views: Sequence[SymbolicView]) -> Program:
    """A program that writes all of the first view and then reads the second.

    Its result is wrong if a compiler takes the views for disjoint.
    """
    # `not` changes every byte, so the read shows whichever byte the two views share.
    body = "aten.bitwise_not_.default(x0)\nv0 = aten.clone.default(x1)\nreturn (v0,)"
    inputs = (
        view(*x.sizes, strides=x.strides, offset=x.offset, storage=0, dtype=DTYPES[x.itemsize])
        for x in views
    )
    return program_of(body, *inputs, bytes_of={0: _nbytes(views)})


def invert_windows(views: Sequence[SymbolicView]) -> Program:
    """A program that makes the view with `unfold` and inverts it, not in place.

    The view has two dimensions, and the inner stride is one.
    """
    (x,) = views
    (count, length), (step, _) = x.sizes, x.strides
    # The clone owns the windows, so a pass may want to overwrite it.
    body = f"""
    v0 = aten.clone.default(x0)
    v1 = aten.unfold.default(v0, 0, {length}, {step})
    v2 = aten.bitwise_not.default(v1)
    return (v2,)
    """
    return program_of(body, view((count - 1) * step + length, dtype=DTYPES[x.itemsize]))


def _nbytes(views: Sequence[SymbolicView]) -> int:
    """Bytes of the smallest storage that contains the views, in whole elements of each."""
    end = max(x.region().interval[1] for x in views)
    # Item sizes are powers of two, so the largest is a multiple of all.
    unit = max(x.itemsize for x in views)
    return int(-(-end // unit) * unit)


# --- the restated predicates are those of the installed torch -------------------------------------


def random_view(draw: random.Random, elements: int) -> SymbolicView:
    """0-3 dims, often rows of a matrix, sometimes contiguous.

    A dim of size one may have any stride.
    """
    itemsize = draw.choice([4, 4, 4, 8, 1])
    sizes = [draw.choice([0, *[1, 2, 3, 4] * 6]) for _ in range(draw.choice([0, 1, 2, 2, 2, 2, 3]))]
    strides: list[int] = []
    expected = draw.choice([1, 1, 1, 2])
    for dim, size in enumerate(reversed(sizes)):
        gap = draw.choice([0, 1, 3, 5]) if dim and draw.random() < 0.5 else 0
        strides.insert(
            0, draw.randint(0, 9) if size == 1 or draw.random() < 0.1 else expected + gap
        )
        expected = strides[0] * max(size, 1)
    return SymbolicView(draw.randint(0, elements), tuple(sizes), tuple(strides), itemsize)


def random_pair(draw: random.Random) -> tuple[SymbolicView, SymbolicView]:
    """Half of the pairs are rows of one matrix, of one item size or two."""
    x = random_view(draw, 40)
    if draw.random() < 0.5:
        return x, random_view(draw, 40)
    stride = draw.choice([0, 1, 4, 6, 9])
    x, y = (
        SymbolicView(
            draw.randint(0, 30),
            (draw.randint(1, 4), draw.randint(1, 5)),
            (stride, 1),
            draw.choice([4, 4, 4, 8]),
        )
        for _ in range(2)
    )
    return x, y


def branch_of(x: SymbolicView, y: SymbolicView) -> str | None:
    """The branch in which the restated predicate says "definitely disjoint"."""
    if x.offset > y.offset:
        x, y = y, x
    return next((branch.__name__ for branch in SAYS_DISJOINT if all(branch(x, y))), None)


@pytest.mark.parametrize(("symbolic", "count"), [(False, 6_000), (True, 1_000)])
def test_the_case_split_is_the_installed_one(symbolic: bool, count: int) -> None:
    draw = random.Random(7)
    taken: Counter[str | None] = Counter()
    for _ in range(count):
        pair = random_pair(draw)
        says_disjoint = not compute_overlapping_tensors(tensors(pair), symbolic=symbolic)
        taken[branch := branch_of(*pair)] += 1
        assert says_disjoint == (branch is not None), pair
    live = {each.__name__ for each in SAYS_DISJOINT} - {"rows_end_before"}
    assert set(taken) == {*live, None}  # no pair takes the dead branch
    assert min(taken.values()) > 0.02 * count


def test_no_and_yes_are_the_installed_ones() -> None:
    draw = random.Random(8)
    answers: Counter[int] = Counter()
    for _ in range(5_000):
        x = random_view(draw, 10)
        answer = torch._debug_has_internal_overlap(tensors([x])[0])
        answers[answer] += 1
        in_some_order = any(
            says_no(reordered(x, order)) for order in itertools.permutations(range(x.dims))
        )
        assert answer == (0 if in_some_order else 1 if says_yes(x) else 2), x
    assert min(answers[number] for number in (0, 1, 2)) > 50


def reordered(x: SymbolicView, order: Sequence[int]) -> SymbolicView:
    return SymbolicView(
        x.offset,
        tuple(x.sizes[dim] for dim in order),
        tuple(x.strides[dim] for dim in order),
        x.itemsize,
    )


# --- a refutation is real -------------------------------------------------------------------------


@pytest.mark.parametrize("name", BROKEN_TARGETS)
def test_the_installed_torch_takes_the_refuted_step_and_exact_deciders_do_not(name: str) -> None:
    made = tensors(refuted(name).views)
    covered = [Region.of(tensor) for tensor in made]
    if len(made) == 1:  # `torch.fx.passes.reinplace` asks whether it says yes (1)
        assert torch._debug_has_internal_overlap(made[0]) != 1
        assert regions.overlaps_itself(covered[0])
        return
    assert not compute_overlapping_tensors(made, symbolic=False)
    assert regions.overlap(*covered)
    assert isinstance(smt.decide(covered[0], covered[1]), smt.Witness)
    assert set(covered[0].addresses()) & set(covered[1].addresses())


@pytest.mark.parametrize("name", BROKEN_TARGETS)
def test_the_counterexample_becomes_a_program_that_is_miscompiled(name: str) -> None:
    views = refuted(name).views
    program = invert_windows(views) if len(views) == 1 else write_one_read_other(views)
    results = check(program, targets=FIRST_LAYERS).results
    violated = {target for target, result in results.items() if result.violated}
    assert violated == BROKEN_TARGETS[name]
    for target in violated:
        found = results[target].violations
        assert {each.kind for each in found if each.oracle == "values"} == {"wrong value"}
    assert results["reference"].reports["values"].verdict is Verdict.HOLDS


@pytest.mark.parametrize("target", ["aot", "aot-epilogue"])
def test_slices_that_share_rows_of_a_matrix_are_taken_for_disjoint(target: str) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return y + 0

    base = torch.arange(36.0).view(4, 9)
    result = check(program, (base[:, :4], base[2:, :4]), [target]).results[target]
    assert "wrong value (output 0)" in [violation.describe() for violation in result.violations]
    # Both contiguous: another branch.
    assert not check(program, (base, base[2:]), [target]).violated


def test_the_reinplacing_of_inductor_overwrites_rows_that_are_read_later() -> None:
    def program(
        x: torch.Tensor, position: torch.Tensor, row: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        base = x + 1
        later = base[2:, :4]
        return torch.ops.aten.index_put.default(base[:, :4], [position], row), later

    inputs = torch.arange(36.0).view(4, 9), torch.tensor([2]), torch.zeros(1, 4)
    graph = make_fx(program, tracing_mode="fake")(*inputs)
    expected = program(*inputs)
    for one, other in zip(graph(*inputs), expected, strict=True):
        assert torch.equal(one, other)
    reinplace_inplaceable_ops_core(graph.graph)
    graph.recompile()
    assert not torch.equal(graph(*inputs)[1], expected[1])


def test_a_program_of_disjoint_views_is_compiled_right() -> None:
    x, y = SymbolicView(0, (4, 4), (9, 1), 4), SymbolicView(22, (2, 4), (9, 1), 4)
    assert branch_of(x, y) == "rows_between"
    results = check(write_one_read_other((x, y)), targets=["aot", "aot-epilogue"]).results
    assert not any(result.violated for result in results.values())


def test_views_become_tensors_of_the_same_layout() -> None:
    for itemsize in DTYPES:
        x = SymbolicView(3, (2, 3), (5, 1), itemsize)
        (made,) = tensors([x])
        region = Region.of(made)
        start = region.start - made.untyped_storage().data_ptr()
        assert x.region() == Region(start, region.sizes, region.strides, region.itemsize)
