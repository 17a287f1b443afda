"""Pairs of regions with symbolic sizes: given these expressions and assumptions, this answer."""

import time
from dataclasses import replace

import pytest
import sympy  # type: ignore[import-untyped]
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod

from aliasproof.ir.regions import Region, overlap
from aliasproof.oracles.proofs.assumptions import Assumptions
from aliasproof.oracles.proofs.symbolic_inputs import SymbolicInputs, SymbolicRegion
from aliasproof.oracles.proofs.target_proofs import Answer, Proof, pairs, prove
from tests.oracles.proofs import sized_programs as programs

N, M, K = (sympy.Symbol(name, integer=True, positive=True) for name in ("n0", "n1", "n2"))


def assumptions(*guards, low=2, high=64, symbols=(N, M), equal=None):
    return Assumptions.of(
        dict.fromkeys(symbols, (low, high)), guards, equal or {}, dict.fromkeys(symbols, 4)
    )


def region(start, sizes, strides, itemsize=1):
    return SymbolicRegion(
        0,
        sympy.sympify(start),
        tuple(map(sympy.sympify, sizes)),
        tuple(map(sympy.sympify, strides)),
        itemsize,
    )


def line(start, size):
    """Bytes side by side."""
    return region(start, (size,), (1,))


def rows(first, count, item=1):
    """Rows of a dense matrix of N rows and M columns."""
    return region(first * M * item, (count, M), (M * item, item), item)


def prove_disjoint(
    one: SymbolicRegion, other: SymbolicRegion, given: Assumptions, limit: float = 10.0
) -> Proof:
    """Whether two regions of one storage share no byte at any sizes."""
    after = {"output 0": one, "output 1": other}
    # As if they were in different storages before: then any shared byte is new.
    before = {
        name: replace(each, storage=index) for index, (name, each) in enumerate(after.items())
    }
    (proof,) = prove(before, after, given, limit)
    return proof


def answer(one: SymbolicRegion, other: SymbolicRegion, given: Assumptions) -> Answer:
    return prove_disjoint(one, other, given).answer


HALF = FloorDiv(N, 2)
WHOLE = rows(0, N)

DISJOINT = {
    "two halves": (rows(0, HALF), rows(HALF, N - HALF)),
    "rounded up and down": (rows(0, HALF), rows(FloorDiv(N + 1, 2), HALF)),
    "left and right columns": (
        region(0, (N, FloorDiv(M, 3)), (M, 1)),
        region(FloorDiv(M, 3), (N, M - FloorDiv(M, 3)), (M, 1)),
    ),
    "the diagonal and the next": (
        region(0, (Min(N, M),), (M + 1,)),
        region(1, (Min(N, M - 1),), (M + 1,)),
    ),
    "even and odd": (region(0, (HALF,), (2,)), region(1, (HALF,), (2,))),
    "flat and rows": (line(0, HALF * M), rows(HALF, N - HALF)),
    "one behind the other": (region(0, (N, M), (M, 1)), region(N * M, (M, N), (1, M))),
    "three dims": (
        region(0, (N, HALF, M), (N * M, M, 1)),
        region(HALF * M, (N, N - HALF, M), (N * M, M, 1)),
    ),
    "four bytes and eight": (region(0, (N,), (8,), 4), region(4, (N,), (8,), 4)),
    "before a maximum": (line(0, N), line(Max(N, M), M)),
    "of no elements": (WHOLE, region(0, (Max(1 - N, 0),), (1,))),
}
OVERLAPPING = {
    "one row too many": (rows(0, HALF + 1), rows(HALF, N - HALF)),
    "at odd sizes only": (rows(0, N - HALF), rows(HALF, N - HALF)),
    "at one size only": (line(0, N), line(37, M)),
    "bytes of two item sizes": (region(0, (N,), (8,), 8), region(4, (N,), (16,), 4)),
    "a remainder": (line(0, N), line(N - Mod(N, 5), M)),
}


@pytest.mark.parametrize("high", [64, None])
@pytest.mark.parametrize("name", DISJOINT)
def test_regions_that_are_disjoint_at_all_sizes_are_proved(name, high):
    found = prove_disjoint(*DISJOINT[name], assumptions(high=high))
    assert (found.answer, found.sizes) == (Answer.PROVED, None)


@pytest.mark.parametrize("high", [64, None])
@pytest.mark.parametrize("name", OVERLAPPING)
def test_regions_that_share_a_byte_at_some_sizes_are_refuted(name, high):
    one, other = OVERLAPPING[name]
    found = prove_disjoint(one, other, assumptions(high=high))
    assert found.answer is Answer.REFUTED
    assert found.sizes is not None
    assert overlap(one.at(found.sizes), other.at(found.sizes))


