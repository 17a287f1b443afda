"""The lemmas about our own shortcuts hold, and the shortcuts are the ones that they state."""

import pytest

from aliasproof.ir import regions
from aliasproof.ir.regions import Region
from tests.lemmas.lemma import Scope, State, Statement, counterexample
from tests.lemmas.region_lemmas import REGION_LEMMAS

CASES = {f"{name}: {case}": it for name, of in REGION_LEMMAS.items() for case, it in of.items()}


@pytest.mark.parametrize("state", CASES.values(), ids=CASES)
def test_a_lemma_has_no_counterexample(state: State) -> None:
    assert counterexample(state) is None


def test_a_wrong_lemma_has_a_counterexample_and_an_empty_one_is_no_proof() -> None:
    def wrong(scope: Scope) -> Statement:
        return Statement([scope("size") >= 1], [scope("size") * scope("stride") < scope("stride")])

    found = counterexample(wrong)
    assert found is not None
    assert found["size"] > 1
    assert found["stride"] < 0
    with pytest.raises(AssertionError, match="cannot hold"):
        counterexample(lambda scope: Statement([scope("x") > scope("x")], []))


def test_the_window_of_the_lemma_is_that_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """`overlap` hands `_reaches` the window of lemma 'window'."""
    windows: list[tuple[int, int]] = []

    def reaches(terms: object, low: int, high: int) -> bool:
        windows.append((low, high))
        return False

    monkeypatch.setattr(regions, "_reaches", reaches)
    a, b = Region(0, (5,), (10,), 4), Region(5, (5,), (10,), 2)
    regions.overlap(a, b)
    low_a, end_b = a.interval[0], b.interval[1]
    ((low, high),) = windows
    for total in range(low - 3, high + 4):
        shared = low_a + total < end_b and end_b - 2 < low_a + total + 4
        assert shared == (low <= total <= high)
