"""Each lemma has the verdict that is written here."""

import pytest

from aliasproof.ir import regions
from aliasproof.ir.regions import Region
from tests.lemmas.lemma import Refuted, prove
from tests.lemmas.region_lemmas import REGION_LEMMAS
from tests.lemmas.torch_lemmas import TORCH_LEMMAS

LEMMAS = TORCH_LEMMAS | REGION_LEMMAS
REFUTED = {
    "contiguous, mixed",  # counts elements where the item sizes differ
    "last before first, mixed",  # the same
    "rows: between",  # does not ask whether row 0 of y begins inside a row of x
    "internal: not yes",  # takes "too hard to say" for no
}
VACUOUS = {"rows: all before"}  # dead: 'last before first' has been asked


def test_each_lemma_has_its_own_name() -> None:
    assert len(LEMMAS) == len(TORCH_LEMMAS) + len(REGION_LEMMAS)
    assert LEMMAS.keys() >= REFUTED | VACUOUS


@pytest.mark.parametrize("name", LEMMAS)
def test_verdict(name: str) -> None:
    answer = prove(LEMMAS[name])
    assert isinstance(answer, Refuted) is (name in REFUTED)
    assert (answer == "vacuous") is (name in VACUOUS)


# --- our own shortcuts are the ones that the lemmas state -----------------------------------------


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
