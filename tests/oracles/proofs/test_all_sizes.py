"""Pairs of regions with sizes as symbols: given these terms and these premises, this is the answer."""

import random
import time
from typing import Any

import pytest
import sympy  # type: ignore[import-untyped]
import torch
import z3
from torch.utils._sympy.functions import (
    CleanDiv,
    FloorDiv,
    Max,
    Min,
    Mod,
    ModularIndexing,
    PowByNatural,
    PythonMod,
)

from benchmarks import proof_rates as programs
from oracles.observation import observe
from oracles.proofs.all_sizes import Answer, pairs, prove, shared
from oracles.proofs.assumptions import Premises, compiled, evaluate
from oracles.proofs.size_terms import SizeQuestion, Untranslatable
from oracles.proofs.symbolic import SymbolicInputs, SymbolicRegion, disagreements
from oracles.smt import Disjoint, Session
from programs.errors import Rejected
from programs.regions import Region, overlap
from programs.values import clone_inputs

N, M, K = (sympy.Symbol(name, integer=True, positive=True) for name in ("n0", "n1", "n2"))
Z, ONE = sympy.Integer(0), sympy.Integer(1)


def premises(*guards, low=2, high=64, symbols=(N, M), equal=None):
    return Premises.of(
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


def rows(first, count, item=1):
    """Rows of a dense matrix of N rows and M columns."""
    return region(first * M * item, (count, M), (M * item, item), item)


HALF = FloorDiv(N, 2)
WHOLE = rows(0, N)

APART = {
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
    "flat and rows": (region(0, (HALF * M,), (1,)), rows(HALF, N - HALF)),
    "one behind the other": (region(0, (N, M), (M, 1)), region(N * M, (M, N), (1, M))),
    "three dims": (
        region(0, (N, HALF, M), (N * M, M, 1)),
        region(HALF * M, (N, N - HALF, M), (N * M, M, 1)),
    ),
    "four bytes and eight": (region(0, (N,), (8,), 4), region(4, (N,), (8,), 4)),
    "before a maximum": (region(0, (N,), (1,)), region(Max(N, M), (M,), (1,))),
    "of no elements": (WHOLE, region(0, (Max(1 - N, 0),), (1,))),
}
TOGETHER = {
    "one row too many": (rows(0, HALF + 1), rows(HALF, N - HALF)),
    "at odd sizes only": (rows(0, N - HALF), rows(HALF, N - HALF)),
    "at one size only": (region(0, (N,), (1,)), region(37, (M,), (1,))),
    "bytes of two item sizes": (region(0, (N,), (8,), 8), region(4, (N,), (16,), 4)),
    "a remainder": (region(0, (N,), (1,)), region(N - Mod(N, 5), (M,), (1,))),
}


@pytest.mark.parametrize("high", [64, None])
@pytest.mark.parametrize("name", APART)
def test_two_that_are_apart_at_all_sizes_are_proved(name, high):
    found = shared(*APART[name], premises(high=high))
    assert (found.answer, found.sizes) == (Answer.PROVED, None)


@pytest.mark.parametrize("high", [64, None])
@pytest.mark.parametrize("name", TOGETHER)
def test_two_that_share_a_byte_at_some_sizes_are_refuted(name, high):
    one, other = TOGETHER[name]
    found = shared(one, other, premises(high=high))
    assert found.answer is Answer.REFUTED
    assert found.sizes is not None
    assert overlap(one.at(found.sizes), other.at(found.sizes))


def test_a_refutation_that_no_sample_shows_is_found():
    found = shared(
        region(0, (N,), (1,)), region(M * M - 2899, (M,), (2,)), premises(sympy.Ge(M, 54))
    )
    assert found.answer is Answer.REFUTED
    assert found.how != "some sizes"


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
def test_contradictory_premises_are_vacuous(guards, low, high):
    assert shared(WHOLE, WHOLE, premises(*guards, low=low, high=high)).answer is Answer.VACUOUS


def test_premises_that_only_rare_sizes_fulfil_are_not_vacuous():
    rare = premises(sympy.Eq(N * M, 59 * 61), sympy.Gt(N, M))
    assert rare.samples == ()
    found = shared(WHOLE, WHOLE, rare)
    assert (found.answer, found.sizes) == (Answer.REFUTED, {N: 61, M: 59})


def test_a_guard_is_a_premise():
    one, other = TOGETHER["at odd sizes only"]
    assert shared(one, other, premises(sympy.Eq(Mod(N, 2), 0))).answer is Answer.PROVED


def test_an_equation_makes_a_symbol_a_term_of_others():
    known = premises(sympy.Eq(K, M), sympy.Le(K, 9), symbols=(N, M, K))
    assert (set(known.ranges), known.equal) in (({N, K}, {M: K}), ({N, M}, {K: M}))
    found = shared(region(0, (K,), (1,)), region(M, (N,), (1,)), known)
    assert found.answer is Answer.PROVED


def test_a_sum_of_fractions_is_a_quotient_as_a_whole():
    """`n0/2 + n1/2` is no sum of rounded halves: where both are odd, and at one size only, the two are at one place."""
    halves = (N + M) * sympy.Rational(1, 2)
    one = region(FloorDiv(N, 2) + FloorDiv(M, 2) + 1, (1,), (1,))
    other = region(halves + (N - 37) ** 2 + (M - 41) ** 2, (1,), (1,))
    found = shared(one, other, premises(sympy.Eq(Mod(N + M, 2), 0)))
    assert (found.answer, found.sizes) == (Answer.REFUTED, {N: 37, M: 41})
    assert (
        shared(region(0, (halves,), (1,)), region(halves, (M,), (1,)), premises()).answer
        is Answer.PROVED
    )
    steps = region(
        0, (N * (N + 1) * sympy.Rational(1, 2), M), (N * (N + 1) * sympy.Rational(7, 2), 5)
    )
    assert shared(steps, region(3, (M,), (11,)), premises(high=20)).answer is Answer.REFUTED


def test_ranges_that_fit_into_no_memory_are_gone_through_one_by_one():
    sizes = premises(high=10**15).every(time.perf_counter() + 60)
    assert [next(sizes) for _ in range(3)] == [{N: 2, M: 2}, {N: 2, M: 3}, {N: 2, M: 4}]


def test_a_symbol_that_is_another_is_in_the_range_of_both():
    for ranges, bounds in (
        ({N: (2, 9), M: (3, None)}, (3, 9)),
        ({N: (4, None), M: (3, 7)}, (4, 7)),
        ({N: (2, 5), M: (3, 4)}, (3, 4)),
        ({N: (2, None), M: (2, None)}, (2, None)),
    ):
        known = Premises.of(ranges, [sympy.Eq(N, M)], {}, {N: 4, M: 4})
        fulfil = [size for size in range(1, 20) if known.holds(dict.fromkeys(known.ranges, size))]
        assert fulfil == list(range(bounds[0], min(bounds[1] or 19, 19) + 1))


def test_no_time_is_unknown():
    found = shared(*APART["three dims"], premises(), limit=1e-3)
    assert found.answer is Answer.UNKNOWN
    assert "0.001 s" in found.how
    assert found.milliseconds < 1e3


def test_a_term_that_is_not_known_is_unknown_with_its_name_and_never_proved():
    odd = sympy.Function("wobble", integer=True)(N)
    found = shared(region(0, (N,), (1,)), region(N + odd, (M,), (1,)), premises(), limit=1)
    assert found.answer is Answer.UNKNOWN
    assert "wobble" in found.how


def test_a_premise_that_is_not_known_is_left_out_of_a_proof():
    assert (
        shared(*APART["two halves"], premises(sympy.Gt(sympy.Abs(N - 7), 2))).answer
        is Answer.PROVED
    )


def test_a_size_that_depends_on_numbers_can_be_proved_but_not_refuted():
    count = sympy.Symbol("u0", integer=True, nonnegative=True)
    assert (
        shared(region(0, (N,), (1,)), region(N, (count,), (1,)), premises()).answer is Answer.PROVED
    )
    found = shared(region(0, (N,), (1,)), region(count, (N,), (1,)), premises(), limit=1)
    assert found.answer is Answer.UNKNOWN
    assert "u0 depend" in found.how


# --- before and after -----------------------------------------------------------------------------


def decided(before, after, **options):
    (found,) = prove(
        dict(zip(("input 0", "output 0"), before, strict=True)),
        dict(zip(("input 0", "output 0"), after, strict=True)),
        premises(),
        **options,
    )
    return found


def test_what_shares_a_byte_in_eager_may_do_so_after():
    assert decided((WHOLE, WHOLE), (WHOLE, WHOLE)).how == "as in eager"
    assert decided((WHOLE, WHOLE), (WHOLE, rows(HALF, N - HALF))).answer is Answer.PROVED
    moved = region(5, (N, M), (M, 1))
    assert (
        decided(
            (WHOLE, rows(HALF, N - HALF)), (moved, region(5 + HALF * M, (N - HALF, M), (M, 1)))
        ).how
        == "as in eager"
    )


def test_what_shares_a_byte_in_eager_at_other_sizes_only_is_refuted():
    before = region(0, (N,), (1,)), region(10, (M,), (1,))
    after = region(0, (N,), (1,)), region(9, (M,), (1,))
    found = decided(before, after)
    assert (found.answer, found.sizes[N]) == (Answer.REFUTED, 10)


def test_equal_relations_in_other_terms_are_proved():
    before = region(0, (HALF + FloorDiv(N + 1, 2),), (1,)), region(N, (M,), (1,))
    after = region(0, (N,), (1,)), region(N, (M,), (1,))
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
    (found,) = prove(before, {"input 0": WHOLE}, premises())
    assert found.answer is Answer.UNKNOWN


# --- against all sizes, one by one ----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_proofs_agree_with_all_sizes_tried_one_by_one(seed):
    name = ("arena", "even arena", "no clones")[seed % 3]
    program = programs.draw(seed)
    function = programs.Cloned(program) if name == "no clones" else program
    inputs = SymbolicInputs(program.inputs())
    before = inputs.layout(function)
    after = inputs.layout(programs.BUILDS[name](function, inputs.fresh()))
    known = inputs.premises(2, 7)
    every = [known.whole(each) for each in known.every(time.perf_counter() + 60)]
    for proof in prove(before, after, known):
        new = any(
            together(after, proof, sizes) and not together(before, proof, sizes) for sizes in every
        )
        assert (
            proof.answer is {True: Answer.REFUTED, False: Answer.PROVED}[new]
            if every
            else Answer.VACUOUS
        )


def together(layout, proof, sizes):
    one, other = layout[proof.one], layout[proof.other]
    return one.storage == other.storage and overlap(one.at(sizes), other.at(sizes))


@pytest.mark.parametrize("seed", range(12))
def test_what_z3_is_told_of_products_is_true(seed):
    """With the products as they are, no sizes contradict what is told of them."""
    draw = random.Random(seed)
    terms = SizeQuestion(Session.here("test").context, {str(each): (2, 64) for each in (N, M, K)})
    parts = [
        N,
        M,
        K,
        N * M,
        M * K,
        FloorDiv(N * M, 3),
        HALF * M,
        Min(N, M) * K,
        Mod(N, 5) * K,
        sympy.Integer(7),
    ]
    sums = [sum(draw.randint(-3, 3) * each for each in draw.sample(parts, 4)) for _ in range(3)]
    conditions = [
        terms.number(terms.polynomial(each)) == terms.name(f"value{at}")
        for at, each in enumerate(sums)
    ]
    for _ in range(5):
        sizes = {each: draw.randint(2, 64) for each in (N, M, K)}
        given = [terms.name(str(each)) == value for each, value in sizes.items()]
        names = [terms.name(f"value{at}") for at in range(len(sums))]
        told = [*terms.facts, *terms.equations, *conditions, *given]
        answer = Session.here("test").ask(told, names, 20_000)
        assert answer == tuple(evaluate(each, sizes) for each in sums)


def test_a_condition_means_to_z3_what_it_means_in_numbers():
    condition = sympy.Or(sympy.And(sympy.Ge(N, 9), sympy.Ne(M, 4)), sympy.Lt(Mod(M, 3), 1))
    for n in (8, 9):
        for m in range(2, 8):
            terms = SizeQuestion(Session.here("test").context, {"n0": (n, n), "n1": (m, m)})
            asked = terms.condition(condition)
            answer = Session.here("test").ask([*terms.facts, *terms.equations, asked], [], 10_000)
            assert (not isinstance(answer, Disjoint)) == evaluate(condition, {N: n, M: m})
    with pytest.raises(Untranslatable, match="Abs"):
        SizeQuestion(Session.here("test").context, {}).polynomial(sympy.Abs(N - 3))


def test_compiled_terms_have_the_values_of_the_terms():
    base, other = 4 * N + M - 4, K + 2 * M - 1
    terms: list[Any] = [
        kind(base, other) for kind in (FloorDiv, CleanDiv, Mod, PythonMod, Max, Min)
    ]
    terms += [3 - 2 * each for each in terms] + [
        FloorDiv(each, Mod(each * N + 5, other) + 1) for each in terms
    ]
    terms += [
        ModularIndexing(base, other, N),
        PowByNatural(base, sympy.Integer(3)),
        N**2 - M * K,
        sympy.Rational(1, 2) * N * (N + 1),
    ]
    terms += [
        kind(each, base)
        for kind in (sympy.Eq, sympy.Ne, sympy.Lt, sympy.Ge)
        for each in (N * M, Mod(base, other))
    ]
    terms += [
        sympy.And(sympy.Gt(N, 3), sympy.Or(sympy.Le(M, K), sympy.Not(sympy.Eq(Mod(N, 2), 0))))
    ]
    plain = [each for each in terms if not each.has(sympy.Rational(1, 2))]
    for chosen in (terms, plain):
        values = compiled((N, M, K), chosen)
        for sizes in ((2, 3, 5), (7, 6, 2), (64, 64, 2), (2**40, 3, 2**50)):
            given = dict(zip((N, M, K), sizes, strict=True))
            expected = [
                each.xreplace({name: sympy.Integer(size) for name, size in given.items()})
                for each in chosen
            ]
            assert list(values(*sizes)) == [evaluate(each, given) for each in chosen] == expected
    with pytest.raises(Rejected, match="n2 depend"):
        compiled((N, M), terms)


@pytest.mark.parametrize("seed", range(40))
def test_the_sizes_of_the_sample_fulfil_the_premises_of_its_own_run(seed):
    program = programs.draw(100 + seed)
    inputs = SymbolicInputs(program.inputs())
    inputs.layout(programs.arena(program, inputs.fresh()))
    known = inputs.premises(2, 64)
    assert known.samples[0] == {name: inputs.hints[name] for name in known.ranges}
    assert known.whole(known.samples[0]) == inputs.hints


# --- inputs with sizes as symbols -----------------------------------------------------------------


def names(inputs):
    return [tuple(map(str, each)) for each in inputs.shapes]


def test_sizes_of_two_and_more_of_an_input_that_fills_its_storage_are_symbols():
    whole, turned, part = torch.zeros(4, 1, 4), torch.zeros(3, 5).t(), torch.zeros(6)[:4]
    assert names(SymbolicInputs([whole, turned, part])) == [("n0", "1", "n1"), ("n2", "n3"), ("4",)]


def test_inputs_that_share_a_storage_keep_their_layout():
    base = torch.zeros(10)
    given = [base[:4], base[2:].view(2, 4)]
    inputs = SymbolicInputs(given)
    assert names(inputs) == [("4",), ("2", "4")]
    layout = inputs.layout(lambda x, y: y[0])
    assert len({each.storage for each in layout.values()}) == 1
    real = [each.untyped_storage().data_ptr() for each in inputs.at({})]
    assert real[0] == real[1] != base.data_ptr()


def test_real_inputs_of_other_sizes_have_the_layout_and_numbers_of_the_sample():
    inputs = SymbolicInputs([torch.arange(6.0).view(2, 3).t()])
    (made,) = inputs.at({N: 4, M: 5})
    assert (tuple(made.shape), made.stride()) == ((4, 5), (1, 4))
    assert made.t().flatten().tolist() == [each % 6 for each in range(20)]


def test_a_layout_is_true_of_real_runs_at_other_sizes():
    def function(x):
        x.t_()
        return x[1:], x + 1, x.flatten()[::2]

    inputs = SymbolicInputs([torch.zeros(4, 6)])
    layout = inputs.layout(function)
    for sizes in ({N: 2, M: 9}, {N: 7, M: 5}):
        assert disagreements(layout, observe(function, inputs.at(sizes)), sizes) == set()


@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        (lambda x: (x[:1], x.clone()), {"output 0"}),
        (lambda x: (x[1:], x), {"input 0", "output 1"}),
        (lambda x: (x[1:].clone(), x.clone()), {"output 0"}),
        (lambda x: (x[1:],), {"output 1"}),
    ],
)
def test_a_run_that_differs_from_the_layout_is_noticed(function, wrong):
    inputs = SymbolicInputs([torch.zeros(4, 6)])
    layout = inputs.layout(lambda x: (x[1:], x.clone()))
    sizes = {N: 4, M: 6}
    assert disagreements(layout, observe(function, inputs.at(sizes)), sizes) >= wrong


