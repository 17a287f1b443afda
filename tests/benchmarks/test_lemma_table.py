"""The lemma benchmark proves what it is given and follows up each refutation."""

import json
from dataclasses import asdict

import pytest

from aliasproof.lemmas.region_lemmas import REGION_LEMMAS
from aliasproof.lemmas.torch_lemmas import TORCH_LEMMAS
from benchmarks import lemma_table
from benchmarks.__main__ import BENCHMARKS
from benchmarks.tables import plain


@pytest.fixture(scope="module")
def proved() -> lemma_table.LemmaFigures:
    chosen = ("rows: all before", "rows: between", "doubling")
    return lemma_table.measure(
        [lemma for lemma in TORCH_LEMMAS + REGION_LEMMAS if lemma.name in chosen]
    )


def test_each_lemma_has_a_row(proved):
    assert {row.name: row.verdict for row in proved.rows} == {
        "rows: all before": "vacuous",
        "rows: between": "refuted",
        "doubling": "proved",
    }


def test_a_refutation_is_followed_into_the_targets(proved):
    (found,) = proved.refutations
    assert found.taken
    assert found.shared
    assert found.violated == ("aot", "aot-epilogue")
    assert "sizes (2, 1), strides (2, 1)" in found.views


def test_it_is_registered_printed_and_written(proved):
    assert BENCHMARKS["lemma_table"] is lemma_table.measure
    text = "\n".join(map(plain, proved.tables()))
    assert "1 proved, 1 refuted, 0 unknown, 1 vacuous" in text
    assert "aot, aot-epilogue" in text
    json.dumps(asdict(proved))