def test_a_refutation_that_no_sample_shows_is_found():
    found = prove_disjoint(
        line(0, N), region(M * M - 2899, (M,), (2,)), assumptions(sympy.Ge(M, 54))
    )
    assert found.answer is Answer.REFUTED
    assert found.how != "sampled sizes"


@pytest.mark.parametrize(
    ("guards", "low", "high"),
    [
        ((), 2, 1),
        ((sympy.Lt(N, 5), sympy.Gt(N, 7)), 2, 64),
        ((sympy.Eq(N, 70),), 2, 64),
        ((sympy.false,), 2, 64),
        ((sympy.Eq(N, 2 * M), sympy.Eq(Mod(N, 2), 1)), 2, None),
        ((sympy.Eq(N * N, 2 * M * M),), 2, 64),
    ],
)
def test_contradictory_assumptions_are_vacuous(guards, low, high):
    assert answer(WHOLE, WHOLE, assumptions(*guards, low=low, high=high)) is Answer.VACUOUS


def test_assumptions_that_only_rare_sizes_satisfy_are_not_vacuous():
    rare = assumptions(sympy.Eq(N * M, 59 * 61), sympy.Gt(N, M))
    assert rare.samples == ()
    found = prove_disjoint(WHOLE, WHOLE, rare)
    assert (found.answer, found.sizes) == (Answer.REFUTED, {N: 61, M: 59})


def test_a_guard_is_an_assumption():
    one, other = OVERLAPPING["at odd sizes only"]
    assert answer(one, other, assumptions(sympy.Eq(Mod(N, 2), 0))) is Answer.PROVED


def test_an_equation_makes_a_symbol_an_expression_of_others():
    known = assumptions(sympy.Eq(K, M), sympy.Le(K, 9), symbols=(N, M, K))
    assert (set(known.ranges), known.equal) in (({N, K}, {M: K}), ({N, M}, {K: M}))
    assert answer(line(0, K), line(M, N), known) is Answer.PROVED


def test_a_sum_of_fractions_is_a_quotient_as_a_whole():
    """`n0/2 + n1/2` is not a sum of rounded halves where both sizes are odd.

    At one such pair of sizes, and only there, the two regions are at the same byte.
    """
    halves = (N + M) * sympy.Rational(1, 2)
    one = line(FloorDiv(N, 2) + FloorDiv(M, 2) + 1, 1)
    other = line(halves + (N - 37) ** 2 + (M - 41) ** 2, 1)
    found = prove_disjoint(one, other, assumptions(sympy.Eq(Mod(N + M, 2), 0)))
    assert (found.answer, found.sizes) == (Answer.REFUTED, {N: 37, M: 41})
    assert answer(line(0, halves), line(halves, M), assumptions()) is Answer.PROVED
    half = N * (N + 1) * sympy.Rational(1, 2)
    steps = region(0, (half, M), (7 * half, 5))
    assert answer(steps, region(3, (M,), (11,)), assumptions(high=20)) is Answer.REFUTED


def test_no_time_is_unknown():
    found = prove_disjoint(*DISJOINT["three dims"], assumptions(), limit=1e-3)
    assert found.answer is Answer.UNKNOWN
    assert "0.001 s" in found.how
    assert found.milliseconds < 1e3


def test_an_unsupported_function_is_unknown_with_its_name_and_never_proved():
    odd = sympy.Function("wobble", integer=True)(N)
    found = prove_disjoint(line(0, N), line(N + odd, M), assumptions(), limit=1)
    assert found.answer is Answer.UNKNOWN
    assert "wobble" in found.how


def test_an_unsupported_assumption_is_left_out_of_a_proof():
    given = assumptions(sympy.Gt(sympy.Abs(N - 7), 2))
    assert answer(*DISJOINT["two halves"], given) is Answer.PROVED


def test_a_data_dependent_size_can_be_proved_but_not_refuted():
    count = sympy.Symbol("u0", integer=True, nonnegative=True)
    assert answer(line(0, N), line(N, count), assumptions()) is Answer.PROVED
    found = prove_disjoint(line(0, N), line(count, N), assumptions(), limit=1)
    assert found.answer is Answer.UNKNOWN
    assert "data-dependent sizes: u0" in found.how


# --- before and after -----------------------------------------------------------------------------


def decided(before, after):
    names = "input 0", "output 0"
    one, other = (dict(zip(names, each, strict=True)) for each in (before, after))
    (found,) = prove(one, other, assumptions())
    return found


