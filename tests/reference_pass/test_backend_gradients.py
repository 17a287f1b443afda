"""`torch.compile(backend="aliasproof")` with autograd and autocast: as eager, or refused."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.reference_pass.backend import aliasproof
from aliasproof.reference_pass.backend import building as backend
from aliasproof.reference_pass.backend.compiled import Compiled
from aliasproof.reference_pass.backend.dynamo_backend import boxed
from aliasproof.reference_pass.pipeline import Functionalize, PipelineOptions

Run = Callable[[Callable[..., Any]], Any]


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def numbers(requires_grad: bool = False) -> Tensor:
    return torch.arange(12.0).view(4, 3).requires_grad_(requires_grad)


def assert_as_eager(run: Run) -> None:
    """`run` takes what compiles a function, and returns tensors in any nesting."""
    expected = run(lambda function: function)
    actual = run(lambda function: torch.compile(function, backend=aliasproof))
    assert _described(expected) == _described(actual)


def _described(values: Any) -> list[object]:
    leaves = torch.utils._pytree.tree_leaves(values)
    return [(leaf.tolist(), leaf.dtype, leaf.requires_grad) for leaf in leaves]


def test_gradients_that_the_function_takes():
    def gradient(x):
        return torch.func.grad(lambda y: (y * y).sum())(x)

    assert_as_eager(lambda compiled: compiled(gradient)(numbers()))


def test_a_second_layout_under_autocast():
    def run(compiled):
        product, (x, y) = compiled(lambda x, y: x.t() @ y), (numbers(), numbers())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return product(x, y), product(x, x.view(4, 3))  # on one storage

    assert_as_eager(run)


@pytest.mark.parametrize("ambient", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_autocast_in_the_function_and_around_it(ambient, inside):
    def product(x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
            return x @ x.t()

    def run(compiled):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=ambient):
            return compiled(product)(numbers())

    assert_as_eager(run)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x, x[0].detach()),
        lambda x: (x, x[0].data, x.detach()),
        lambda x: (x, x.detach()[1:]),
    ],
)
def test_a_detached_view_of_an_output_requires_no_gradient(function):
    assert_as_eager(lambda compiled: compiled(lambda x: function(x * 2))(numbers(True)))


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2).t() + 1,  # written in place, into a view of the product
        lambda x: ((x * 2)[1:] + 1, x * 3),
        lambda x: ((x * 2).view(-1), (x * 3).t()),
    ],
)
def test_results_are_written_by_the_caller_as_in_eager(function, requires_grad):
    def run(compiled):
        x, weight = numbers(requires_grad), torch.ones((), requires_grad=True)
        results = compiled(function)(x)
        for result in results if isinstance(results, tuple) else [results]:
            result.mul_(weight)
        (results[0] if isinstance(results, tuple) else results).sum().backward()
        return [results, weight.grad, x.grad if requires_grad else ()]

    assert_as_eager(run)


@pytest.mark.parametrize("grad", [True, False])
def test_parameters_that_are_attributes_of_the_graph_get_gradients(grad):
    linear = nn.Linear(3, 2)
    traced = fx.symbolic_trace(linear)
    with torch.set_grad_enabled(grad):
        result = aliasproof(traced, [numbers()])(numbers())
    assert torch.equal(result, traced(numbers()))
    assert result.requires_grad == grad
    if grad:
        (gradient,) = torch.autograd.grad(result.sum(), linear.bias)
        assert gradient.tolist() == [4.0, 4.0]


def draws_from_its_own_generator(x):
    return x + torch.rand(x.shape, generator=torch.Generator().manual_seed(1))


def seeds(x):
    torch.manual_seed(1)
    return x + torch.rand(x.shape)


def seeds_and_restores(x):
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(1)
        return x + torch.rand(x.shape)


def quantizes(x):
    return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (draws_from_its_own_generator, "explicit generator"),
        (seeds, "seeds the default generator"),
        (seeds_and_restores, "seeds the default generator"),
        (quantizes, "has a scale beside its storage"),
    ],
)
def test_what_no_graph_of_storages_says_is_refused_while_compiling(function, reason):
    before = torch.get_rng_state()
    with pytest.raises(Exception, match=reason):
        Compiled(Traced(function), [numbers()])
    assert torch.equal(before, torch.get_rng_state())


class Traced(fx.GraphModule):
    """A graph module that calls a function, as Dynamo puts functions that it allows into graphs."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        graph = fx.Graph()
        graph.output((graph.call_function(function, (graph.placeholder("x"),)),))
        super().__init__({}, graph)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")  # it is deprecated
def test_dynamo_falls_back_to_eager_where_the_passes_refuse():
    with torch._dynamo.config.patch(suppress_errors=True):
        compiled = torch.compile(quantizes, backend=aliasproof)
        assert torch.equal(compiled(numbers()), quantizes(numbers()))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # imported by torch's jvp
