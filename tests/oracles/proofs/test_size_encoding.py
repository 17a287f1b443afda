"""Expressions of sizes: their values, and the facts that z3 gets about them."""

import random
from typing import Any

import pytest
import sympy  # type: ignore[import-untyped]
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

from aliasproof.ir.errors import Rejected
from aliasproof.oracles.proofs.size_encoding import SizeEncoding, Untranslatable
from aliasproof.oracles.proofs.size_expressions import evaluate, evaluator
from aliasproof.oracles.smt import Disjoint, Session

N, M, K = (sympy.Symbol(name, integer=True, positive=True) for name in ("n0", "n1", "n2"))


# --- values ---------------------------------------------------------------------------------------


def test_compiled_expressions_have_the_values_of_the_expressions():
    base, other = 4 * N + M - 4, K + 2 * M - 1
    expressions: list[Any] = [
        kind(base, other) for kind in (FloorDiv, CleanDiv, Mod, PythonMod, Max, Min)
    ]
    expressions += [3 - 2 * quotient for quotient in expressions] + [
        FloorDiv(quotient, Mod(quotient * N + 5, other) + 1) for quotient in expressions
    ]
    expressions += [
        ModularIndexing(base, other, N),
        PowByNatural(base, sympy.Integer(3)),
        N**2 - M * K,
        sympy.Rational(1, 2) * N * (N + 1),
    ]
    expressions += [
        kind(side, base)
        for kind in (sympy.Eq, sympy.Ne, sympy.Lt, sympy.Ge)
        for side in (N * M, Mod(base, other))
    ]
    expressions += [
        sympy.And(sympy.Gt(N, 3), sympy.Or(sympy.Le(M, K), sympy.Not(sympy.Eq(Mod(N, 2), 0))))
    ]
    plain = [expression for expression in expressions if not expression.has(sympy.Rational(1, 2))]
    for chosen in (expressions, plain):
        values = evaluator((N, M, K), chosen)
        for sizes in ((2, 3, 5), (7, 6, 2), (64, 64, 2), (2**40, 3, 2**50)):
            given = dict(zip((N, M, K), sizes, strict=True))
            expected = [
                expression.xreplace({symbol: sympy.Integer(size) for symbol, size in given.items()})
                for expression in chosen
            ]
            evaluated = [evaluate(expression, given) for expression in chosen]
            assert list(values(*sizes)) == evaluated == expected
    with pytest.raises(Rejected, match="data-dependent sizes: n2"):
        evaluator((N, M), expressions)


# --- what z3 gets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_what_z3_is_told_of_products_is_true(seed):
    """With exact products, no sizes contradict the facts that z3 gets."""
    draw = random.Random(seed)
    encoding = SizeEncoding(
        Session.here("test").context, {str(symbol): (2, 64) for symbol in (N, M, K)}
    )
    parts = [
        N,
        M,
        K,
        N * M,
        M * K,
        FloorDiv(N * M, 3),
        FloorDiv(N, 2) * M,
        Min(N, M) * K,
        Mod(N, 5) * K,
        sympy.Integer(7),
    ]
    sums = [sum(draw.randint(-3, 3) * part for part in draw.sample(parts, 4)) for _ in range(3)]
    unknowns = [encoding.unknown(f"value{index}") for index in range(len(sums))]
    conditions = [
        encoding.linear(encoding.polynomial(expression)) == unknown
        for expression, unknown in zip(sums, unknowns, strict=True)
    ]
    for _ in range(5):
        sizes = {symbol: draw.randint(2, 64) for symbol in (N, M, K)}
        given = [encoding.unknown(str(symbol)) == value for symbol, value in sizes.items()]
        told = [*encoding.facts, *encoding.equations, *conditions, *given]
        answer = Session.here("test").ask(told, unknowns, 20_000)
        assert answer == tuple(evaluate(expression, sizes) for expression in sums)


def test_a_condition_means_to_z3_what_it_means_in_python():
    condition = sympy.Or(sympy.And(sympy.Ge(N, 9), sympy.Ne(M, 4)), sympy.Lt(Mod(M, 3), 1))
    for n in (8, 9):
        for m in range(2, 8):
            encoding = SizeEncoding(Session.here("test").context, {"n0": (n, n), "n1": (m, m)})
            asked = encoding.condition(condition)
            told = [*encoding.facts, *encoding.equations, asked]
            answer = Session.here("test").ask(told, [], 10_000)
            assert (not isinstance(answer, Disjoint)) == evaluate(condition, {N: n, M: m})
    with pytest.raises(Untranslatable, match="Abs"):
        SizeEncoding(Session.here("test").context, {}).polynomial(sympy.Abs(N - 3))