def test_what_shares_a_byte_in_eager_may_do_so_after():
    assert decided((WHOLE, WHOLE), (WHOLE, WHOLE)).how == "as in eager"
    assert decided((WHOLE, WHOLE), (WHOLE, rows(HALF, N - HALF))).answer is Answer.PROVED
    shifted = region(5, (N, M), (M, 1))
    part = region(5 + HALF * M, (N - HALF, M), (M, 1))
    assert decided((WHOLE, rows(HALF, N - HALF)), (shifted, part)).how == "as in eager"


def test_what_shares_a_byte_in_eager_at_other_sizes_only_is_refuted():
    before = line(0, N), line(10, M)
    after = line(0, N), line(9, M)
    found = decided(before, after)
    assert (found.answer, found.sizes[N]) == (Answer.REFUTED, 10)


def test_equal_relative_layouts_in_other_expressions_are_proved():
    before = region(0, (HALF + FloorDiv(N + 1, 2),), (1,)), line(N, M)
    after = line(0, N), line(N, M)
    assert decided(before, after).answer is Answer.PROVED


def test_pairs_are_those_with_an_output():
    assert pairs(["input 0", "input 1", "output 0", "output 1"]) == [
        ("input 0", "output 0"),
        ("input 1", "output 0"),
        ("input 0", "output 1"),
        ("input 1", "output 1"),
        ("output 0", "output 1"),
    ]


def test_an_output_that_is_gone_is_unknown():
    before = {"input 0": WHOLE, "output 0": WHOLE}
    (found,) = prove(before, {"input 0": WHOLE}, assumptions())
    assert found.answer is Answer.UNKNOWN


# --- against all sizes, one by one ----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_proofs_agree_with_all_sizes_tried_one_by_one(seed):
    build = (programs.arena, programs.even_arena, programs.no_clones)[seed % 3]
    program = programs.draw(seed)

    def function(*given):
        outputs = program(*given)
        return [each.clone() for each in outputs] if build is programs.no_clones else outputs

    inputs = SymbolicInputs(program.inputs())
    before = inputs.layout(function)
    after = inputs.layout(build(function, inputs.fresh()))
    known = inputs.assumptions(2, 7)
    allowed = known.enumerate_sizes(time.perf_counter() + 60)
    every = [known.complete(sizes) for sizes in allowed]
    for proof in prove(before, after, known):
        refuted = any(
            share_a_byte(after, proof, sizes) and not share_a_byte(before, proof, sizes)
            for sizes in every
        )
        expected = Answer.REFUTED if refuted else Answer.PROVED
        assert proof.answer is (expected if every else Answer.VACUOUS)


def share_a_byte(layout, proof, sizes):
    one, other = layout[proof.one], layout[proof.other]
    return one.storage == other.storage and overlap(one.at(sizes), other.at(sizes))


def test_regions_at_sizes_are_numbers():
    assert rows(HALF, N - HALF, 4).at({N: 5, M: 3}) == Region(24, (3, 3), (12, 4), 4)


# --- assumptions ----------------------------------------------------------------------------------


def test_ranges_that_fit_into_no_memory_are_enumerated():
    ranges = {N: (2, 10**15), M: (2, 10**15)}
    sizes = Assumptions.of(ranges, (), {}, {N: 4, M: 4}).enumerate_sizes(time.perf_counter() + 60)
    assert [next(sizes) for _ in range(3)] == [{N: 2, M: 2}, {N: 2, M: 3}, {N: 2, M: 4}]


def test_a_symbol_that_equals_another_is_in_the_range_of_both():
    for ranges, bounds in (
        ({N: (2, 9), M: (3, None)}, (3, 9)),
        ({N: (4, None), M: (3, 7)}, (4, 7)),
        ({N: (2, 5), M: (3, 4)}, (3, 4)),
        ({N: (2, None), M: (2, None)}, (2, None)),
    ):
        known = Assumptions.of(ranges, [sympy.Eq(N, M)], {}, {N: 4, M: 4})
        allowed = [size for size in range(1, 20) if known.allow(dict.fromkeys(known.ranges, size))]
        assert allowed == list(range(bounds[0], min(bounds[1] or 19, 19) + 1))


@pytest.mark.parametrize("seed", range(40))
def test_the_sizes_of_the_sample_satisfy_the_assumptions_of_its_own_run(seed):
    program = programs.draw(100 + seed)
    inputs = SymbolicInputs(program.inputs())
    inputs.layout(programs.arena(program, inputs.fresh()))
    known = inputs.assumptions(2, 64)
    assert known.samples[0] == {symbol: inputs.hints[symbol] for symbol in known.ranges}
    assert known.complete(known.samples[0]) == inputs.hints