def test_guards_that_the_sample_does_not_fulfil_are_rejected():
    inputs = SymbolicInputs([torch.zeros(4, 6)])
    inputs.layout(lambda x: x.view(2, -1))
    assert inputs.premises(2, 64).samples
    inputs.hints[N] = 5
    with pytest.raises(Rejected, match="its own run"):
        inputs.premises(2, 64)


def test_what_cannot_run_on_symbols_is_rejected():
    with pytest.raises(Rejected, match="with sizes as symbols, the function raises"):
        SymbolicInputs([torch.ones(4)]).layout(lambda x: x[: int(x.sum())])


def test_sizes_that_depend_on_numbers_are_rejected():
    """Torch takes them for other than 1 without a guard, and `y.t().contiguous()` for a copy, which at one row it is not."""

    def function(x):
        y = x[x[:, 0] > 0]
        return y, y.t().contiguous()

    inputs = SymbolicInputs([torch.ones(4, 3)])
    for _ in range(2):
        with pytest.raises(Rejected, match="depends on numbers"):
            inputs.layout(function)


def test_the_samples_are_not_written():
    given = [torch.zeros(4)]
    inputs = SymbolicInputs(given)
    observe(lambda x: x.add_(1), inputs.at({N: 4}))
    assert inputs.at({N: 4})[0].tolist() == given[0].tolist() == clone_inputs(given)[0].tolist()


def test_regions_at_sizes_are_numbers():
    assert rows(HALF, N - HALF, 4).at({N: 5, M: 3}) == Region(24, (3, 3), (12, 4), 4)


def test_z3_sessions_of_other_purposes_stay_apart():
    assert Session.here("sizes").context is not Session.here().context
    assert isinstance(Session.here("sizes").context, z3.Context)
