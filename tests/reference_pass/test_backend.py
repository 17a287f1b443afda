"""`torch.compile(backend="aliasproof")`: a caller sees the same as in eager, or it is refused."""

import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from aliasproof.reference_pass.backend.compiled import Compiled
from aliasproof.reference_pass.backend.dynamo_backend import aliasproof, compile_boxed
from aliasproof.reference_pass.pipeline import PipelineOptions
from benchmarks.models import bytes_of, compiled_by
from tests.reference_pass.graphs import calling

# Dynamo warns about optimisers and suppressed refusals, and torch about its own `torch.jit.script`.
pytestmark = pytest.mark.filterwarnings("ignore")

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Steps = Callable[[Compile], Any]
CALLS = 3  # the first one is special: it runs the graph before reinplacing


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend=aliasproof, **options)


def left_by(steps: Steps, compile_function: Compile) -> list[object]:
    """All values of the returned tensors, or the kind of error that the steps raise."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    try:
        result = steps(compile_function)
    except RuntimeError as error:
        return ["version" if "modified by an inplace operation" in str(error) else str(error)]
    return [
        (repr(leaf.tolist()), leaf.dtype, leaf.stride(), leaf.requires_grad)
        if isinstance(leaf, Tensor)
        else leaf
        for leaf in torch.utils._pytree.tree_leaves(result)
    ]


def assert_as_eager(steps: Steps, reference: Compile = lambda function: function) -> None:
    """Steps, which take a compile function, return the same with the backend as in eager."""
    assert left_by(steps, compiled) == left_by(steps, reference)


TO_COMPARE: list[Steps] = []


def to_compare(steps: Steps) -> Steps:
    TO_COMPARE.append(steps)
    return steps


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "foreach": True}),
        (torch.optim.Adam, {"weight_decay": 0.1, "amsgrad": True, "foreach": False}),
    ],
)
def test_steps_of_optimisers(kind, options):
    def run(compiled):
        parameters = [nn.Parameter(torch.arange(6.0).view(2, 3)), nn.Parameter(torch.ones(4))]
        optimiser = kind(parameters, lr=0.1, **options)
        step = compiled(optimiser.step)
        for number in range(3):
            for each in parameters:
                each.grad = (number + 1) * each.detach()
            step()
        return [each.detach() for each in parameters], [
            list(each.values()) for each in optimiser.state.values()
        ]

    assert_as_eager(run, lambda function: torch.compile(function, backend="eager"))


@to_compare
def training_steps_of_a_model_with_batch_norm(compiled):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True))
    forward = compiled(model)
    results = [forward(torch.randn(5, 4)) for _ in range(2)]
    sum(each.sum() for each in results).backward()
    gradients = [each.grad for each in model.parameters()]
    return (
        [each.detach() for each in results],
        [each.clone() for each in model.buffers()],
        gradients,
    )


@to_compare
def a_channels_last_activation_in_place(compiled):
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.ReLU(inplace=True))
    x = torch.ones(2, 2, 4, 4).to(memory_format=torch.channels_last)
    result = compiled(model)(x * torch.arange(4.0))
    result.sum().backward()
    return result, [each.grad for each in model.parameters()]


@to_compare
def batch_norm_updates_its_statistics_without_gradients(compiled):
    model = nn.BatchNorm2d(4)
    with torch.no_grad():
        return [compiled(model)(torch.randn(2, 4, 3, 3)) for _ in range(2)], list(model.buffers())


@to_compare
def dropout_leaves_the_generator_as_eager_does(compiled):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    with torch.no_grad():
        return compiled(model)(torch.ones(3, 4)), torch.rand(2)


@pytest.mark.parametrize("sizes", [(12, 600, 3, 9), (5, 129, 2, 3)])
def test_a_product_with_a_parameter_has_the_bits_of_eager_without_gradients(sizes):
    # `matmul` folds the batch into one product if the parameter requires a gradient.
    rows, inner, batch, columns = sizes

    def run(compiled):
        weight, x = nn.Parameter(torch.randn(rows, inner)), torch.randn(batch, inner, columns)
        with torch.no_grad():
            return compiled(lambda x: weight @ x)(x), nn.functional.linear(x.mT, weight) @ weight

    assert_as_eager(run)


@to_compare
def a_parameter_is_written_without_gradients(compiled):
    weight = nn.Parameter(torch.ones(3, 3))
    with torch.no_grad():
        return compiled(lambda x: weight.mul_(x)[0].add_(1) + weight.detach())(
            torch.tensor(2.0)
        ), weight.detach()


def test_a_start_that_is_a_tensor_beside_a_size_that_the_trace_fixed():
    compiled = torch.compile(lambda x, start: x.narrow(0, start, 0) + 1, backend="aliasproof")
    assert compiled(torch.ones(1), torch.tensor(0)).shape == (0,)
    assert compiled(torch.ones(1), torch.tensor(1)).shape == (0,)


# --- writes that autograd does not record ---------------------------------------------------------


@to_compare
def clamps_others(compiled: Compile) -> Any:
    """A training step of one module, which clamps the weights of another one."""
    one, other = nn.Linear(3, 3), nn.Linear(3, 3)
    parameters = [*one.parameters(), *other.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.1)

    @compiled
    def loss(x: Tensor) -> Any:
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.clamp_(-0.5, 0.5)
            other.weight[0].mul_(2)
        return one(x).sum()

    seen: list[object] = []
    for _ in range(CALLS):
        loss(torch.ones(2, 3)).backward()
        seen += [parameter.grad for parameter in parameters]
        optimizer.step()
        optimizer.zero_grad()
    return [*seen, *parameters]


@to_compare
def writes_to_a_part(compiled: Compile) -> Any:
    """The gradient of the written part is no view of the gradient of the whole."""
    weight = torch.ones(2, 3, requires_grad=True)

    @compiled
    def call(x: Tensor) -> Tensor:
        x[1:3] = weight
        return x * 2

    for _ in range(CALLS):
        call(torch.ones(10, 3)).sum().backward()
    assert weight.grad is not None
    return [weight.grad, weight.grad.untyped_storage().nbytes()]


@to_compare
def writes_attributes(compiled: Compile) -> Any:
    """Dynamo makes a closure's parameters attributes of its graph, and not inputs."""
    layer = nn.Linear(6, 6, bias=False)
    optimizer = torch.optim.Muon(layer.parameters(), lr=0.1)
    step = compiled(lambda: optimizer.step())  # noqa: PLW0108
    for _ in range(CALLS):
        optimizer.zero_grad()
        layer(torch.ones(2, 6)).pow(2).sum().backward()
        step()
    return layer.weight


