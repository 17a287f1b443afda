"""z3, `overlap` and sets of bytes agree on the same pairs of regions.

Pairs come in chunks, each with its own seed, so that they run on all cores.
"""

import functools
import os
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd

import pytest
import z3

from aliasproof.ir.errors import InternalError
from aliasproof.ir.regions import Region, overlap
from aliasproof.oracles import smt
from aliasproof.oracles.smt import Disjoint, Unknown, Witness, decide
from tests.ir.random_regions import ITEMSIZES, bytes_of, random_region

COUNT = 10_000  # of pairs in a chunk
CHUNKS = 4


@dataclass(frozen=True, slots=True)
class KnownPair:
    a: Region
    b: Region
    shared: frozenset[int]

    @property
    def is_hard(self) -> bool:
        """Disjoint, although the intervals overlap."""
        (low_a, end_a), (low_b, end_b) = self.a.interval, self.b.interval
        return not self.shared and max(low_a, low_b) < min(end_a, end_b)


def every_byte(region: Region) -> set[int]:
    return set(bytes_of(region))


def anywhere(draw: random.Random, a: Region) -> Region:
    low, end = a.interval
    return replace(random_region(draw), start=draw.randint(low - 40, end + 40))


def touching(draw: random.Random, a: Region) -> Region:
    b = random_region(draw)
    after, before = a.interval[1] - b.interval[0], a.interval[0] - b.interval[1]
    return replace(b, start=b.start + draw.choice([after, before]) + draw.choice([-1, 0, 0, 1]))


def interleaved(draw: random.Random, a: Region) -> Region:
    """The same strides from another byte, elements of equal or smaller size: the next column."""
    shift = draw.randint(0, max([48, *a.strides]))
    return replace(a, start=a.start + shift, itemsize=draw.choice([a.itemsize, 1, 2]))


def in_a_gap(draw: random.Random, a: Region) -> Region:
    """Some bytes between the first and the last of the other region."""
    sizes = draw.choice([(), (1,), (2,), (1, 2), (2, 1)])
    strides = tuple(draw.randint(1, 48) for _ in sizes)
    return Region(draw.randint(*a.interval), sizes, strides, draw.choice([1, 1, 2, 4]))


def random_pair(draw: random.Random) -> KnownPair:
    a = random_region(draw)
    partner = draw.choice([anywhere, touching, *[interleaved] * 2, *[in_a_gap] * 4])
    pair = [a, partner(draw, a)]
    draw.shuffle(pair)
    return KnownPair(pair[0], pair[1], frozenset(every_byte(pair[0]) & every_byte(pair[1])))


@functools.cache
def chunk_of_pairs(seed: int) -> list[KnownPair]:
    draw = random.Random(seed)
    return [random_pair(draw) for _ in range(COUNT)]


@pytest.fixture
def pairs() -> list[KnownPair]:
    return chunk_of_pairs(0)


def wrong(decider: Callable[[Region, Region], bool], pairs: Sequence[KnownPair]) -> list[KnownPair]:
    return [pair for pair in pairs if decider(pair.a, pair.b) != bool(pair.shared)]


def by_z3(a: Region, b: Region) -> bool:
    answer = decide(a, b)
    assert not isinstance(answer, Unknown)
    return isinstance(answer, Witness)


def test_the_pairs_are_a_healthy_mix(pairs: list[KnownPair]) -> None:
    overlapping = sum(bool(pair.shared) for pair in pairs)
    assert overlapping > 0.2 * COUNT
    assert COUNT - overlapping > 0.2 * COUNT
    assert sum(pair.is_hard for pair in pairs) > 0.2 * COUNT
    assert {len(pair.a.sizes) for pair in pairs} == {0, 1, 2, 3, 4, 5}
    assert {pair.a.itemsize for pair in pairs} == set(ITEMSIZES)
    assert sum(pair.a.itemsize != pair.b.itemsize for pair in pairs) > 0.2 * COUNT
    assert sum(0 in pair.a.strides for pair in pairs) > 0.05 * COUNT
    assert sum(any(stride < 0 for stride in pair.a.strides) for pair in pairs) > 0.05 * COUNT
    assert sum(pair.a.start % pair.a.itemsize != 0 for pair in pairs) > 0.2 * COUNT


@pytest.mark.parametrize("seed", range(CHUNKS))
def test_overlap_agrees_with_sets_of_bytes(seed: int) -> None:
    pairs = chunk_of_pairs(seed)
    assert wrong(overlap, pairs) == []
    assert wrong(overlap, [KnownPair(pair.b, pair.a, pair.shared) for pair in pairs]) == []


@pytest.mark.parametrize("count", [500, COUNT])
def test_z3_agrees_with_sets_of_bytes(count: int, pairs: list[KnownPair]) -> None:
    assert wrong(by_z3, pairs[:count]) == []


# Wrong deciders, as a careless author might write them. -------------------------------------------


