"""The benchmark of proofs for all sizes runs at a tiny size and refutes its wrong targets."""

import json
from dataclasses import asdict

import pytest

from benchmarks import proof_rates
from benchmarks.tables import plain


@pytest.fixture(scope="module")
def measured():
    return proof_rates.measure(programs=4, builds=("reference", "no clones"))


def test_every_pair_has_one_answer(measured):
    for counts in measured.counts:
        assert counts.pairs == sum(counts.hows.values()) > 0
    assert measured.counts[0].pairs == measured.counts[1].pairs


def test_the_right_target_is_never_refuted_and_the_wrong_one_is(measured):
    right, wrong = measured.counts
    assert (right.answers["refuted"], right.answers["proved"]) == (0, right.pairs)
    assert wrong.answers["refuted"] > 0


def test_the_figures_can_be_printed_and_written(measured):
    (table,) = measured.tables()
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert plain(table).startswith("proof_rates")
    json.dumps(asdict(measured))


def test_programs_are_those_of_their_seed():
    assert proof_rates.draw(7) == proof_rates.draw(7) != proof_rates.draw(8)
