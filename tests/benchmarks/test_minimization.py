"""The benchmark of long programs: what is spliced fails for its cause, and is reduced."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from aliasproof.corpus.bug_files import known_bugs
from aliasproof.ir.program import Program
from benchmarks import minimization
from benchmarks.minimization import Minimizations, Minimized, minimized, splice

known_bug = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="a bug of torch 2.13"
)


@pytest.fixture
def host(program: Callable[..., Program]) -> Program:
    """Forty sums, each of the one before."""
    sums = [f"v{index + 1} = aten.add.Tensor(v{index}, x0)" for index in range(40)]
    return program("\n".join(["v0 = aten.neg.default(x0)", *sums, "return (v40,)"]), (4,))


@known_bug
def test_a_spliced_bug_is_the_only_cause_and_is_reduced(host: Program) -> None:
    bug = known_bugs()["expand-inverse"]
    subject = minimization.with_bug("spliced", host, bug, seed=0)
    assert subject is not None
    assert len(subject.program) > len(host) + 2
    row = minimized(subject)
    assert (row.before, row.after, row.cause) == (len(subject.program), 2, True)
    assert 0 < row.compiled <= row.candidates


def test_a_bug_is_spread_over_its_host(host: Program) -> None:
    bug = known_bugs()["expand-inverse"].program
    whole = splice(host, bug, random.Random(0), computes=False)
    assert whole is not None
    ops = [call.op for call in whole.instructions]
    at = ops.index("aten.expand.default"), ops.index("aten.zero_.default")
    assert 20 <= at[0] < at[1] <= 25
    assert splice(bug, bug, random.Random(0), computes=False) is None


def test_the_table_has_medians_of_both_lengths() -> None:
    rows = [
        Minimized("a", "spliced", 200, 2, 50, 40, 3.0, True),
        Minimized("b", "model", 210, 4, 60, 60, 5.0, False),
        Minimized("c", "model", 2000, 3, 9, 9, 1.0, True),
    ]
    (table,) = Minimizations(rows).tables()
    assert all(len(row) == len(table.columns) for row in table.rows)
    short, long = table.rows[-2:]
    assert short[1:] == ("2 programs", "3", "55", "50", "4", "1 of 2")
    assert long[1:] == ("1 programs", "3", "9", "9", "1", "1 of 1")
