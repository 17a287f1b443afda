"""The benchmark of what uninterpreted execution costs and what targets miss."""

from benchmarks import stage_oracles
from benchmarks.__main__ import BENCHMARKS
from benchmarks.tables import plain


def test_it_is_registered_and_printed():
    assert BENCHMARKS["stage_oracles"] is stage_oracles.measure
    found = stage_oracles.measure(shards=1, programs=5, targets=("fx-reinplace", "reference"))
    assert found.uninterpreted > 0
    assert [counts.target for counts in found.missed] == ["fx-reinplace", "reference"]
    text = "\n".join(map(plain, found.tables()))
    assert "ms of 10" in text
    assert "reference" in text