@to_compare
def writes_a_result(compiled: Compile) -> Any:
    weight = torch.ones(3, 3, requires_grad=True)

    @compiled
    def call(h: Tensor) -> Tensor:
        with torch.no_grad():
            h[0].mul_(2)
            h[1].copy_(weight[0] * 3)
        return h * weight

    for _ in range(CALLS):
        h = weight * 2
        history = h.grad_fn
        (call(h).sum() + h.sum()).backward()
        assert h.grad_fn is history
    return weight.grad


# --- inputs with a history ------------------------------------------------------------------------


@to_compare
def truncated(compiled: Compile) -> Any:
    """Truncated backpropagation through time: the history of the state is already freed."""
    cell = nn.LSTMCell(3, 3)

    @compiled
    def call(x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        h, c = cell(x, (h.detach(), c.detach()))
        h = h.clone()
        h[:, 0].mul_(0.5)
        return h, c

    h = c = torch.zeros(2, 3)
    for _ in range(CALLS):
        h, c = call(torch.ones(2, 3), h, c)
        (h.sum() + c.sum()).backward()
    return [parameter.grad for parameter in cell.parameters()]


@to_compare
def overwrites_what_is_saved(compiled: Compile) -> Any:
    @compiled
    def call(view: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        y = x * weight
        view.add_(1)
        return y

    x, weight = torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)
    call(x.view(-1), x, weight).sum().backward()
    return weight.grad


# --- inputs that share storage, one of which autograd saves ---------------------------------------


@to_compare
def statistics_in_one_tensor(compiled: Compile) -> Any:
    both, norm = torch.tensor([0.0] * 4 + [1.0] * 4), nn.BatchNorm1d(4)
    norm.running_mean, norm.running_var = both[:4], both[4:]
    call, seen = compiled(lambda x: norm(x) * 2), []
    for _ in range(CALLS):
        x = torch.randn(5, 4, requires_grad=True)
        call(x).pow(2).sum().backward()
        seen.append(x.grad)
    return [*seen, both]


@to_compare
def writes_one_half(compiled: Compile) -> Any:
    base = torch.arange(8.0)

    @compiled
    def call(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
        y = a * weight
        b.add_(1)
        return y

    weight = torch.ones(4, requires_grad=True)
    for _ in range(CALLS):  # each tensor from `data` has its own version counter
        call(base.data[:4], base.data[4:], weight).sum().backward()
    return [weight.grad, base]


# --- operators that keep their operands -----------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "expected"), [((), [4.0] * 4), (("store", "load"), [4.0, 6.0, 6.0, 6.0])]
)
def test_an_operator_may_keep_its_operands_unless_it_is_stated(keeping, stated, expected):
    """The first call is not reinplaced. If `load` is stated to keep nothing, later calls err."""

    def program(x: Tensor) -> Any:
        a = x + 1
        stored = keeping.store(a)
        b = a + 1
        return keeping.load(b) * stored

    options: Any = {"non_aliasing": [getattr(keeping, name).default for name in stated]}
    call = torch.compile(program, backend=aliasproof, options=options)
    assert [call(torch.ones(1)).item() for _ in range(4)] == expected


def test_a_storage_that_is_resized_is_refused():
    def program(x: Tensor, y: Tensor) -> Tensor:
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(12)
        x.copy_(y)
        return x * 2

    with pytest.raises(Exception, match="resizes a storage below tensors that show it"):
        torch.compile(program, backend=aliasproof)(torch.zeros(3), torch.ones(3))


# --- forward mode, grad modes, and options --------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2).view(2, 2).sin(),
        lambda x: x / (x * 2 + 1),
        lambda x: x.clone().mul_(x)[1:],
    ],
)
def test_tangents_of_forward_mode_are_those_of_eager(function):
    """Operators with `out=` have no tangents, and `detach` drops them."""

    def tangent(of):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(torch.arange(4.0), torch.ones(4))
            return forward_ad.unpack_dual(of(dual)).tangent

    assert torch.equal(tangent(compiled(function)), tangent(function))
    found, wanted = (
        torch.autograd.functional.jacobian(
            of, torch.arange(4.0), strategy="forward-mode", vectorize=True
        )
        for of in (compiled(function), function)
    )
    assert torch.equal(found, wanted)
    assert torch.equal(compiled(function)(torch.ones(4)), function(torch.ones(4)))


