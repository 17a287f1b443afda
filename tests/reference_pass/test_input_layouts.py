"""One compiled graph per layout: the properties that are in the key of a graph."""

from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from aliasproof.reference_pass.backend import aliasproof
from aliasproof.reference_pass.backend.compiled import Compiled
from aliasproof.reference_pass.backend.observed_run import Observed
from aliasproof.reference_pass.pipeline import Functionalize
from tests.reference_pass.graphs import calling
from tests.reference_pass.scene import assert_alike


@pytest.fixture
def built():
    """Counts the pipelines that are built."""
    with mock.patch(
        "aliasproof.reference_pass.backend.building.Functionalize", wraps=Functionalize
    ) as pipelines:
        yield lambda: pipelines.call_count


def data() -> Tensor:
    return torch.arange(48.0).view(12, 4)


def layout(tensor: Tensor) -> tuple[Any, ...]:
    return (
        tensor.tolist(),
        tensor.stride(),
        tensor.storage_offset(),
        tensor.untyped_storage().nbytes(),
    )


def writes(x):
    x.mul_(2)
    return x[1:], x + 1


def copies(x):
    y = x.clone()
    y[0] = 7  # with a storage of its own, at offset zero
    return y, y.t()


def scatters(x):
    return torch.select_scatter(x, x[1] * 2, 0, 0), x.t()


@pytest.mark.parametrize("function", [writes, copies, scatters])
def test_slices_of_one_data_set_are_one_layout(function, built):
    compiled = Compiled(calling(function), [data()[:2]])
    for start in range(0, 12, 2):
        expected, actual = data(), data()
        wanted = function(expected[start : start + 2])
        outputs = compiled(actual[start : start + 2])
        assert torch.equal(actual, expected)
        assert [layout(one) for one in outputs] == [layout(one) for one in wanted]
    assert built() == 1


def shows_the_storage(x):
    return x.as_strided((2,), (1,), 0) + x[0, :2]


def asks_where_it_is(x):
    return x * x.storage_offset()


def reads_pairs(x):
    return x.view(torch.float64)


@pytest.mark.parametrize("function", [shows_the_storage, asks_where_it_is, reads_pairs])
def test_where_a_slice_is_belongs_to_the_layout_if_the_graph_depends_on_it(function, built):
    graph = fx.symbolic_trace(function)
    compiled = Compiled(graph, [data()[:2]])
    before = built()
    for start in (0, 2, 4, 2):
        x = data()[start : start + 2]
        assert torch.equal(compiled(x), graph(x))
    assert built() == before + 2


def test_inputs_that_share_a_storage_have_locations(built):
    def program(x, y):
        x.add_(1)
        return y * 2

    source = data()
    compiled = Compiled(calling(program, 2), [source[:2], data()[:2]])
    for start in (0, 1, 2):
        inputs = source[:2], source[start : start + 2]
        assert_alike(compiled, program, *inputs)
    assert built() == 5  # one graph found that locations matter


@pytest.mark.parametrize("writes", [False, True])
def test_windows_of_one_source_are_one_graph(built, writes):
    """A batch of a language model: its inputs, and the same inputs one token later."""

    def program(tokens, following, steps):
        if writes:
            steps.add_(1)
        return following.reshape(-1) - tokens, tokens[1:] * steps

    source = torch.arange(100.0)
    compiled = torch.compile(program, backend=aliasproof)
    for start in range(70):
        inputs = source[start : start + 8], source[start + 1 : start + 9], torch.ones(())
        assert_alike(compiled, program, *inputs)
    assert built() == 1


def test_an_input_may_share_a_storage_with_an_attribute(built):
    graph = fx.Graph()
    x, total = graph.placeholder("x"), graph.get_attr("total")
    graph.call_function(torch.ops.aten.add_.Tensor, (total, 1))
    graph.output(graph.call_function(torch.ops.aten.mul.Tensor, (x, 2)))
    buffer = torch.nn.Buffer(torch.zeros(4))
    compiled = Compiled(fx.GraphModule({"total": buffer}, graph), [torch.zeros(4)])
    assert compiled(buffer).tolist() == [2.0] * 4
    assert compiled(torch.zeros(4)).tolist() == [0.0] * 4
    assert buffer.tolist() == [2.0] * 4
    assert built() == 1  # the first call runs the original graph


# --- ints -----------------------------------------------------------------------------------------


def stores(cache, new, position):
    cache[:, position : position + 1] = new
    return cache.sum(1)


def test_a_position_is_a_symbol(built):
    compiled = torch.compile(stores, backend=aliasproof)
    expected, actual = torch.zeros(2, 9), torch.zeros(2, 9)
    for position in range(9):
        new = torch.full((2, 1), position + 1.0)
        assert torch.equal(compiled(actual, new, position), stores(expected, new, position))
    assert torch.equal(actual, expected)
    assert built() == 2  # first for a constant, then for all values


