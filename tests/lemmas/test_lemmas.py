"""Each lemma has the verdict that is written here, and wrong steps are refuted."""

import pytest

from aliasproof.ir import regions
from aliasproof.ir.errors import InternalError
from aliasproof.ir.regions import Region
from tests.lemmas.lemma import (
    Proved,
    Refuted,
    State,
    Statement,
    Undecided,
    Vacuous,
    is_counterexample,
    prove,
)
from tests.lemmas.lemma_formulas import (
    Formula,
    Scope,
    SymbolicView,
    either,
    every,
    floor_divided,
    inside,
    named,
    no,
    overlaps_itself,
    view,
)
from tests.lemmas.region_lemmas import REGION_LEMMAS
from tests.lemmas.torch_lemmas import TORCH_LEMMAS, Branch, is_contiguous, last, sound

LEMMAS = TORCH_LEMMAS | REGION_LEMMAS
NOT_PROVED = {
    "contiguous, mixed": Refuted,  # counts elements where the item sizes differ
    "last before first, mixed": Refuted,  # the same
    "rows: all before": Vacuous,  # dead: 'last before first' has been asked
    "rows: between": Refuted,  # does not ask whether row 0 of y begins inside a row of x
    "internal: not yes": Refuted,  # takes "too hard to say" for no
}


def test_each_lemma_has_its_own_name() -> None:
    assert len(LEMMAS) == len(TORCH_LEMMAS) + len(REGION_LEMMAS)
    assert set(NOT_PROVED) <= set(LEMMAS)


@pytest.mark.parametrize("name", LEMMAS)
def test_verdict(name: str) -> None:
    assert type(prove(LEMMAS[name])) is NOT_PROVED.get(name, Proved)


# --- the four answers -----------------------------------------------------------------------------


def test_a_counterexample_is_small_and_checked() -> None:
    def squares(scope: Scope) -> Statement:
        n = scope("n")
        return Statement([n >= 0], [n * n > 50])

    assert prove({"all": squares}) == Refuted("all", {"n": 8})
    assert is_counterexample(squares, {"n": 8})
    assert not is_counterexample(squares, {"n": 7})


def test_contradictory_assumptions_prove_nothing() -> None:
    def state(scope: Scope) -> Statement:
        n = scope("n")
        return Statement([n > 1, n < 1], [n == 1])

    assert prove({"all": state}) == Vacuous("all")


def test_giving_up_is_unknown() -> None:
    def cubes(scope: Scope) -> Statement:
        a, b, c = named(scope, "a b c")
        return Statement([a > 0, b > 0, c > 0], [a * a * a + b * b * b == c * c * c])

    answer = prove({"all": cubes}, limit_ms=100)
    assert isinstance(answer, Undecided)
    assert "limit of 100 ms" in answer.reason


def test_one_case_decides_for_all() -> None:
    def case(low: int, high: int) -> State:
        def state(scope: Scope) -> Statement:
            n = scope("n")
            return Statement([n >= low, n <= high], [n == 3])

        return state

    proved, vacuous, wrong = case(4, 9), case(1, 0), case(1, 9)
    assert prove({"one": proved, "other": proved}) == Proved()
    assert prove({"one": proved, "other": vacuous}) == Vacuous("other")
    assert prove({"one": vacuous, "wrong": wrong, "other": proved}) == Refuted("wrong", {"n": 3})


def test_a_wrong_answer_of_z3_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.lemmas.lemma._Unknowns.ask", lambda self, *_: dict.fromkeys(self.by_name, 0)
    )
    with pytest.raises(InternalError, match="wrong counterexample"):
        prove(LEMMAS["rows: between"])


def test_equal_questions_get_equal_answers() -> None:
    some = [LEMMAS["rows: between"], LEMMAS["internal: not yes"]]
    assert [prove(each) for each in some] == [prove(each) for each in some[::-1]][::-1]


# --- planted mistakes: z3 refutes each ------------------------------------------------------------