def test_a_trace_that_is_given_up_leaves_forward_mode_ad(caplog):
    """For the second size, the trace with symbols fails, and one for that size comes after it."""

    def program(x):
        return torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1]

    compiled = torch.compile(program, backend="aliasproof")
    for size in (4, 2, 3):
        x = torch.arange(1.0, 1 + size)
        assert torch.equal(compiled(x), x.cos())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_dynamo_breaks_the_graph_where_it_depends_on_data():
    def write_at(x, index, value):
        x[index] = value
        return x + x[index]

    given = numbers(), torch.tensor(1), torch.ones(3)
    assert_as_eager(lambda compiled: compiled(write_at)(given[0].clone(), *given[1:]))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="data-dependent"):
        torch.compile(write_at, backend=aliasproof, fullgraph=True)(*given)


def test_the_cache_of_layouts_is_bounded():
    graph = fx.symbolic_trace(lambda x: x + 1)
    compiled = Compiled(graph, [torch.ones(4)])
    compiled.MOST_LAYOUTS = 2
    for size in (1, 2, 3):
        compiled(torch.ones(size))
    assert len(compiled.graphs) == 2


def test_a_boxed_call_frees_its_inputs_before_it_ends():
    freed = []

    def note(x):
        freed.append(alive() is None)
        return x.clone()

    with torch.library._scoped_library("reference_pass_tests", "FRAGMENT") as library:
        library.define("note(Tensor x) -> Tensor")
        library.impl("note", note, "CPU")
        library.impl("note", torch.empty_like, "Meta")
        program = lambda x: torch.ops.reference_pass_tests.note(x * 2)  # noqa: E731
        graph = make_fx(program, tracing_mode="fake")(numbers())
        run = boxed(PipelineOptions(), graph, [numbers()])
        inputs = [numbers()]
        alive = weakref.ref(inputs[0])
        assert torch.equal(run(inputs), numbers() * 2)
    assert (freed, inputs) == ([True], [])


def test_an_lstm_is_trained_on_an_input_that_requires_no_gradient():
    # `aot_eager` raises an AssertionError for it, unless the input requires a gradient.
    def gradients(backend, input_requires_grad):
        torch._dynamo.reset()
        torch.manual_seed(0)
        lstm, x = nn.LSTM(4, 8, num_layers=2), torch.randn(3, 2, 4)
        compiled = torch.compile(lstm, backend=backend, fullgraph=True)
        compiled(x.requires_grad_(input_requires_grad))[0].sum().backward()
        return [parameter.grad for parameter in lstm.parameters()]

    with torch._dynamo.config.patch(allow_rnn=True):
        trained, expected = gradients("aliasproof", False), gradients("aot_eager", True)
    assert all(map(torch.equal, trained, expected))


def test_each_graph_of_a_training_step_is_built_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with mock.patch.object(backend, "Functionalize", wraps=Functionalize) as pipelines:
        compiled = torch.compile(model, backend=aliasproof)
        for _ in range(2):
            compiled(torch.ones(2, 4)).sum().backward()
    assert pipelines.call_count == 2  # forward and backward


# --- more than one backward pass ------------------------------------------------------------------


def saves_what_it_computes(x: Tensor) -> Tensor:
    return (x.sin() * x).tanh() * x.exp()


def test_a_graph_that_is_retained_runs_backward_again():
    def run(compiled):
        x, function = numbers(True), compiled(saves_what_it_computes)
        y = function(x).sum()
        (first,) = torch.autograd.grad(y, x, retain_graph=True)
        y.backward()
        return first, x.grad, torch.autograd.functional.jacobian(function, numbers()[0])

    assert_as_eager(run)


def test_two_losses_of_one_graph():
    def run(compiled):
        x = numbers(True)
        first, second = compiled(lambda x: (x.sin().exp().sum(), x.cos().exp().sum()))(x)
        first.backward(retain_graph=True)
        second.backward()
        return x.grad

    assert_as_eager(run)


def test_batches_of_gradients():
    def run(compiled):
        x, function = numbers()[0].requires_grad_(), compiled(saves_what_it_computes)
        (rows,) = torch.autograd.grad(function(x), x, torch.eye(3), is_grads_batched=True)
        return rows, torch.autograd.functional.jacobian(function, numbers()[1], vectorize=True)

    assert_as_eager(run)


@pytest.mark.parametrize("forward_too", [False, True])
def test_compiled_autograd(forward_too):
    def run(compiled):
        weight: Any = numbers(True)
        gradients = []
        forward = compiled(torch.nn.functional.linear) if forward_too else nn.functional.linear
        for rows in (2, 3):
            with torch._dynamo.compiled_autograd._enable(compiled):
                forward(torch.ones(rows, 3), weight).tanh().sum().backward()
            gradients.append(weight.grad.clone())
        return gradients

    assert_as_eager(run)


def test_the_backward_computes_nothing_again_from_an_input_that_was_written():
    def program(x):
        x.cos_()  # whose backward needs the sine of the old contents
        return x * 2

    def gradient(compiled):
        leaf = torch.arange(3.0).requires_grad_()
        compiled(leaf * 1).sum().backward()
        return leaf.grad

    expected = gradient(program)
    assert torch.equal(gradient(torch.compile(program, backend="aliasproof")), expected)
