"""The smallest peak of a memory problem: small problems by hand, and drawn ones by brute force."""

import random
from itertools import combinations, product

import pytest

from aliasproof.oracles.proofs.memory_problem import (
    Pair,
    Problem,
    Sharing,
    Space,
    Value,
    allocated,
    needed,
)
from aliasproof.oracles.proofs.smallest_peak import smallest_peak

OVER, PART, COPY, CAST = Sharing.OVER, Sharing.PART, Sharing.COPY, Sharing.CAST


def value(nbytes, born, dies, **options):
    """A value that is read as a whole at its last use."""
    read = options.pop("read_until", ((dies, nbytes),))
    return Value("v", nbytes, nbytes, born, dies, read, **options)


# --- by hand --------------------------------------------------------------------------------------


def test_without_pairs_each_value_needs_its_bytes():
    problem = Problem((value(8, 0, 2), value(4, 1, 3), value(16, 2, 3)))
    assert smallest_peak(problem) == allocated(problem) == needed(problem) == 28


def test_a_result_over_its_operand_needs_no_bytes_of_its_own():
    values = value(8, 0, 1), value(8, 1, 2)
    assert smallest_peak(Problem(values)) == 16
    assert smallest_peak(Problem(values, pairs=(Pair(OVER, 1, 0, 8),))) == 8


def test_an_operand_is_overwritten_by_one_result_alone():
    values = value(8, 0, 1), value(8, 1, 2), value(8, 1, 2)
    pairs = Pair(OVER, 1, 0, 8), Pair(OVER, 2, 0, 8)
    assert smallest_peak(Problem(values, pairs=pairs)) == 16


def test_parts_are_computed_in_their_concatenation():
    values = value(8, 0, 2), value(8, 1, 2), value(16, 2, 3)
    pairs = Pair(PART, 0, 2), Pair(PART, 1, 2)
    assert smallest_peak(Problem(values, pairs=pairs)) == 16
    assert smallest_peak(Problem(values, pairs=pairs[:1])) == 24  # the other part is beside it


def test_a_part_that_is_made_early_is_not_worth_its_concatenation():
    pairs = (Pair(PART, 0, 2),)
    early = value(1, 0, 3), value(50, 1, 2), value(64, 3, 4)
    assert smallest_peak(Problem(early, pairs=pairs)) == 64  # what is in between finds room there
    crowded = value(1, 0, 3), value(65, 1, 2), value(64, 3, 4)
    assert smallest_peak(Problem(crowded, pairs=pairs)) == 66


def test_a_returned_value_gets_no_larger_storage_and_no_company():
    small = value(4, 1, 9, read_until=((9, 4),), returned=True)
    over = Pair(OVER, 1, 0, 4)
    assert smallest_peak(Problem((value(8, 0, 1), small), pairs=(over,))) == 12
    returned = value(8, 0, 9, returned=True), value(8, 1, 9, returned=True)
    assert smallest_peak(Problem(returned, pairs=(Pair(COPY, 1, 0, 8),))) == 16
    kept = value(8, 0, 9, returned=True), value(8, 1, 9)
    assert smallest_peak(Problem(kept, pairs=(Pair(COPY, 1, 0, 8),))) == 8


def test_an_input_that_is_overwritten_later_holds_results_before():
    space = Space("x", ((0, 3, 8),))
    assert smallest_peak(Problem((value(8, 1, 2),), (space,))) == 0
    assert smallest_peak(Problem((value(8, 1, 4),), (space,))) == 8  # it is needed after the write
    copied = Space("x", ((0, 3, 8),), copied=((0, 3),))
    assert smallest_peak(Problem((value(8, 1, 4),), (copied,))) == 0  # these are the bytes written
    assert smallest_peak(Problem((value(8, 1, 2, returned=True),), (space,))) == 8


def test_an_operation_gives_the_dtype_of_its_cast():
    values = value(2, 0, 1), value(8, 1, 2)
    assert smallest_peak(Problem(values, pairs=(Pair(CAST, 0, 1),))) == 8