def test_a_float_that_is_a_key_has_a_sign_also_at_zero():
    """Dropout takes a number, so there is a graph for each value of the floats."""

    def scaled(x, probability, scale):
        return functional.dropout(x, probability) * scale

    function, x = compiled(scaled, dynamic=True), torch.ones(2)
    for scale in (0.5, 0.0, -0.0, 0.0):
        result = function(x, 0.25, scale)
        assert bool(result.signbit().any()) == (str(scale) == "-0.0")


@to_compare
def gradients_that_the_function_enables_under_no_grad(compiled):
    x, weight = torch.ones(2), torch.ones(2, requires_grad=True)

    def scaled(x):
        with torch.enable_grad():
            return weight * x

    def forces(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad((x**2).sum(), x)[0]

    with torch.no_grad():
        return compiled(scaled)(x), compiled(forces)(x), compiled(lambda x: weight * x)(x)


def test_a_mode_is_for_inductor():
    x = torch.ones(2)
    call = compiled(lambda x: x.add_(1) * 2, mode="reduce-overhead")
    assert torch.equal(call(x), torch.full((2,), 4.0))
    assert torch.equal(x, torch.full((2,), 2.0))


def test_an_option_that_does_not_exist_is_refused():
    with pytest.raises(Exception, match=r"no option trace.enabled: this backend has views, strict"):
        compiled(lambda x: x + 1, options={"trace.enabled": 0})(torch.ones(2))


# --- memory, in bytes of the allocator ------------------------------------------------------------


def peak(scene: Any, backend: str) -> int:
    torch._dynamo.reset()
    call = scene(compiled_by(backend))
    for _ in range(2):
        call()
    return bytes_of(call)[0]


def optimizer_step(compiled, kind=torch.optim.AdamW, **options):
    parameters = [nn.Parameter(torch.randn(64, 64)) for _ in range(3)]
    for parameter in parameters:
        parameter.grad = torch.randn(64, 64)
    optimizer = kind(parameters, lr=0.1, **options)
    optimizer.step()  # makes the state
    return compiled(optimizer.step)


def training_step(compiled):
    layers = [nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Dropout(0.1), nn.Linear(64, 32)]
    forward, x = compiled(nn.Sequential(*layers, *layers)), torch.randn(64, 32)
    return lambda: forward(x).square().mean().backward()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.AdamW, {"foreach": False}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.Adamax, {"foreach": True}),
        (torch.optim.RMSprop, {"foreach": True, "centered": True}),
    ],
)
def test_the_step_of_an_optimizer_holds_no_more_than_one_in_eager(kind, options):
    scene = functools.partial(optimizer_step, kind=kind, **options)
    parameter = 64 * 64 * 4
    assert peak(scene, "aliasproof") - peak(scene, "eager") < parameter / 10


def test_a_training_step_holds_no_more_than_under_aot_eager():
    assert peak(training_step, "aliasproof") <= 1.1 * peak(training_step, "aot_eager")


