"""A reduction that asks ahead, in any order of the answers, gives the sequential result."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from aliasproof.ir.program import Program
from aliasproof.reduction.program_steps import PROGRAM
from aliasproof.reduction.reducer import Reducer, ahead


def wanted(program: Program) -> bool:
    names = [call.op for call in program.instructions]
    return "aten.zero_.default" in names and "aten.add.Tensor" in names


def asked(job: Reducer) -> dict[str, tuple[int, int]]:
    return {name: (spent.candidates, spent.accepted) for name, spent in job.passes.items()}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_result_is_that_of_a_sequential_reduction(noisy, count: int) -> None:
    start = noisy("    y = aten.neg.default(x2)\n    aten.zero_.default(y)")
    sequential = Reducer(PROGRAM, start, wanted)
    sequential.run()
    delays = random.Random(count)

    def late(program: Program) -> bool:
        time.sleep(delays.random() / 500)
        return wanted(program)

    with ThreadPoolExecutor(count) as executor:
        job = Reducer(PROGRAM, start, late, ahead(executor, count))
        job.run()
    assert job.current == sequential.current
    assert asked(job) == asked(sequential)


def test_an_error_of_the_predicate_ends_it(noisy) -> None:
    def broken(program: Program) -> bool:
        raise KeyError("planted")

    with ThreadPoolExecutor(2) as executor, pytest.raises(KeyError, match="planted"):
        Reducer(PROGRAM, noisy("    y = aten.neg.default(x2)"), broken, ahead(executor, 2)).run()
