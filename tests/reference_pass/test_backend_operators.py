"""Special calls in the graphs of Dynamo and AOTAutograd under `torch.compile(backend=...)`."""

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._higher_order_ops.effects import _register_effectful_op
from torch._library.effects import EffectType
from torch.nn import functional

from aliasproof.reference_pass import Refused, functionalize, reinplace, remove_noops
from aliasproof.reference_pass.backend import aliasproof
from aliasproof.reference_pass.backend.constants import expand_constants
from aliasproof.reference_pass.capture.function_trace import capture
from tests.reference_pass.scene import assert_alike


@torch.library.custom_op("reference_pass_tests::add_if_given", mutates_args=("y",))
def add_if_given(x: Tensor, y: Tensor | None = None) -> Tensor:
    if y is not None:
        y.add_(x)
    return x * 2


@add_if_given.register_fake
def _(x: Tensor, y: Tensor | None = None) -> Tensor:
    return torch.empty_like(x)


def test_a_written_argument_may_be_omitted():
    def program(x: Tensor) -> Tensor:
        first: Tensor = add_if_given(x)
        add_if_given(x[:2], x[2:])
        return first

    compiled = torch.compile(program, backend=aliasproof)
    assert_alike(compiled, program, torch.ones(4))
    compiled(torch.ones(4)).add_(1)  # a new tensor, no view


def test_a_graph_with_a_custom_operator_is_captured_once(monkeypatch):
    """Such an operator may depend on locations; Dynamo's graph has a packet of the operator."""
    captured = []

    def noted(*args: Any, **options: Any) -> fx.GraphModule:
        captured.append(args)
        return capture(*args, **options)

    monkeypatch.setattr("aliasproof.reference_pass.backend.building.capture", noted)
    x = torch.ones(3)
    packet = torch.ops.reference_pass_tests.add_if_given
    compiled = torch.compile(lambda x: packet(x, x + 1), backend=aliasproof)
    assert torch.equal(compiled(x), x * 2)
    assert len(captured) == 1


CALLS: list[float] = []


@torch.library.custom_op("reference_pass_tests::counted", mutates_args=())
def counted(x: Tensor) -> Tensor:
    CALLS.append(x.sum().item())
    return x.clone()


counted.register_fake(torch.empty_like)


def test_a_call_is_made_for_its_effect():
    handle = _register_effectful_op(
        torch.ops.reference_pass_tests.counted.default, EffectType.ORDERED
    )

    def program(x):
        counted(x)
        counted(x)
        return x + 1

    try:
        compiled = torch.compile(program, backend=aliasproof)
        compiled(torch.ones(2))
        CALLS.clear()
        compiled(torch.ones(3))
    finally:
        handle.destroy()
    assert CALLS == [3.0, 3.0]


def test_floats_beside_ints_that_change():
    program = fx.symbolic_trace(lambda x, n, scale: (torch.narrow(x, 0, 0, n) * scale,))
    x = torch.arange(6.0)
    compiled = aliasproof(program, [x, 2, 0.5])
    # The second int builds a graph with a symbol.
    for n, scale in ((3, 0.5), (4, 0.25), (5, 0.5), (3, 0.25)):
        assert torch.equal(*compiled(x, n, scale), *program(x, n, scale))


def test_an_error_that_is_an_effect_is_raised():
    compiled = torch.compile(torch.linalg.cholesky, backend=aliasproof)
    with pytest.raises(RuntimeError, match="not positive-definite"):
        compiled(-torch.eye(3).requires_grad_())


@pytest.mark.parametrize(
    "function",
    [
        lambda x, e: functional.layer_norm(x, (3,), eps=e),
        functional.dropout,  # branches on its probability
        lambda x, e: functional.interpolate(x[None, None], scale_factor=e * 8),
        lambda x, e: x * e,
    ],
)
def test_floats_with_dynamic_sizes(function):
    compiled = torch.compile(function, backend=aliasproof, dynamic=True)
    for size, number in ((4, 0.5), (4, 0.25), (5, 0.25)):
        x = torch.arange(3.0 * size).view(size, 3)
        torch.manual_seed(0)
        expected = function(x, number)
        torch.manual_seed(0)
        assert torch.equal(compiled(x, number), expected)