def test_a_small_result_keeps_its_own_bytes_alive():
    x = torch.ones(1000, 1000)
    row_of = compiled_by("aliasproof")(lambda x: (x + 1)[:1] * 2)

    def call():
        return row_of(x)

    call()
    assert bytes_of(call)[1] == 1000 * 4


# --- autograd and autocast: as eager, or refused --------------------------------------------------


def numbers(requires_grad: bool = False) -> Tensor:
    return torch.arange(12.0).view(4, 3).requires_grad_(requires_grad)


@to_compare
def gradients_that_the_function_takes(compiled):
    def gradient(x):
        return torch.func.grad(lambda y: (y * y).sum())(x)

    return compiled(gradient)(numbers())


@to_compare
def a_second_layout_under_autocast(compiled):
    product, (x, y) = compiled(lambda x, y: x.t() @ y), (numbers(), numbers())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return product(x, y), product(x, x.view(4, 3))  # on one storage


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
        Compiled(calling(function), [numbers()])
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("dynamic", [None, True])
def test_dynamo_falls_back_to_eager_where_the_passes_refuse(dynamic):
    with torch._dynamo.config.patch(suppress_errors=True):
        quantized = compiled(quantizes, dynamic=dynamic)
        for rows in (4, 5):
            x = torch.arange(3.0 * rows).view(rows, 3)
            assert torch.equal(quantized(x), quantizes(x))


def test_a_trace_that_is_given_up_leaves_forward_mode_ad(caplog):
    """For the second size, the symbolic trace fails, and then a trace for that size follows."""

    def program(x):
        return torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1]

    compiled = torch.compile(program, backend="aliasproof")
    for size in (4, 2, 3):
        x = torch.arange(1.0, 1 + size)
        assert torch.equal(compiled(x), x.cos())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_dynamo_breaks_the_graph_where_it_depends_on_data():
    def add_to_row(x, index):  # whether `squeeze` removes the dimension depends on data
        end = index.item()
        return x[end - 1 : end].squeeze(0).add_(1)

    given = numbers(), torch.tensor(1)
    assert_as_eager(lambda compiled: compiled(add_to_row)(given[0].clone(), given[1]))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="data-dependent"):
        torch.compile(add_to_row, backend=aliasproof, fullgraph=True)(*given)


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
        run = compile_boxed(PipelineOptions(), graph, [numbers()])
        inputs = [numbers()]
        alive = weakref.ref(inputs[0])
        assert torch.equal(run(inputs), numbers() * 2)
    assert (freed, inputs) == ([True], [])


def test_an_lstm_is_trained_on_an_input_that_requires_no_gradient():
    # `aot_eager` raises an AssertionError here, unless the input requires a gradient.
    def gradients(backend, input_requires_grad):
        torch._dynamo.reset()
        torch.manual_seed(0)
        lstm, x = nn.LSTM(2, 3), torch.randn(2, 1, 2)
        compiled = torch.compile(lstm, backend=backend, fullgraph=True)
        compiled(x.requires_grad_(input_requires_grad))[0].sum().backward()
        return [parameter.grad for parameter in lstm.parameters()]

    with torch._dynamo.config.patch(allow_rnn=True):
        trained, expected = gradients("aliasproof", False), gradients("aot_eager", True)
    assert all(map(torch.equal, trained, expected))


# --- more than one backward pass ------------------------------------------------------------------


def saves_what_it_computes(x: Tensor) -> Tensor:
    return (x.sin() * x).tanh() * x.exp()


@to_compare
def a_graph_that_is_retained_runs_backward_again(compiled):
    x, function = numbers(True), compiled(saves_what_it_computes)
    y = function(x).sum()
    (first,) = torch.autograd.grad(y, x, retain_graph=True)
    y.backward()
    return first, x.grad, torch.autograd.functional.jacobian(function, numbers()[0])


@to_compare
def batches_of_gradients(compiled):
    x, function = numbers()[0].requires_grad_(), compiled(saves_what_it_computes)
    (rows,) = torch.autograd.grad(function(x), x, torch.eye(3), is_grads_batched=True)
    return rows, torch.autograd.functional.jacobian(function, numbers()[1], vectorize=True)


@to_compare
def compiled_autograd(compiled):
    weight: Any = numbers(True)
    gradients = []
    forward = compiled(functional.linear)
    for rows in (2, 3):
        with torch._dynamo.compiled_autograd._enable(compiled):
            forward(torch.ones(rows, 3), weight).tanh().sum().backward()
        gradients.append(weight.grad.clone())
    return gradients


@pytest.mark.parametrize("steps", TO_COMPARE, ids=lambda steps: steps.__name__)
def test_all_that_a_caller_sees_is_as_in_eager(steps: Steps) -> None:
    assert_as_eager(steps)