def test_a_graph_for_all_ints_stores_in_place_too(built):
    compiled = Compiled(calling(stores, 3), [torch.zeros(2, 9), torch.ones(2, 1), 3])
    for position in (3, 4, 5):
        compiled(torch.zeros(2, 9), torch.ones(2, 1), position)
    (general,) = compiled.general.values()
    assert general is not None
    assert isinstance(general.graph_module, Observed)
    assert isinstance(general.graph_module.compiled, fx.GraphModule)
    targets = [str(node.target) for node in general.graph_module.compiled.graph.nodes]
    assert "aten.copy_.default" in targets
    assert not any("scatter" in target for target in targets)


def test_an_int_that_breaks_a_guard_gets_a_graph_of_its_own(built):
    def branches(x, number):
        return x + number if number > 2 else x * number

    compiled = Compiled(calling(branches, 2), [data(), 5])
    for number in (5, 6, 7, 1, 8):
        assert torch.equal(compiled(data(), number), branches(data(), number))
    assert built() == 3


def test_ints_that_every_graph_depends_on_have_a_graph_each(built):
    def repeats(x, count):
        for _ in range(count):
            x = x + 1
        return x

    compiled = Compiled(calling(repeats, 2), [data(), 1])
    for count in (1, 2, 3, 2):
        assert torch.equal(compiled(data(), count), data() + count)


# --- with `dynamic=True`, one compiled graph is right for all sizes that satisfy its guards -------


SIZES = (4, 6), (5, 7), (8, 3), (3, 9), (5, 7)
ROWS = (4, 6), (5, 6), (9, 6)


def numbers(*sizes: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(sizes).numel())).view(sizes) / 8 - 2


def writes_a_view(x):
    y = x * 1
    y.t()[1:].add_(1)
    return y, y[0]


def writes_its_input(x):
    x[1:].mul_(2)
    return x.view(-1)[::2] + 1


def runs_alike(compiled, program, sizes, *more, trains=False):
    for size in sizes:
        expected, actual = (numbers(*size).requires_grad_(trains) for _ in range(2))
        torch.manual_seed(0)
        wanted = program(expected, *more)
        torch.manual_seed(0)
        torch.testing.assert_close(compiled(actual, *more), wanted, rtol=0, atol=0)
        if trains:
            wanted.sum().backward()
            torch.manual_seed(0)
            compiled(actual, *more).sum().backward()
            torch.testing.assert_close(actual.grad, expected.grad, rtol=0, atol=0)
        assert torch.equal(actual, expected)


@pytest.mark.parametrize(
    ("program", "sizes", "more"),
    [
        (writes_a_view, SIZES, ()),
        (writes_its_input, SIZES, ()),
        (functional.dropout, SIZES, (0.5,)),
        (lambda x: functional.layer_norm(x, x.shape[1:], eps=1e-3), SIZES, ()),
        (lambda x: functional.interpolate(x[None], scale_factor=2.0), SIZES, ()),
        (nn.BatchNorm1d(6).eval().requires_grad_(False), ROWS, ()),
    ],
)
def test_one_graph_serves_all_sizes(built, program, sizes, more):
    runs_alike(torch.compile(program, backend=aliasproof, dynamic=True), program, sizes, *more)
    assert built() == 1


@pytest.mark.parametrize("program", [torch.hann_window, lambda n: torch.arange(1, 3 * n, n)])
def test_ints_without_a_tensor(built, program):
    compiled = torch.compile(program, backend=aliasproof, dynamic=True)
    for number in (1, 5, 6):
        assert torch.equal(compiled(number), program(number))


@pytest.mark.parametrize("program", [lambda x: (x.sin() * x).sum(0), nn.Linear(6, 3)])
def test_a_forward_and_a_backward_graph_serve_all_sizes(built, program):
    compiled = torch.compile(program, backend=aliasproof, dynamic=True)
    runs_alike(compiled, program, ROWS, trains=True)
    assert built() == 2


def test_the_second_size_makes_it_a_symbol(built):
    runs_alike(torch.compile(writes_a_view, backend=aliasproof), writes_a_view, SIZES)
    assert built() == 2


def test_a_size_that_breaks_a_guard_has_a_graph_of_its_own(built):
    def reads_a_size(x):
        # A kernel reads the size, so Dynamo has no guard on it.
        return torch.diag(x.reshape(-1)[: x.shape[0]]) + x.t().reshape(-1).add_(1).sum()

    compiled = torch.compile(reads_a_size, backend=aliasproof, dynamic=True)
    runs_alike(compiled, reads_a_size, [(4, 3), (5, 4), (4, 1), (6, 3)])
    assert built() <= 3


def test_inputs_that_share_a_storage_have_a_graph_per_size(built):
    def program(x, y):
        x.add_(1)
        return y * 2

    compiled = torch.compile(program, backend=aliasproof, dynamic=True)
    for rows in (4, 5, 6):
        for apart in (False, True):
            source = numbers(rows + 1, 3)
            inputs = source[1:], source[:1].clone() if apart else source[:rows]
            assert_alike(compiled, program, *inputs)
