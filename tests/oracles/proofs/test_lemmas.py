"""Each lemma has the verdict that is written here, the restated predicates are the installed ones, witnesses are real."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from torch._C._dynamo.guards import compute_overlapping_tensors
from torch._inductor.fx_passes.reinplace import reinplace_inplaceable_ops_core
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.checking import check
from campaigns.reproducer import confirm, render
from oracles import smt
from oracles.proofs import lemmas, region_lemmas, torch_lemmas
from oracles.proofs.lemmas import (
    DTYPES,
    Formula,
    Lemma,
    LemmaCase,
    Proved,
    Refuted,
    Scope,
    Statement,
    SymbolicView,
    Undecided,
    Vacuous,
    either,
    every,
    holds,
    inside,
    no,
    prove,
    tensors,
    view,
)
from oracles.proofs.region_lemmas import REGION_LEMMAS
from oracles.proofs.torch_lemmas import (
    SAYS_APART,
    TORCH_LEMMAS,
    is_contiguous,
    says_no,
    says_yes,
    sound,
)
from oracles.verdict import Verdict
from programs import regions
from programs.errors import InternalError
from programs.regions import Region
from targets.registry import TARGETS

LEMMAS = {each.name: each for each in TORCH_LEMMAS + REGION_LEMMAS}
NOT_PROVED = {
    "contiguous, mixed": Refuted,  # counts elements where the item sizes differ
    "last before first, mixed": Refuted,  # the same
    "rows: all before": Vacuous,  # dead: 'last before first' has been asked
    "rows: between": Refuted,  # does not ask whether row 0 of y begins inside a row of x
    "internal: not yes": Refuted,  # "too hard to say" is taken for no
}
REFUTED = [name for name, answer in NOT_PROVED.items() if answer is Refuted]
BROKEN_TARGETS = {
    "contiguous, mixed": {"aot", "aot-epilogue"},
    "last before first, mixed": {"aot", "aot-epilogue"},
    "rows: between": {"aot", "aot-epilogue"},
    "internal: not yes": {"fx-reinplace"},
}


def refuted(name: str) -> Refuted:
    answer = prove(LEMMAS[name]).answer
    assert isinstance(answer, Refuted)
    return answer


def lemma(state: Callable[[Scope], Statement]) -> Lemma:
    return Lemma("", "", "", "", (LemmaCase("all", state),))


def test_lemmas_have_names_of_their_own() -> None:
    assert len(LEMMAS) == len(TORCH_LEMMAS) + len(REGION_LEMMAS)
    assert set(NOT_PROVED) <= set(LEMMAS)


@pytest.mark.parametrize("name", LEMMAS)
def test_verdict(name: str) -> None:
    proof = prove(LEMMAS[name])
    assert type(proof.answer) is NOT_PROVED.get(name, Proved), proof.answer
    assert proof.verdict == type(proof.answer).__name__.lower()
    assert proof.milliseconds > 0


# --- the restated predicates are those of the installed torch -------------------------------------


def random_view(draw: random.Random, elements: int) -> SymbolicView:
    """0-3 dims, often rows of a matrix, sometimes contiguous; a dim of size one may have any stride."""
    itemsize = draw.choice([4, 4, 4, 8, 1])
    sizes = [draw.choice([0, *[1, 2, 3, 4] * 6]) for _ in range(draw.choice([0, 1, 2, 2, 2, 2, 3]))]
    strides: list[int] = []
    expected = draw.choice([1, 1, 1, 2])
    for dim, size in enumerate(reversed(sizes)):
        gap = draw.choice([0, 1, 3, 5]) if dim and draw.random() < 0.5 else 0
        strides.insert(
            0, draw.randint(0, 9) if size == 1 or draw.random() < 0.1 else expected + gap
        )
        expected = strides[0] * max(size, 1)
    return SymbolicView(draw.randint(0, elements), tuple(sizes), tuple(strides), itemsize)


def random_pair(draw: random.Random) -> tuple[SymbolicView, SymbolicView]:
    """Half of them rows of one matrix, of one item size or two."""
    x = random_view(draw, 40)
    if draw.random() < 0.5:
        return x, random_view(draw, 40)
    stride = draw.choice([0, 1, 4, 6, 9])
    x, y = (
        SymbolicView(
            draw.randint(0, 30),
            (draw.randint(1, 4), draw.randint(1, 5)),
            (stride, 1),
            draw.choice([4, 4, 4, 8]),
        )
        for _ in range(2)
    )
    return x, y


def branch_of(x: SymbolicView, y: SymbolicView) -> str | None:
    """The branch in which the restated predicate says "definitely apart"."""
    if x.offset > y.offset:
        x, y = y, x
    return next((each.__name__ for each in SAYS_APART if all(each(x, y))), None)


@pytest.mark.parametrize(("symbolic", "count"), [(False, 6_000), (True, 1_000)])
def test_the_case_split_is_the_installed_one(symbolic: bool, count: int) -> None:
    draw = random.Random(7)
    taken: Counter[str | None] = Counter()
    for _ in range(count):
        pair = random_pair(draw)
        says_apart = not compute_overlapping_tensors(tensors(pair), symbolic=symbolic)
        taken[branch := branch_of(*pair)] += 1
        assert says_apart == (branch is not None), pair
    live = {each.__name__ for each in SAYS_APART} - {"rows_end_before"}
    assert set(taken) == {*live, None}  # no pair takes the dead branch
    assert min(taken.values()) > 0.02 * count


def test_no_and_yes_are_the_installed_ones() -> None:
    draw = random.Random(8)
    answers: Counter[int] = Counter()
    for _ in range(5_000):
        x = random_view(draw, 10)
        answer = torch._debug_has_internal_overlap(tensors([x])[0])
        answers[answer] += 1
        in_some_order = any(
            says_no(reordered(x, order)) for order in itertools.permutations(range(x.dims))
        )
        assert answer == (0 if in_some_order else 1 if says_yes(x) else 2), x
    assert min(answers[each] for each in (0, 1, 2)) > 50


def reordered(x: SymbolicView, order: Sequence[int]) -> SymbolicView:
    return SymbolicView(
        x.offset,
        tuple(x.sizes[dim] for dim in order),
        tuple(x.strides[dim] for dim in order),
        x.itemsize,
    )


def test_contiguous_is_the_installed_one() -> None:
    draw = random.Random(9)
    for _ in range(2_000):
        x = random_view(draw, 10)
        assert x.numel == 0 or tensors([x])[0].is_contiguous() == is_contiguous(x), x


# --- a refutation is real -------------------------------------------------------------------------


@pytest.mark.parametrize("name", REFUTED)
def test_the_installed_torch_takes_the_refuted_step(name: str) -> None:
    asks, found = LEMMAS[name].asks, refuted(name)
    assert asks is not None
    assert asks(tensors(found.views))


@pytest.mark.parametrize("name", REFUTED)
def test_exact_deciders_confirm_the_counterexample(name: str) -> None:
    found = refuted(name)
    made = [Region.of(each) for each in tensors(found.views)]
    if len(made) == 1:
        assert regions.overlaps_itself(made[0])
        return
    assert regions.overlap(*made)
    assert isinstance(smt.decide(made[0], made[1]), smt.Witness)
    assert set(made[0].addresses()) & set(made[1].addresses())


@pytest.mark.parametrize("name", REFUTED)
def test_the_counterexample_becomes_a_program_that_is_miscompiled(name: str) -> None:
    make, found = LEMMAS[name].program, refuted(name)
    assert make is not None
    results = check(make(found.views), targets=list(TARGETS)).results
    violated = {target for target, result in results.items() if result.violated}
    assert violated == BROKEN_TARGETS[name]
    for target in violated:
        assert {"wrong value"} == {
            each.kind for each in results[target].violations if each.oracle == "values"
        }
    assert results["reference"].reports["values"].verdict is Verdict.HOLDS


def test_the_program_becomes_a_reproducer_that_needs_torch_alone(tmp_path: Path) -> None:
    program = lemmas.write_one_read_other(refuted("rows: between").views)
    result = check(program, targets=["aot"]).results["aot"]
    violation = next(each for each in result.violations if each.oracle == "values")
    script = tmp_path / "reproducer.py"
    script.write_text(render(program, TARGETS["aot"], violation, exact=True))
    assert confirm(script).shown


@pytest.mark.parametrize("target", ["aot", "aot-epilogue"])
def test_rows_of_a_matrix_that_share_rows_are_held_apart(target: str) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return y + 0

    base = torch.arange(36.0).view(4, 9)
    result = check(program, (base[:, :4], base[2:, :4]), [target]).results[target]
    assert "wrong value (output 0)" in [each.describe() for each in result.violations]
    whole_rows = check(program, (base, base[2:]), [target]).results[
        target
    ]  # both contiguous: another branch
    assert not whole_rows.violated


def test_the_reinplacing_of_inductor_overwrites_rows_that_are_read_later() -> None:
    def program(
        x: torch.Tensor, position: torch.Tensor, row: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        base = x + 1
        later = base[2:, :4]
        return torch.ops.aten.index_put.default(base[:, :4], [position], row), later

    inputs = torch.arange(36.0).view(4, 9), torch.tensor([2]), torch.zeros(1, 4)
    graph = make_fx(program, tracing_mode="fake")(*inputs)
    expected = program(*inputs)
    for one, other in zip(graph(*inputs), expected, strict=True):
        assert torch.equal(one, other)
    reinplace_inplaceable_ops_core(graph.graph)
    graph.recompile()
    assert not torch.equal(graph(*inputs)[1], expected[1])


def test_a_program_where_the_views_are_apart_is_compiled_right() -> None:
    x, y = SymbolicView(0, (4, 4), (9, 1), 4), SymbolicView(22, (2, 4), (9, 1), 4)
    assert branch_of(x, y) == "rows_between"
    results = check(lemmas.write_one_read_other((x, y)), targets=["aot", "aot-epilogue"]).results
    assert not any(each.violated for each in results.values())


def test_views_become_tensors_of_the_same_numbers() -> None:
    for itemsize in DTYPES:
        x = SymbolicView(3, (2, 3), (5, 1), itemsize)
        (made,) = tensors([x])
        region = Region.of(made)
        start = region.start - made.untyped_storage().data_ptr()
        assert x.region() == Region(start, region.sizes, region.strides, region.itemsize)


# --- the four answers -----------------------------------------------------------------------------


def test_a_counterexample_is_small_and_checked() -> None:
    def squares(scope: Scope) -> Statement:
        n = scope("n")
        return Statement([n >= 0], [n * n > 50])

    proof = prove(lemma(squares))
    assert proof.answer == Refuted("all", {"n": 8})
    assert proof.answer.describe() == "n = 8"
    assert holds(squares, {"n": 8})
    assert not holds(squares, {"n": 7})


def test_contradicting_premises_prove_nothing() -> None:
    def state(scope: Scope) -> Statement:
        n = scope("n")
        return Statement([n > 1, n < 1], [n == 1])

    assert prove(lemma(state)).answer == Vacuous("all")


def test_giving_up_is_unknown() -> None:
    def cubes(scope: Scope) -> Statement:
        a, b, c = scope("a"), scope("b"), scope("c")
        return Statement([a > 0, b > 0, c > 0], [a * a * a + b * b * b == c * c * c])

    answer = prove(lemma(cubes), limit_ms=100).answer
    assert isinstance(answer, Undecided)
    assert "limit of 100 ms" in answer.reason


def test_one_case_decides_for_all() -> None:
    def case(name: str, low: int, high: int) -> LemmaCase:
        def state(scope: Scope) -> Statement:
            n = scope("n")
            return Statement([n >= low, n <= high], [n == 3])

        return LemmaCase(name, state)

    proved, vacuous, wrong = case("proved", 4, 9), case("vacuous", 1, 0), case("wrong", 1, 9)
    assert prove(Lemma("", "", "", "", (proved, proved))).answer == Proved()
    assert prove(Lemma("", "", "", "", (proved, vacuous))).answer == Vacuous("vacuous")
    assert prove(Lemma("", "", "", "", (vacuous, wrong, proved))).answer == Refuted(
        "wrong", {"n": 3}
    )


def test_a_wrong_answer_of_z3_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemmas._Symbols, "ask", lambda self, *_: dict.fromkeys(self.terms, 0))
    with pytest.raises(InternalError, match="wrong counterexample"):
        prove(LEMMAS["rows: between"])


def test_equal_questions_get_equal_answers() -> None:
    some = [LEMMAS["rows: between"], LEMMAS["internal: not yes"]]
    assert [prove(each).answer for each in some] == [prove(each).answer for each in some[::-1]][
        ::-1
    ]


# --- planted mistakes: z3 tells each from the right step ------------------------------------------


def one_too_long(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    return [
        is_contiguous(x),
        is_contiguous(y),
        *nonempty(x, y),
        x.offset <= y.offset,
        x.offset + x.numel <= y.offset + 1,
    ]


def last_at_first(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    return [*nonempty(x, y), torch_lemmas.last(x) <= y.offset]


def starts_later(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    return [*nonempty(x, y), y.offset > x.offset]


def without_order(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    return [*nonempty(x, y), is_contiguous(x), is_contiguous(y), no(x.offset == y.offset)]


def nonempty(x: SymbolicView, y: SymbolicView) -> list[Formula]:
    return [size >= 1 for size in (*x.sizes, *y.sizes)]


@pytest.mark.parametrize("planted", [one_too_long, last_at_first, starts_later, without_order])
@pytest.mark.parametrize("dims", [1, 2])
def test_a_wrong_branch_is_refuted(planted: torch_lemmas.Branch, dims: int) -> None:
    answer = prove(sound("planted", "", planted, ((dims, dims),))).answer
    assert isinstance(answer, Refuted)
    assert regions.overlap(*(each.region() for each in answer.views))


def nested_but_for_a_byte(scope: Scope) -> Statement:
    x, item = view(scope, "x", 2), scope("itemsize")
    premises = [
        item >= 1,
        x.strides[1] >= item,
        x.strides[0] >= (x.sizes[1] - 1) * x.strides[1] + item - 1,
    ]
    i, j = (scope("i0"), scope("i1")), (scope("j0"), scope("j1"))
    different, distance = either(i[0] != j[0], i[1] != j[1]), x.address(i) - x.address(j)
    return Statement(
        premises, [*inside(i, x), *inside(j, x), different, distance < item, distance > -item]
    )


def widened_by_a_longer_stride(scope: Scope) -> Statement:
    total, stride, low, x = scope("sum"), scope("stride"), scope("low"), scope("x")
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
    quotient, divisor, low = scope("quotient"), scope("divisor"), scope("low")
    return Statement(
        [divisor >= 1, quotient >= lemmas.floor_divided(low, divisor)], [divisor * quotient < low]
    )


def doubled_too_far(scope: Scope) -> Statement:
    done, step, x = scope("done"), scope("step"), scope("x")
    copied = either(every(x >= 0, x < done), every(x >= step, x < done + step))
    return Statement(
        [done >= 1, step >= 1, step <= done + 1], [x >= 0, x < done + step, no(copied)]
    )


@pytest.mark.parametrize(
    "planted",
    [
        nested_but_for_a_byte,
        widened_by_a_longer_stride,
        window_off_by_one,
        divided_outwards,
        doubled_too_far,
    ],
)
def test_a_wrong_shortcut_is_refuted(planted: Callable[[Scope], Statement]) -> None:
    assert isinstance(prove(lemma(planted)).answer, Refuted)


@pytest.mark.parametrize("dims", [1, 2])
def test_a_wrong_claim_of_no_internal_overlap_is_refuted(dims: int) -> None:
    def gaps_are_enough(scope: Scope) -> Statement:
        x = view(scope, "x", dims)
        return Statement(
            [stride >= 0 for stride in x.strides], lemmas.overlaps_itself(scope, x), (x,)
        )

    answer = prove(lemma(gaps_are_enough)).answer
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
    state = partial(region_lemmas._window)
    ((low, high),) = windows
    for total in range(low - 3, high + 4):
        numbers = {
            "low_a": low_a,
            "end_b": end_b,
            "p": total,
            "q": 0,
            "itemsize_a": 4,
            "itemsize_b": 2,
        }
        assert not holds(state, numbers)
        shared = low_a + total < end_b and end_b - 2 < low_a + total + 4
        assert shared == (low <= total <= high)
