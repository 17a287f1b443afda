"""The limitations benchmark reduces what it meets, and `check` flags all that differs."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from benchmarks import limitations
from benchmarks.__main__ import BENCHMARKS
from benchmarks.tables import plain


@pytest.fixture(scope="module")
def figures() -> limitations.LimitationFigures:
    return limitations.measure(0.0, ("functionalize", "aot"), least=40)


def test_every_program_that_differs_is_flagged(figures) -> None:
    assert sum(share.differing for share in figures.shares) > 0
    assert all(share.flagged == share.differing for share in figures.shares)


def test_each_limitation_has_a_small_program(figures) -> None:
    assert figures.rows
    assert len({(row.name, row.reason) for row in figures.rows}) == len(figures.rows)
    assert min(row.program.count("\n") for row in figures.rows) <= 4


def test_it_is_registered_printed_and_written(figures) -> None:
    assert BENCHMARKS["limitations"] is limitations.measure
    text = "\n".join(map(plain, figures.tables()))
    assert all(row.name in text for row in figures.rows)
    page = limitations.page(figures)
    assert all(f"## {row.name}\n" in page for row in figures.rows)
    json.dumps(asdict(figures))