def by_interval(a: Region, b: Region) -> bool:
    return max(a.interval[0], b.interval[0]) < min(a.interval[1], b.interval[1])


def by_divisor(a: Region, b: Region) -> bool:
    """Right only for regions of infinite length."""
    divisor = gcd(*a.strides, *b.strides) or 1
    shift = (b.start - a.start) % divisor
    return by_interval(a, b) and (shift < a.itemsize or divisor - shift < b.itemsize)


PLANTED: dict[str, Callable[[Region, Region], bool]] = {
    "interval": by_interval,
    "first bytes": lambda a, b: (
        not every_byte(replace(a, itemsize=1)).isdisjoint(every_byte(replace(b, itemsize=1)))
    ),
    "touching elements": lambda a, b: overlap(replace(a, itemsize=a.itemsize + 1), b),
    "divisor": by_divisor,
    "without empty": lambda a, b: overlap(replace(a, sizes=tuple(n or 1 for n in a.sizes)), b),
    "without last dim": lambda a, b: overlap(
        replace(a, sizes=a.sizes[:-1], strides=a.strides[:-1]), b
    ),
    "item size of the first for both": lambda a, b: overlap(a, replace(b, itemsize=a.itemsize)),
    "off by one": lambda a, b: overlap(
        a, replace(b, sizes=tuple(max(n - 1, min(n, 1)) for n in b.sizes))
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_pairs_show_a_wrong_decider(name: str, pairs: list[KnownPair]) -> None:
    planted = PLANTED[name]
    assert len(wrong(planted, pairs)) > 0.01 * COUNT
    assert wrong(planted, pairs[:500]), "the quick test would miss it"


# Witnesses ----------------------------------------------------------------------------------------

ROWS = Region(1 << 46, (3, 4), (16, 4), 4)


def test_a_witness_names_the_elements_and_the_byte() -> None:
    last_row = Region(ROWS.start + 47, (), (), 1)
    assert decide(ROWS, last_row) == Witness((2, 3), (), ROWS.start + 47)
    assert decide(last_row, ROWS) == Witness((), (2, 3), ROWS.start + 47)
    assert decide(ROWS, replace(last_row, start=ROWS.start + 48)) == Disjoint()


@pytest.mark.parametrize(
    "witness",
    [
        Witness((3, 0), (0, 0), ROWS.start + 48),
        Witness((0, -1), (0, 0), ROWS.start),
        Witness((0, 1), (0, 0), ROWS.start + 4),
        Witness((0, 0), (0, 0), ROWS.start + 4),
        Witness((0, 0), (0, 0), ROWS.start - 1),
        Witness((0,), (0, 0), ROWS.start),
        Witness((0, 4), (1, 0), ROWS.start + 16),  # past the end of a dimension
    ],
)
def test_check_refuses_a_wrong_witness(witness: Witness) -> None:
    assert Witness((0, 0), (0, 0), ROWS.start + 3).check(ROWS, ROWS)
    assert not witness.check(ROWS, ROWS)


def test_a_wrong_answer_of_z3_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smt.Session, "ask", lambda *_: (0, 0, 0, 1))
    with pytest.raises(InternalError, match="wrong witness"):
        decide(ROWS, ROWS)


def test_giving_up_is_unknown() -> None:
    """A subset sum over 40 large numbers; all are even, so parity does not decide it."""
    draw = random.Random(5)
    sums = Region(0, (2,) * 40, tuple(2 * draw.randrange(2**30, 2**31) for _ in range(40)), 1)
    one = Region(sum(sums.strides) // 4 * 2, (), (), 1)
    answer = decide(sums, one, timeout_ms=50)
    assert isinstance(answer, Unknown)
    assert "50 ms" in answer.reason
    # The limit was only for the previous query.
    assert isinstance(decide(one, one), Witness)


def test_an_answer_does_not_depend_on_the_questions_before(pairs: list[KnownPair]) -> None:
    forwards = [decide(pair.a, pair.b) for pair in pairs[:300]]
    backwards = [decide(pair.a, pair.b) for pair in reversed(pairs[:300])]
    assert forwards == backwards[::-1]


def test_a_forked_child_gives_the_same_answers(pairs: list[KnownPair]) -> None:
    expected = [decide(pair.a, pair.b) for pair in pairs[:20]]
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork in a process with threads, which is what this test is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        same = False
        try:
            same = [decide(pair.a, pair.b) for pair in pairs[:20]] == expected
        finally:
            os._exit(not same)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_each_purpose_has_its_own_session_in_its_own_context():
    regions, other = smt.Session.here(), smt.Session.here("another")
    assert regions is smt.Session.here("regions")
    assert regions is not other
    assert len({id(regions.context), id(other.context), id(z3.main_ctx())}) == 3


def test_a_name_in_no_condition_has_a_value_too():
    session = smt.Session.here()
    first, second = session.indices_a[:2]
    answer = session.ask([first == 3], [first, second], 2000)
    assert isinstance(answer, tuple)
    assert answer[0] == 3
