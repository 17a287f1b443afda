"""The benchmark of what looking inside costs and what targets miss."""

from benchmarks import inside
from benchmarks.__main__ import BENCHMARKS
from benchmarks.tables import plain


def test_it_is_registered_and_printed():
    assert BENCHMARKS["inside"] is inside.measure
    found = inside.measure(shards=1, programs=5, targets=("fx-reinplace", "reference"))
    assert found.terms > 0
    assert [each.target for each in found.missed] == ["fx-reinplace", "reference"]
    text = "\n".join(map(plain, found.tables()))
    assert "ms of 10" in text
    assert "reference" in text
