"""Training programs that overwrite what has a history, or draw numbers: each bit as in eager."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch.utils.checkpoint import checkpoint

from aliasproof.reference_pass.backend import aliasproof

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def left(function: Callable[..., Any], *values: Tensor) -> list[Any]:
    """Bits and strides of outputs and inputs, bits of gradients, and the next random number."""
    torch.manual_seed(0)
    leaves = [value.clone().requires_grad_() for value in values]
    given = [leaf * 1 for leaf in leaves]
    output = function(*given)
    outputs = [output] if isinstance(output, Tensor) else list(output or ())
    ends = [tensor for tensor in (*outputs, *given) if tensor.requires_grad]
    gradients: Sequence[Tensor] = ()
    if ends:
        total = torch.stack([end.sum() for end in ends]).sum()
        gradients = torch.autograd.grad(total, leaves, materialize_grads=True)
    tensors = [*outputs, *given, *gradients, torch.rand(1)]
    strides = [tensor.stride() for tensor in (*outputs, *given)]
    return [*(repr(tensor.tolist()) for tensor in tensors), *strides]


@pytest.fixture
def assert_same_bits(caplog):
    """Compares a compiled function with eager; `given` if its graph runs as it was given."""
    caplog.set_level(logging.INFO, logger="aliasproof")

    def check(function: Callable[..., Any], *values: Tensor, given: bool = False) -> None:
        compiled = torch.compile(function, backend=aliasproof)
        assert left(compiled, *values) == left(function, *values)
        assert any("not compiled" in record.message for record in caplog.records) == given

    return check


def transposed() -> Tensor:
    return torch.arange(1.0, 7).view(2, 3).t()


# --- what is overwritten --------------------------------------------------------------------------


def negates_and_zeroes(x):
    x.neg_()
    x.zero_()


def takes_logarithms_and_zeroes(x):
    x.sub_(x.detach().clone()).log_()
    x.zero_()


def negates_and_copies(x):
    x.neg_()
    x.copy_(x.detach() * 2)


def copies(x):
    x.copy_(torch.ones(3, 2))


def copies_and_negates_a_new_tensor(x):
    y = -x
    y.copy_(torch.ones(3, 2))
    return -y


def compares_and_scales(x):
    x.ne_(2)
    x.mul_(-1)


def negates_and_draws(x):
    x.neg_()
    x.uniform_()


def adds_to_a_part(x):
    y = -x
    y[0].zero_()
    y[1:].neg_()
    return y


def negates_parts_and_zeroes(x):
    x[1:].neg_()
    torch.diagonal(x)[:1].neg_()
    x.t()[0].neg_()
    x.zero_()


def draws_a_part_of_negatives(x):
    y = -x
    y[1:].uniform_()
    z = y * 1
    y.zero_()
    return z[:2]


@pytest.mark.parametrize(
    "function",
    [
        *(negates_parts_and_zeroes, draws_a_part_of_negatives),
        *(negates_and_zeroes, takes_logarithms_and_zeroes, negates_and_copies, negates_and_draws),
        *(copies, copies_and_negates_a_new_tensor, compares_and_scales, adds_to_a_part),
    ],
)
def test_zeros_go_on_from_what_is_overwritten(assert_same_bits, function):
    assert_same_bits(function, transposed())


def compares_with_itself(x):
    y = x.view(6) if x.is_contiguous() else x.t().reshape(6)
    y[1:].le_(y[:-1].clone())
    return y


@torch.library.custom_op("reference_pass_tests::double_strided", mutates_args=("y",))
def double_strided(y: Tensor) -> None:
    y.mul_(2)


def calls_a_custom_operator(x):
    y = torch.ones(3, 2).t()
    double_strided(y)
    with torch.no_grad():
        double_strided(x)
    return x * y.t()


@pytest.mark.parametrize("function", [compares_with_itself, calls_a_custom_operator])
def test_calls_that_autograd_does_not_record(assert_same_bits, function):
    assert_same_bits(function, transposed())


# --- random numbers, and strides of what is written -----------------------------------------------


def fills(x):
    x.bernoulli_()
    x.mul_(2)
    return x


def fills_a_new_tensor(x):
    y = x + 1
    y.t()[1:].normal_()
    return y, y.uniform_() * x


def draws_what_nothing_uses(x):
    (x + 1).uniform_()
    torch.rand(2)
    return torch.randn_like(x) * x


def draws_without_writes(x):
    torch.rand(3)
    y = torch.rand(3, 2) * x
    torch.rand(3)
    return y * torch.rand(1)


def scatters(x):
    y = x + 1
    y.scatter_(0, torch.zeros(1, 1, dtype=torch.int64), 0)
    return y


def writes_an_out(x):
    y = x.new_empty([3, 2])
    with torch.no_grad():
        torch.sigmoid(x, out=y)
    return y, x * y


@pytest.mark.parametrize(
    "function",
    [
        *(fills, fills_a_new_tensor, draws_what_nothing_uses, draws_without_writes),
        *(scatters, writes_an_out),
    ],
)
def test_numbers_are_drawn_and_written_in_the_order_of_memory(assert_same_bits, function):
    assert_same_bits(function, transposed())


def test_each_random_call_is_in_one_graph():
    def run(compile_function):
        torch.manual_seed(0)
        x = torch.ones(2, requires_grad=True)
        y = compile_function(lambda x: (torch.rand(2), (torch.rand(2) * x).exp())[1])(x)
        y.sum().backward()
        return x.grad, torch.rand(1)

    compiled = run(lambda function: torch.compile(function, backend=aliasproof))
    assert all(map(torch.equal, compiled, run(lambda function: function)))


def test_a_checkpoint_draws_once(assert_same_bits):
    def block(x):
        y = torch.empty(2, 3).t()
        y.uniform_()
        return (x * y).sin()

    def checkpointed(x):
        x = x * 2
        x[0].zero_()
        return checkpoint(block, x, use_reentrant=False)

    assert_same_bits(checkpointed, transposed())


def switches_on(x):
    with torch.no_grad():
        torch._dynamo.graph_break()
        x.mul_(2)
    x.zero_()


def switches_off(x):
    x.neg_()
    with torch.no_grad():
        x.mul_(2)
        torch._dynamo.graph_break()
        x.add_(1)
    return x * 2


@pytest.mark.parametrize("function", [switches_on, switches_off])
def test_gradients_are_switched_across_a_break_of_the_graph(assert_same_bits, function):
    assert_same_bits(function, transposed())


def test_a_trace_that_is_given_up_leaves_the_switches():
    def draws(x):
        with torch.no_grad(), torch.autocast("cpu"):
            torch._amp_foreach_non_finite_check_and_unscale_([x], torch.zeros(1), torch.ones(1))
            x.unsqueeze_(0)
            x.squeeze_(0)
        return x * 2

    torch.compile(draws, backend=aliasproof)(torch.ones(2, requires_grad=True) * 1)
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


def test_the_copy_of_an_input_that_is_overwritten_keeps_its_strides(assert_same_bits):
    def scatters_a_diagonal(x):
        x.log10_()
        return x.diagonal_scatter(x.diagonal())

    x = torch.arange(1.0, 7).as_strided((2, 2), (3, 1))
    assert_same_bits(lambda x: scatters_a_diagonal(x.as_strided((2, 1), (3, 1))), x)


# --- as it was given ------------------------------------------------------------------------------


def as_given(x):
    x.polygamma_(0)
    return x * 2


def steps(x):
    aten._fused_sgd_.default(
        [x], [x * 2], [], weight_decay=0, momentum=0, lr=0.1, dampening=0, nesterov=False,
        maximize=False, is_first_step=True,
    )  # fmt: skip


def checks_for_numbers(x):
    with torch.no_grad():
        x.mul_(2)
    torch._amp_foreach_non_finite_check_and_unscale_([x], torch.zeros(1), torch.ones(1))


def shows_other_memory(x):
    y = aten.alias.default(x.t().reshape(-1))
    with torch.no_grad():
        y.set_(torch.zeros(6))
    return y * 2


def shows_more_than_a_row(x):
    row = x[:1]
    x.add_(1)
    return row.as_strided([3], [1]) * 2


def shows_more_than_a_row_without_writes(x):
    return x[:1].as_strided([3], [1])


def drops_all(x):
    x.sin_()
    torch.native_dropout(x, 1.0, True)


def drops_all_without_writes(x):
    torch.native_dropout(x, 1.0, True)
    return x * 2


@pytest.mark.parametrize(
    "function",
    [
        *(drops_all, drops_all_without_writes),
        *(as_given, steps, checks_for_numbers, shows_other_memory),
        *(shows_more_than_a_row, shows_more_than_a_row_without_writes),
    ],
)
def test_what_torch_cannot_differentiate_runs_as_it_was_given(assert_same_bits, function):
    assert_same_bits(function, transposed(), given=True)


@pytest.mark.parametrize("new", [False, True])
def test_a_tensor_that_loses_its_history_in_place(new):
    def detaches(x, w):
        y = aten.mul.Tensor(x, 1) if new else x
        aten.detach_.default(y)
        return aten.mul.Tensor(y, w)

    def compiled(x, w):
        return aliasproof(fx.symbolic_trace(detaches), [x, w])(x, w)

    assert left(compiled, *torch.ones(2, 3)) == left(detaches, *torch.ones(2, 3))


# --- regions with graphs of their own -------------------------------------------------------------


@mark_compile_region
def region(x: Tensor, w: Tensor) -> Tensor:
    z = x * w
    z.view(1, -1)[:, 1:].mul_(2)
    return z


def test_a_region_beside_a_write_is_for_one_sharing():
    def scales(a, b, w):
        a.mul_(2)
        return region(a, w) * b, region(b, w)

    def run(function):
        results = []
        for shared in (False, True, False):
            source, w = torch.arange(4.0), torch.arange(1.0, 4).requires_grad_()
            a, b = source[:3], source[1:]
            outputs = function(a, b if shared else b.clone(), w)
            gradient = torch.autograd.grad(outputs[0].sum() + outputs[1].sum(), w)
            results.append([tensor.tolist() for tensor in (*outputs, source, *gradient)])
        return results

    assert run(torch.compile(scales, backend=aliasproof)) == run(scales)


def test_dropout_of_nothing_is_its_operand():
    x = torch.ones(3, requires_grad=True) * 1
    compiled = torch.compile(lambda x: torch.dropout(x, 0.0, False), backend=aliasproof)
    assert compiled(x) is x


def test_a_channels_last_activation_in_place():
    module = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.ReLU(inplace=True))

    def run(function):
        x = torch.ones(2, 2, 4, 4).to(memory_format=torch.channels_last)
        module.zero_grad()
        result = function(x * torch.arange(4.0))
        result.sum().backward()
        gradients = [parameter.grad for parameter in module.parameters()]
        return [result.stride(), *(x.tolist() for x in gradients if x is not None)]

    assert run(torch.compile(module, backend=aliasproof)) == run(module)
