"""Assumptions: the sizes that satisfy them, and facts about symbols from equations and ranges."""

import time

import pytest
import sympy  # type: ignore[import-untyped]

from aliasproof.oracles.proofs.assumptions import Assumptions
from aliasproof.oracles.proofs.symbolic_inputs import SymbolicInputs
from tests.oracles.proofs import sized_programs as programs

N, M = (sympy.Symbol(name, integer=True, positive=True) for name in ("n0", "n1"))


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
