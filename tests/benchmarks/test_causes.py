"""The benchmark of signatures per cause."""

import torch

from aliasproof.corpus.failing import failing_programs
from benchmarks import causes
from benchmarks.__main__ import BENCHMARKS
from benchmarks.causes import CauseFigures, Told
from benchmarks.tables import plain


def test_it_is_registered() -> None:
    assert BENCHMARKS["causes"] is causes.measure


def test_signatures_of_earlier_campaigns_tell_their_causes() -> None:
    found = causes.measure(failing_programs())
    assert not found.shared, "two causes have one signature"
    if torch.__version__.startswith("2.13"):
        assert "unknown" not in found.by_cause
        assert len(found.by_cause) >= 10
    assert found.per_cause() <= 1.3
    assert found.per_cause(unnamed=True) <= 1.6
    assert sum(each.exact for each in found.told) >= 0.85 * len(found.told)


def test_a_shared_signature_and_a_split_cause_are_seen() -> None:
    told = [
        Told("one", True, "known-one", "aot-values-1"),
        Told("other", True, "known-other", "aot-values-1"),
        Told("other", True, "known-other", "aot-values-2"),
    ]
    found = CauseFigures(told, 0)
    assert found.shared == ["aot-values-1"]
    assert (found.per_cause(), found.per_cause(unnamed=True)) == (1.0, 1.5)
    assert "signatures of more than one cause: aot-values-1" in plain(found.tables()[0])
