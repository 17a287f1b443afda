"""Each lemma has the verdict that is written here, and wrong steps are refuted."""

import pytest

from aliasproof.ir import regions
from aliasproof.ir.errors import InternalError
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
    named,
    no,
    overlaps_itself,
    view,
)
from tests.lemmas.torch_lemmas import TORCH_LEMMAS, Branch, is_contiguous, last, sound

NOT_PROVED = {
    "contiguous, mixed": Refuted,  # counts elements where the item sizes differ
    "last before first, mixed": Refuted,  # the same
    "rows: all before": Vacuous,  # dead: 'last before first' has been asked
    "rows: between": Refuted,  # does not ask whether row 0 of y begins inside a row of x
    "internal: not yes": Refuted,  # takes "too hard to say" for no
}


def test_what_is_not_proved_is_a_lemma() -> None:
    assert set(NOT_PROVED) <= set(TORCH_LEMMAS)


@pytest.mark.parametrize("name", TORCH_LEMMAS)
def test_verdict(name: str) -> None:
    assert type(prove(TORCH_LEMMAS[name])) is NOT_PROVED.get(name, Proved)


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
        prove(TORCH_LEMMAS["rows: between"])


def test_equal_questions_get_equal_answers() -> None:
    some = [TORCH_LEMMAS["rows: between"], TORCH_LEMMAS["internal: not yes"]]
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


@pytest.mark.parametrize("dims", [1, 2])
def test_a_wrong_claim_of_no_internal_overlap_is_refuted(dims: int) -> None:
    def gaps_are_enough(scope: Scope) -> Statement:
        x = view(scope, "x", dims)
        return Statement([stride >= 0 for stride in x.strides], overlaps_itself(scope, x), (x,))

    answer = prove({"all": gaps_are_enough})
    assert isinstance(answer, Refuted)
    assert regions.overlaps_itself(answer.views[0].region())
