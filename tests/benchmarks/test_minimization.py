"""The benchmark of long programs: what is spliced fails for its cause, and both reducers reduce."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from aliasproof.corpus.bug_files import known_bugs
from aliasproof.ir.program import Program
from benchmarks import minimization
from benchmarks.minimization import (
    BothShortened,
    Minimizations,
    Shortened,
    minified,
    shortened,
    splice,
)

known_bug = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="a bug of torch 2.13"
)


@pytest.fixture
def host(program: Callable[..., Program]) -> Program:
    """Forty sums, each of the one before."""
    sums = [f"v{index + 1} = aten.add.Tensor(v{index}, x0)" for index in range(40)]
    return program("\n".join(["v0 = aten.neg.default(x0)", *sums, "return (v40,)"]), (4,))


@known_bug
def test_a_spliced_bug_is_the_only_cause_and_both_reduce_it(host, monkeypatch) -> None:
    monkeypatch.setattr(minimization, "MINIFIER_SECONDS", 20)
    bug = known_bugs()["expand-inverse"]
    subject = minimization.with_bug("spliced", host, bug, seed=0)
    assert subject is not None
    assert len(subject.program) > len(host) + 2
    ours, torchs = shortened(subject), minified(subject)
    assert (ours.instructions, ours.cause) == (2, True)
    assert ours.compiled <= ours.candidates
    assert torchs.why or torchs.instructions < len(subject.program)


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
        BothShortened("a", "spliced", 200, Shortened(2, 50, 40, 3.0, True), Shortened(why="no")),
        BothShortened("b", "model", 210, Shortened(4, 60, 60, 5.0, False), Shortened(9, 8, 8, 1.0)),
        BothShortened("c", "model", 2000, Shortened(3, 9, 9, 1.0, True), Shortened(why="no")),
    ]
    (table,) = Minimizations(rows).tables()
    assert all(len(row) == len(table.columns) for row in table.rows)
    short, long = table.rows[-2:]
    assert short[1:7] == ("2 programs", "3", "55", "50", "4", "1 of 2")
    assert short[7:] == ("9", "8", "1", "0 of 1")
    assert long[7:] == ("-", "-", "-", "-")
    assert len(table.notes) == 2