def test_bytes_that_nobody_reads_hold_others_while_the_storage_lives():
    half = value(16, 0, 9, read_until=((1, 8), (9, 8)))
    assert smallest_peak(Problem((half, value(8, 2, 3)))) == 16
    fixed = value(8, 2, 3, movable=False)
    assert smallest_peak(Problem((half, fixed))) == 24


# --- by brute force -------------------------------------------------------------------------------


def brute_force(problem):
    """The smallest peak over all ways to put values together and to use pairs."""
    best = allocated(problem)
    count, pairs = len(problem.values), problem.pairs
    for homes in product(range(count), repeat=count):
        if any(home > at or homes[home] != home for at, home in enumerate(homes)):
            continue
        for number in range(len(pairs) + 1):
            for used in combinations(pairs, number):
                peak = peak_of(problem, homes, used)
                best = best if peak is None else min(best, peak)
    return best


def peak_of(problem, homes, used):
    """The peak of one plan; None if it is none."""
    values = problem.values
    kinds = [(pair.sharing, pair.value) for pair in used]
    if len(set(kinds)) < len(kinds) or overwrites_what_is_needed(problem, used):
        return None
    if any(homes[pair.value] != homes[pair.other] for pair in used):
        return None
    sizes = {
        home: max(content(problem, homes, used, home, time) for time in problem.times)
        for home in set(homes)
    }
    for at, each in enumerate(values):
        together = [other for other, home in zip(values, homes, strict=True) if home == homes[at]]
        if each.returned and (
            sizes[homes[at]] > each.nbytes or sum(other.returned for other in together) > 1
        ):
            return None
    last = dict.fromkeys(sizes, 0)
    for each, home in zip(values, homes, strict=True):
        last[home] = max(last[home], each.dies)
    return max(
        sum(size for home, size in sizes.items() if values[home].born <= time <= last[home])
        for time in problem.times
    )


def content(problem, homes, used, home, time):
    """The bytes that the values in one storage need at a time."""
    hidden = {p.value for p in used if p.sharing is PART and problem.hides(p, time)}
    needs = sum(
        each.live(time)
        for at, each in enumerate(problem.values)
        if homes[at] == home and each.born <= time <= each.dies and at not in hidden
    )
    return needs - sum(
        pair.nbytes
        for pair in used
        if pair.sharing is OVER
        and homes[pair.value] == home
        and problem.values[pair.value].born == time
    )


def overwrites_what_is_needed(problem, used):
    """True if two results are over one operand, or one is over bytes that a part still needs."""
    overs = [pair for pair in used if pair.sharing is OVER]
    if len({over.other for over in overs}) < len(overs):
        return True
    for over, part in product(overs, [pair for pair in used if pair.sharing is PART]):
        born = problem.values[over.value].born
        if over.other == part.value and problem.hidden_until(part) > born:
            return True
        if over.other == part.other and problem.values[part.value].dies > born:
            return True
    return False


def drawn_problem(seed):
    """Four values, some of which die in the call of a later one, or are parts of it."""
    draw = random.Random(seed)
    values, pairs = [], []
    for born in range(4):
        nbytes, dies = draw.randint(1, 9), draw.randint(born, 4)
        first = draw.randint(0, nbytes)
        reads = ((draw.randint(born, dies), first), (dies, nbytes - first))
        values.append(value(nbytes, born, dies, read_until=reads, returned=draw.random() < 0.2))
        for at, other in enumerate(values[:-1]):
            if other.dies == born and draw.random() < 0.7:
                dying = other.dying(born)
                pairs.append(Pair(OVER, born, at, min(dying, nbytes)))
            elif other.dies >= born and other.nbytes < nbytes and draw.random() < 0.7:
                pairs.append(Pair(PART, at, born))
    return Problem(tuple(values), pairs=tuple(pairs))


@pytest.mark.parametrize("seed", range(40))
def test_the_solver_agrees_with_brute_force(seed):
    problem = drawn_problem(seed)
    smallest = smallest_peak(problem)
    assert smallest is not None
    assert smallest == brute_force(problem), problem
    assert needed(problem) <= smallest <= allocated(problem)
