"""The smallest peak of a memory problem: small problems by hand, and drawn ones by brute force."""

import random
from itertools import combinations, product

import pytest

from aliasproof.oracles.proofs.memory_problem import (
    Content,
    Pair,
    Problem,
    Sharing,
    Space,
    Value,
    allocated,
    needed,
)
from aliasproof.oracles.proofs.smallest_peak import smallest_peak

OVER, CAST = Sharing.OVER, Sharing.CAST


def value(nbytes, born, dies, **options):
    """A value that is read as a whole at its last use."""
    read = options.pop("read_until", ((dies, nbytes),))
    return Value("v", nbytes, nbytes, born, dies, read, **options)


def contents(values, *same):
    """The bytes of values. In each of `same`, the first value has the bytes of the others, too."""
    found = []
    left = {at: each.read_until for at, each in enumerate(values)}
    for whole, *parts in same:
        ((until, count),) = left[whole]
        for part in parts:
            ((own, nbytes),) = left.pop(part)
            found.append(Content(((part, own), (whole, until)), nbytes))
            count -= nbytes
        left[whole] = ((until, count),)
    found += [
        Content(((at, until),), count)
        for at, reads in left.items()
        for until, count in reads
        if count
    ]
    return tuple(found)


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
    assert smallest_peak(Problem(values, contents=contents(values, (2, 0, 1)))) == 16
    # The other part is beside it.
    assert smallest_peak(Problem(values, contents=contents(values, (2, 0)))) == 24


def test_a_part_that_is_made_early_is_not_worth_its_concatenation():
    early = value(1, 0, 3), value(50, 1, 2), value(64, 3, 4)
    # What is in between finds room there.
    assert smallest_peak(Problem(early, contents=contents(early, (2, 0)))) == 64
    crowded = value(1, 0, 3), value(65, 1, 2), value(64, 3, 4)
    assert smallest_peak(Problem(crowded, contents=contents(crowded, (2, 0)))) == 66


def test_a_returned_value_gets_no_larger_storage_and_no_company():
    small = value(4, 1, 9, read_until=((9, 4),), returned=True)
    over = Pair(OVER, 1, 0, 4)
    assert smallest_peak(Problem((value(8, 0, 1), small), pairs=(over,))) == 12
    returned = value(8, 0, 9, returned=True), value(8, 1, 9, returned=True)
    assert smallest_peak(Problem(returned, contents=contents(returned, (0, 1)))) == 16
    kept = value(8, 0, 9, returned=True), value(8, 1, 9)
    assert smallest_peak(Problem(kept, contents=contents(kept, (0, 1)))) == 8


def test_a_part_that_lives_on_needs_its_bytes_though_its_concatenation_does_not():
    values = value(8, 0, 5), value(8, 1, 2, read_until=((-1, 8),)), value(8, 3, 4)
    same = Content(((0, 5), (1, -1)), 8), Content(((2, 4),), 8)
    assert smallest_peak(Problem(values, contents=same)) == 16


def test_what_another_value_has_too_is_not_overwritten_for_nothing():
    values = value(8, 0, 1), value(8, 0, 3), value(8, 1, 3)
    same = Content(((0, 1), (1, 3)), 8), Content(((2, 3),), 8)
    over = Pair(OVER, 2, 0, 8, held=((8, (1,)),))
    assert smallest_peak(Problem(values, pairs=(over,), contents=same)) == 16


def test_a_value_that_has_contents_twice_needs_them_twice():
    values = value(8, 0, 1), value(16, 1, 2)
    same = (Content(((0, 1), (1, 2), (1, 2)), 8),)
    assert smallest_peak(Problem(values, contents=same)) == 16


def test_what_an_operator_of_another_library_sees_is_in_a_storage_of_its_size():
    values = value(4, 0, 2), value(8, 2, 3)
    assert smallest_peak(Problem(values, contents=contents(values, (1, 0)))) == 8
    shown = value(4, 0, 2, shown=True), value(8, 2, 3)
    assert smallest_peak(Problem(shown, contents=contents(shown, (1, 0)))) == 12


def test_a_copy_of_an_input_is_its_bytes_until_they_are_written():
    space = Space("x", ((2, 3, 8),))
    copied = value(8, 0, 2), value(8, 2, 3)
    same = Content(((0, 2),), 8, source=(0, 2)), Content(((1, 3),), 8)
    # The copy is the input itself, so the other value is beside it.
    assert smallest_peak(Problem(copied, (space,), contents=same)) == 8


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
    if len(set(kinds)) < len(kinds) or len({pair.other for pair in used}) < len(used):
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
    needs = 0
    for each in problem.contents:
        live = [
            at
            for at, until in each.readers
            if homes[at] == home
            and problem.values[at].born <= time
            and (time <= until or time == problem.values[at].born)
        ]
        needs += each.nbytes * bool(live)
    for pair in used:
        if homes[pair.value] == home and problem.values[pair.value].born == time:
            held = sum(
                count for count, others in pair.held if any(homes[at] == home for at in others)
            )
            needs -= pair.nbytes - held
    return needs


def drawn_problem(seed):
    """Four values: some die in the call of a later one, some are parts of the next one."""
    draw = random.Random(seed)
    values, pairs, same = [], [], []
    for born in range(4):
        nbytes, dies = draw.randint(1, 9), draw.randint(born, 4)
        first = draw.randint(0, nbytes)
        reads = ((draw.randint(born, dies), first), (dies, nbytes - first))
        values.append(value(nbytes, born, dies, read_until=reads, returned=draw.random() < 0.2))
        part = born - 1
        if born and values[part].dies >= born and draw.random() < 0.5:
            # The first bytes of the two are the same, as many as both have that are read alike.
            count = min(values[part].read_until[1][1], first)
            same.append((part, born, count))
        for at, other in enumerate(values[:-1]):
            taken = any(each[:2] == (at, born) for each in same)
            if other.dies == born and not taken and draw.random() < 0.7:
                pairs.append((born, at, min(other.dying(born), nbytes)))
    left = [list(each.read_until) for each in values]
    found = []
    for part, whole, count in same:
        (until, n), (own, m) = left[whole][0], left[part][1]
        count = min(count, n, m)
        left[whole][0], left[part][1] = (until, n - count), (own, m - count)
        found.append(Content(((part, own), (whole, until)), count))
    found += [
        Content(((at, until),), count) for at, reads in enumerate(left) for until, count in reads
    ]
    overs = tuple(Pair(OVER, *pair) for pair in pairs)
    return Problem(tuple(values), pairs=overs, contents=tuple(found))


@pytest.mark.parametrize("seed", range(40))
def test_the_solver_agrees_with_brute_force(seed):
    problem = drawn_problem(seed)
    smallest = smallest_peak(problem)
    assert smallest is not None
    assert smallest == brute_force(problem), problem
    assert needed(problem) <= smallest <= allocated(problem)
