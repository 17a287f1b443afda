"""The benchmark of reductions: few lines, few candidates, and the bug is still there."""

from __future__ import annotations

import json

import pytest

from aliasproof.programs.errors import UserError
from aliasproof.programs.python_program import PythonProgram
from benchmarks.python_reductions import FILE, measure
from benchmarks.tables import plain


def test_there_are_thirty_programs_of_the_language() -> None:
    subjects = json.loads(FILE.read_text())
    assert len({it["number"] for it in subjects}) == 30
    assert {it["target"] for it in subjects} == {"dynamo", "aot-eager"}
    for it in subjects:
        PythonProgram(it["source"])


@pytest.mark.filterwarnings("ignore")
def test_a_finding_is_reduced_to_what_it_needs() -> None:
    figures = measure(["712"])  # `max(x, x)` is a new tensor under Dynamo
    (reduction,) = figures.reductions
    assert (reduction.oracle, reduction.target) == ("values", "dynamo")
    assert reduction.own <= 3 < reduction.drawn
    assert reduction.compiled < reduction.candidates <= 100
    assert "median" in plain(*figures.tables())


def test_an_unknown_number_is_refused() -> None:
    with pytest.raises(UserError, match="no finding 1"):
        measure(["1"])