def one_too_long(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    return [
        is_contiguous(x),
        is_contiguous(y),
        *nonempty(x, y),
        x.offset <= y.offset,
        x.offset + x.numel <= y.offset + 1,
    ]


def last_at_first(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    return [*nonempty(x, y), last(x) <= y.offset]


def starts_later(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    return [*nonempty(x, y), y.offset > x.offset]


def without_order(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    return [*nonempty(x, y), is_contiguous(x), is_contiguous(y), no(x.offset == y.offset)]


def nonempty(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    return [size >= 1 for size in (*x.sizes, *y.sizes)]


@pytest.mark.parametrize("planted", [one_too_long, last_at_first, starts_later, without_order])
@pytest.mark.parametrize("dims", [1, 2])
def test_a_wrong_branch_is_refuted(planted: Branch, dims: int) -> None:
    answer = prove(sound(planted, ((dims, dims),)))
    assert isinstance(answer, Refuted)
    assert regions.overlap(*(each.region() for each in answer.views))


def nested_except_a_byte(scope: Scope) -> Statement:
    x, item = view(scope, "x", 2), scope("itemsize")
    assumptions = [
        item >= 1,
        x.strides[1] >= item,
        x.strides[0] >= (x.sizes[1] - 1) * x.strides[1] + item - 1,
    ]
    i, j = (scope("i0"), scope("i1")), (scope("j0"), scope("j1"))
    different, distance = either(i[0] != j[0], i[1] != j[1]), x.address(i) - x.address(j)
    return Statement(
        assumptions, [*inside(i, x), *inside(j, x), different, distance < item, distance > -item]
    )


def widened_by_a_longer_stride(scope: Scope) -> Statement:
    total, stride, low, x = named(scope, "sum stride low x")
    high = low + stride - 2  # the stride is one longer than the window
    reached = every(x >= 0, x <= 1, low <= total + stride * x, total + stride * x <= high)
    gap = every(low - stride <= total, total <= high, total == low - 1)
    return Statement([stride >= 2, gap], [no(reached), x == 1])


def window_off_by_one(scope: Scope) -> Statement:
    low_a, end_b, total = scope("low_a"), scope("end_b"), scope("p + q")
    item = scope("itemsize")
    shared = every(low_a + total < end_b, end_b - item < low_a + total + item)
    high = end_b - 1 - low_a
    return Statement([item >= 1], [every(high - 2 * item + 1 <= total, total <= high), no(shared)])


def divided_outwards(scope: Scope) -> Statement:
    quotient, divisor, low = named(scope, "quotient divisor low")
    return Statement(
        [divisor >= 1, quotient >= floor_divided(low, divisor)], [divisor * quotient < low]
    )


def doubled_too_far(scope: Scope) -> Statement:
    done, step, x = named(scope, "done step x")
    copied = either(every(x >= 0, x < done), every(x >= step, x < done + step))
    return Statement(
        [done >= 1, step >= 1, step <= done + 1], [x >= 0, x < done + step, no(copied)]
    )


@pytest.mark.parametrize(
    "planted",
    [
        nested_except_a_byte,
        widened_by_a_longer_stride,
        window_off_by_one,
        divided_outwards,
        doubled_too_far,
    ],
)
def test_a_wrong_shortcut_is_refuted(planted: State) -> None:
    assert isinstance(prove({"planted": planted}), Refuted)


@pytest.mark.parametrize("dims", [1, 2])
def test_a_wrong_claim_of_no_internal_overlap_is_refuted(dims: int) -> None:
    def gaps_are_enough(scope: Scope) -> Statement:
        x = view(scope, "x", dims)
        return Statement([stride >= 0 for stride in x.strides], overlaps_itself(scope, x), (x,))

    answer = prove({"all": gaps_are_enough})
    assert isinstance(answer, Refuted)
    assert regions.overlaps_itself(answer.views[0].region())


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