def jagged(*lengths: int) -> Tensor:
    rows = [torch.arange(3.0 * length).view(length, 3) for length in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


@pytest.mark.filterwarnings("ignore")  # warnings of torch: jagged tensors are a prototype
@pytest.mark.parametrize("trains", [False, True])
def test_jagged_tensors_are_taken_apart(trains):
    compiled = torch.compile(lambda x: (x * 2).sin(), backend=aliasproof)
    for lengths in ((2, 4), (2, 5)):
        x = jagged(*lengths).requires_grad_(trains)
        result = compiled(x)
        assert torch.equal(result.values(), (x.values() * 2).sin())
        if trains:
            result.values().sum().backward()
            assert x.grad is not None
            assert torch.equal(x.grad.values(), 2 * (x.values() * 2).cos())


def test_an_operator_that_asks_for_data_may_have_a_decomposition():
    def there_and_back(x):
        window = torch.hann_window(16)
        return torch.istft(torch.stft(x, 16, window=window, return_complex=True), 16, window=window)

    x = torch.arange(64.0)
    compiled = torch.compile(there_and_back, backend=aliasproof)
    assert torch.equal(compiled(x), there_and_back(x))


@pytest.mark.filterwarnings("ignore")  # warnings of Dynamo about the refusal that it suppresses
def test_a_sparse_gradient_is_refused_while_compiling():
    def looks_up(weight):
        return functional.embedding(torch.tensor([0, 2]), weight, sparse=True) * 2

    weight = torch.ones(4, 3, requires_grad=True)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="sparse_coo tensor"):
        torch.compile(looks_up, backend=aliasproof)(weight)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(suppress_errors=True):
        torch.compile(looks_up, backend=aliasproof)(weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.is_sparse


@pytest.mark.parametrize("program", [lambda x: x.add(1).mul_(2), nn.ReLU(), lambda x: x[1:] + 1])
@pytest.mark.parametrize("graph_pass", [reinplace, remove_noops])
def test_a_pass_on_graphs_refuses_other_calls(program, graph_pass):
    with pytest.raises(Refused, match="not an ATen call; functionalize the graph first"):
        graph_pass(fx.symbolic_trace(program), torch.ones(4))


# --- constants of a graph as one element, and the bits of the calls that read them ----------------


def targets(function, *inputs):
    graph_module = functionalize(function, *inputs)
    expand_constants(graph_module)
    result = graph_module(*inputs)
    assert torch.equal(result, function(*inputs))
    return [str(node.target) for node in graph_module.graph.nodes]


def lerp(base, end):
    difference = end - base
    return torch.addcmul(base, torch.full_like(difference, 0.1), difference)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(5, 7), (37, 29), (4, 3, 17, 5)])
def test_one_element_gives_the_bits_of_a_constant(dtype, sizes):
    torch.manual_seed(0)
    base, end = torch.randn(sizes).to(dtype), torch.randn(sizes).to(dtype)
    assert "aten.full_like.default" not in targets(lerp, base, end)
    assert "aten.full_like.default" not in targets(lerp, base.mT, end.mT)


@pytest.mark.parametrize(
    ("function", "sizes"),
    [
        (lambda x: torch.full_like(x, 2) * x, (4,)),  # another call
        (lambda x: torch.full_like(x, 2), (4,)),  # it is returned
        (lambda x: torch.addcmul(torch.full_like(x, 2), x, x), (4,)),  # its sum may be in place
        (lambda x: torch.addcmul(x[:, :4], torch.full_like(x[:, :4], 2), x[:, 4:]), (3, 8)),
        (lambda x: torch.addcmul(x, torch.full_like(x, 2), x[0]), (3, 8)),
        # One of the two may be one element: the loop over dense tensors takes one that repeats.
        (lambda x: torch.addcmul(x, torch.full_like(x, 2), torch.full_like(x, 3)), (4,)),
    ],
)
def test_other_constants_stay(function, sizes):
    assert "aten.full_like.default" in targets(function, torch.randn(sizes))
