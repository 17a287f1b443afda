"""Memory planning: situations (some are in docs/planning.md), their peaks and allocations."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, fx
from torch.nn.functional import pad, silu

from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.contract import Contract
from aliasproof.reference_pass import functionalize, plan_memory, reinplace
from aliasproof.reference_pass.planning.timeline import lifetimes, live_bytes
from aliasproof.targets.target import Build, Target
from benchmarks.models import bytes_of

SCRATCH = 200  # bytes that kernels may allocate for themselves, such as a number as a tensor


@dataclass(frozen=True, slots=True)
class Cost:
    """The most bytes that are live at once, and the number of allocations."""

    peak: int
    allocations: int

    @classmethod
    def of(cls, graph_module: fx.GraphModule) -> Cost:
        graph = graph_module.graph
        lives = [life for life in lifetimes(graph).values() if life.nbytes]
        return cls(max(live_bytes(lives, len(graph.nodes)), default=0), len(lives))


def costs(program: Callable[..., object], *inputs: Tensor, kept: int = 0) -> tuple[Cost, Cost]:
    """The costs of a reinplaced and of a planned program, which does what it does in eager.

    The program itself keeps so many bytes alive, outside of its graph.
    """
    functional = functionalize(program, *inputs)
    reinplaced = reinplace(copy.deepcopy(functional), *inputs)
    planned = plan_memory(functional, *inputs)
    target = Target(
        "planned", "plan_memory", Contract(), lambda function, sample: Build(planned, []), recipe=""
    )
    assert run_trial(Case.of_function(program, inputs), target).judgement.violations == []
    cost = Cost.of(planned)
    peak, _ = bytes_of(lambda: planned(*inputs))  # what the allocator counts
    assert cost.peak <= peak <= cost.peak + kept + SCRATCH
    return Cost.of(reinplaced), cost


def numbers(*sizes: int) -> Tensor:
    return torch.arange(float(torch.Size(sizes).numel())).view(sizes) / 8


SQUARE = 32 * 32 * 4  # bytes
ROW = 32 * 4


@pytest.fixture
def one() -> Tensor:
    return numbers(32, 32)


@pytest.fixture
def other() -> Tensor:
    return numbers(32, 32).cos()


def test_either_operand_may_hold_the_result(one, other):
    def program(a, b):
        c = a * 2
        d = b + 1
        return c - d, c / 3

    reinplaced, planned = costs(program, one, other)
    assert planned == reinplaced == Cost(2 * SQUARE, 2)


def test_a_live_alias_bars_it(one):
    def program(x):
        y = x + 1
        row = y[0]
        z = y * 2  # not in place of y, which `row` shows
        return z.amax(), row.amax()

    _, planned = costs(program, one)
    assert planned == Cost(2 * SQUARE + 4, 4)


def test_a_larger_storage(one, other):
    def program(x, w, v):
        h = (x @ w).sin()
        h = (h @ w).sin()
        return (h @ v).softmax(1)  # `h @ v` in the first hidden layer

    reinplaced, planned = costs(program, one, other, numbers(32, 8))
    assert reinplaced == Cost(2 * SQUARE, 4)
    assert planned == Cost(2 * SQUARE, 3)


def test_another_dtype_of_the_same_size(one):
    def program(x):
        p = x.softmax(1)
        p = p / p.sum(1, keepdim=True)
        return p.argmax(1) + 1  # integers in place of the sums

    reinplaced, planned = costs(program, one.double())
    assert reinplaced == Cost(2 * SQUARE + 2 * ROW, 3)
    assert planned == Cost(2 * SQUARE + 2 * ROW, 2)


def test_a_split_without_copies(one, other):
    def program(x, w, v):
        gate, up = (x @ w).chunk(2)
        return (silu(gate) * up) @ v

    functional = Cost.of(functionalize(program, one, other, other))
    reinplaced, planned = costs(program, one, other, other)
    assert functional == Cost(2 * SQUARE, 4)
    assert planned == reinplaced == Cost(SQUARE + SQUARE // 2, 2)


def test_a_concatenation_without_copies(one, other):
    def program(a, b):
        left = a * 2
        right = b + 1
        return torch.cat([left, right])

    reinplaced, planned = costs(program, one, other)
    assert reinplaced == Cost(4 * SQUARE, 3)
    assert planned == Cost(2 * SQUARE, 1)


def test_a_concatenation_in_a_concatenation(one, other):
    def program(a, b):
        inner = torch.cat([a * 2, b * 3])
        return torch.stack([inner, inner + 1])

    reinplaced, planned = costs(program, one, other)
    assert reinplaced == Cost(8 * SQUARE, 5)
    assert planned == Cost(4 * SQUARE, 1)


def test_a_pad_without_a_copy(one):
    reinplaced, planned = costs(lambda x: pad(x * 2, (1, 1, 1, 1)), one)
    assert reinplaced == Cost(SQUARE + 34 * 34 * 4, 2)
    assert planned == Cost(34 * 34 * 4, 1)


def cache_step(keys, values, at, k, v, q):
    keys.copy_(keys.index_copy(0, at, k))
    values.copy_(values.index_copy(0, at, v))
    return (q @ keys.t()).softmax(1) @ values


def test_a_key_value_cache(one, other):
    row = numbers(1, 32)
    inputs = one, other, torch.tensor([2]), row, row, row
    _, planned = costs(cache_step, *inputs)
    assert planned == Cost(2 * ROW, 2)


def test_a_cache_that_the_caller_still_sees_is_not_overwritten(one):
    row = numbers(1, 32)
    _, planned = costs(lambda keys, at, k: keys.index_copy(0, at, k), one, torch.tensor([2]), row)
    assert planned == Cost(SQUARE, 1)


def test_a_cache_that_is_filled_from_a_prompt(one, other):
    def program(prompt, w, k):
        cache = torch.zeros(48, 32)
        cache = torch.slice_scatter(cache, prompt @ w, 0, 0, 32)
        return torch.slice_scatter(cache, k, 0, 32, 33)

    reinplaced, planned = costs(program, one, other, numbers(1, 32))
    assert reinplaced == Cost(48 * ROW + SQUARE, 2)
    assert planned == Cost(48 * ROW, 1)


def test_a_rolling_window(one):
    def program(xs):
        window = torch.zeros(16, 32)
        for x in xs.split(8):
            window = torch.cat([window[8:], x])
        return window

    reinplaced, planned = costs(program, one)
    assert reinplaced == Cost(SQUARE, 5)
    assert planned == Cost(SQUARE, 2)


def test_a_double_buffer(one, other):
    def program(x, w):
        for _ in range(4):
            x = x @ w
        return x

    reinplaced, planned = costs(program, one, other)
    assert reinplaced == Cost(2 * SQUARE, 4)
    assert planned == Cost(2 * SQUARE, 2)


KEPT: list[Tensor] = []


@pytest.fixture
def library():
    """`store` keeps its operand and `load` reads it, against their schemas."""
    with torch.library._scoped_library("aliasproof_planning", "DEF") as library:
        library.define("store(Tensor x) -> Tensor")
        library.define("load(Tensor like) -> Tensor")

        def store(x):
            KEPT[:] = [x]
            return x.sum()

        library.impl("store", store, "CPU")
        library.impl("store", lambda x: x.new_empty(()), "Meta")
        library.impl("load", lambda like: KEPT[0].clone(), "CPU")
        library.impl("load", torch.empty_like, "Meta")
        yield torch.ops.aliasproof_planning
    KEPT.clear()


def halves_in_their_place(x):
    p, q = (x * 2).chunk(2)
    return torch.cat([p.exp(), q.sin()])


def halves_that_are_exchanged(x):
    p, q = (x * 2).chunk(2)
    return torch.cat([q.exp(), p.sin()])


def one_half_twice(x):
    p, _ = (x * 2).chunk(2)
    p = p.exp()
    return torch.cat([p, p])


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (halves_in_their_place, Cost(SQUARE, 1)),
        (halves_that_are_exchanged, Cost(2 * SQUARE, 2)),
        (one_half_twice, Cost(SQUARE, 1)),
    ],
)
def test_a_concatenation_of_what_is_in_its_place_is_nothing(one, program, expected):
    assert costs(program, one)[1] == expected


def test_parts_of_a_concatenation_that_is_stored_in_its_parts(one):
    """The second one finds the storage of the first one gone: it is that of `x * 2`."""

    def program(x):
        rotated = x * 2
        for _ in range(3):
            rotated = torch.cat([rotated[1:], rotated[:1] + 1])
        return rotated

    reinplaced, planned = costs(program, one)
    assert planned.peak <= reinplaced.peak


def test_no_peak_rises_by_reinplacing_or_by_planning(one):
    """In place of a part, the exponential would keep all of the concatenation."""

    def program(x):
        p, q = torch.cat([x * 2, x * 3]).chunk(2)
        p = p.exp()
        return (torch.cat([q, q]).sin() * torch.cat([p, p])).sum()

    functional = functionalize(program, one)
    reinplaced, planned = costs(program, one)
    assert planned.peak <= reinplaced.peak <= Cost.of(functional).peak


def test_an_opaque_call(one, library):
    def program(x):
        a = x * 2
        total = library.store(a)
        b = a + 1  # not in place of a, which `load` reads
        return library.load(b) * total

    assert costs(program, one, kept=SQUARE) == (Cost(2 * SQUARE + 4, 5),) * 2
    stated = [library.store.default, library.load.default]
    for last in (reinplace, plan_memory):
        graph_module = last(functionalize(program, one), non_aliasing=stated)
        assert Cost.of(graph_module) == Cost(2 * SQUARE + 4, 3)


def test_no_more_is_live_where_inputs_are_dropped(one, other):
    """As in a backward graph, which drops what was saved for it after its last use."""

    def program(saved, x, w):
        first = x @ w  # would be kept while `saved` is live, for `c`
        s = first.sum(0) + (saved @ w).sum(0)
        c = x @ w
        d = c @ w
        e = d @ w
        f = e @ w
        g = f @ w
        return c @ d @ e @ f @ g, s

    inputs = torch.cat([one, one, one]), one, other
    functional = functionalize(program, *inputs)
    reinplaced, planned = reinplace(copy.deepcopy(functional)), plan_memory(functional)

    def peak(graph_module):
        run = fx.Interpreter(graph_module).boxed_run
        return bytes_of(lambda: run([tensor.clone() for tensor in inputs]))[0]

    assert peak(planned) <= peak(reinplaced)
    assert Cost.of(planned).allocations < Cost.of(reinplaced).allocations


def test_an_input_that_is_overwritten_later_holds_results_until_then(one, other):
    def program(a, b):
        scale = (b @ b).sin().sum()
        torch.add(b, scale, out=a)
        return scale * 2

    reinplaced, planned = costs(program, one, other)
    assert reinplaced.peak == SQUARE + 4
    assert planned == Cost(4, 1)


def test_an_input_that_is_read_before_it_is_overwritten_holds_none(one, other):
    def program(a, b):
        scale = (b @ b).sin().sum()
        a.add_(scale)
        return scale * 2

    reinplaced, planned = costs(program, one, other)
    assert planned.peak == reinplaced.peak


def test_a_result_is_beside_the_rows_that_are_read(one):
    def program(a):
        h = a.exp()
        return (h[:1] > h[1:2]).any()  # bools: they cannot be over the rows

    reinplaced, planned = costs(program, one)
    assert reinplaced.peak == SQUARE + 32
    assert planned.peak == SQUARE + 1


def test_a_store_into_a_concatenation_that_is_returned_too(one, other):
    def program(a, b):
        c = torch.cat([a, a * 2])
        return torch.select_scatter(c, b[0] + 1, 0, 0), c

    reinplaced, planned = costs(program, one, other)
    assert planned.peak <= reinplaced.peak
