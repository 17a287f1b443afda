"""Training where autograd, or AOTAutograd, has a limit: as eager, whatever runs."""

from __future__ import annotations

import pytest
import torch

from aliasproof.reference_pass.backend import aliasproof
from tests.reference_pass.test_differentiation import assert_as_eager, weights


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_memory_around_an_input_keeps_its_gradient():
    def expands_and_adds(x):
        wide = x.expand(3, 4)
        x.add_(1)
        return wide.sum(1) + wide[0, 0]

    def gradient(function):
        leaf = torch.arange(6.0).requires_grad_()
        base = leaf * 1
        ends = function(base[2:5].view(3, 1)).sum() + (base * torch.arange(1.0, 7)).sum()
        (found,) = torch.autograd.grad(ends, leaf)
        return found.tolist()

    compiled = torch.compile(expands_and_adds, backend=aliasproof)
    assert gradient(compiled) == gradient(expands_and_adds)


def complex_weights():
    leaf = weights().detach().to(torch.complex64).requires_grad_()
    return (leaf * 1,), [leaf]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.zero_(), x * 2)[1],
        lambda x: (x[:2].add_(1), x * 2)[1],
    ],
)
def test_writes_to_complex_numbers(function):
    assert_as_eager(function, complex_weights)


def test_a_gradient_with_the_lazy_conjugate_bit():
    x = weights()
    y = torch.compile(lambda x: x.to(torch.complex64)._conj(), backend=aliasproof)(x)
    assert y.is_conj()
    (gradient,) = torch.autograd.grad(y, x, torch.ones(3, dtype=torch.complex64))
    assert gradient.tolist() == [1.0] * 3


def test_a_backward_graph_gets_gradients_without_lazy_bits():
    x = weights()
    y = torch.compile(lambda x: x.to(torch.complex64) * 1j, backend=aliasproof)(x)
    given = torch.full((3,), 2 + 3j).conj()
    assert given.is_conj()
    (gradient,) = torch.autograd.grad(y, x, given)
    assert gradient.tolist() == [-3.0] * 3


def test_metadata_of_an_input_under_no_grad():
    def turns(x):
        with torch.no_grad():
            torch.ops.aten.transpose_.default(x, 0, 1)
        return x.view(-1) * torch.arange(4.0)

    def transposed():
        leaf = torch.arange(4.0).requires_grad_()
        return ((leaf * 1).view(2, 2).t(),), [leaf]

    assert_as_eager(turns, transposed)


@torch.library.custom_op("limits::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@sine.register_fake
def _(x):
    return torch.empty_like(x)


sine.register_autograd(
    lambda ctx, gradient: gradient * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def doubles_a_row(x):
    y = x.view(3, 1) * torch.ones(3, 2)
    y.t()[0].mul_(2)
    return y


def elu_of_a_view(x):
    y = x.view(3, 1) * torch.tensor([1.0, -17.0])
    torch.nn.functional.elu_(y.t())
    return y


def celu_of_a_view(x):
    y = x.view(3, 1) * torch.tensor([1.0, -7.5])
    torch.celu_(y.t(), 1.2)
    return y


@pytest.mark.parametrize(
    "function", [lambda x: sine(doubles_a_row(x)), elu_of_a_view, celu_of_a_view]
)
def test_a_backward_that_is_not_that_of_the_functional_form(function):
    def given():
        leaf = (torch.arange(1.0, 4) / 7).requires_grad_()
        return (leaf * 1,), [leaf]

    assert_as_eager(function, given)


def test_what_dynamo_makes_of_addcmul_keeps_its_gradients():
    def adds(x, y):
        z = x * 1
        z.t().addcmul_(y, y, value=3.14)  # with `prims.fma`, whose backward is in Python
        return z

    x, y = (torch.arange(float(n), n + 6).view(2, 3).requires_grad_() for n in (0, 1))
    transposed = y.detach().t().contiguous().requires_grad_()
    result = torch.compile(adds, backend=aliasproof)(x, transposed)
    gradients = torch.autograd.grad(result.sum(), (x, transposed))
    assert gradients[0].tolist() == torch.ones(2, 3).tolist()
    torch.testing.assert_close(gradients[1], 6.28 * transposed)


def test_new_contents_keep_the_strides_of_dimensions_of_size_one():
    """By them `cat` tells which memory format its result has."""

    def divides(x):
        with torch.no_grad():
            x.div_(x, rounding_mode="trunc")
        return torch.cat([x, x])

    def strides(function):
        numbers = torch.arange(1.0, 17).requires_grad_() * 1
        return function(numbers.as_strided((1, 8, 1, 2), (16, 1, 16, 8))).stride()

    assert strides(torch.compile(divides, backend=aliasproof)) == strides(divides)


def test_new_contents_have_strides_that_fakes_have_wrong():
    """The fake `addr` with `beta=0` is contiguous, and the real one has the strides of its operand.

    AOTAutograd traces with that fake.
    """

    def fills_a_diagonal(x):
        y = torch.addr(x.t(), torch.ones(2), torch.ones(3), beta=0)
        y.addbmm_(torch.ones(1, 2, 1), torch.ones(1, 1, 3))
        y.as_strided((2,), (3,)).zero_()
        return y * x.t()

    def transposed():
        leaf = torch.arange(6.0).view(3, 2).requires_grad_()
        return (leaf * 1,), [leaf]

    assert_as_eager(fills_a_diagonal, transposed)


def test_a_call_on_a_list_writes():
    """Fakes have no new version after it."""

    def adds(x, y, w):
        torch._foreach_add_([x], 1)
        return y * w

    def windows(start):
        def inputs():
            w, numbers = weights(), torch.arange(4.0)
            return (numbers[:3], numbers[start:] if start else torch.arange(3.0), w), [w]

        return inputs

    assert_as_eager(adds, windows(0), windows(1))


def test_a_call_on_a_list_gives_a_history_to_the_items_that_had_one():
    def takes_sines(x, y):
        torch.ops.aten._foreach_sin_.default([x[:2], y[:2]])
        return y * 2

    def inputs():
        leaf = weights()
        return (torch.arange(3.0), leaf * 1), [leaf]

    assert_as_eager(takes_sines, inputs)


def test_a_view_that_aot_autograd_takes_by_wrong_strides():
    """It makes a view of this `reshape`, which is a copy in eager: its graph cannot run."""

    def flattens(v):
        return torch.addr(torch.ones(3, 2).t(), v, torch.arange(3.0), beta=0).reshape(-1) * 2

    def inputs():
        leaf = weights(2)
        return (leaf,), [leaf]

    assert_as_eager(flattens, inputs)


def test_what_is_resized_is_in_the_storage_of_each_call():
    def resizes(x, y):
        torch.ops.aten.resize_as_(y, x)
        return x * 2

    compiled = torch.compile(resizes, backend=aliasproof)
    for y, offset in ((torch.arange(3)[2:], 2), (torch.arange(1), 0)):
        compiled(torch.tensor(1.0).requires_grad_(), y)
        assert (y.shape, y.storage_offset()) == ((), offset)


def test_writes_to_gradients_of_8_bits_run_as_given():
    """Torch has no sum of such numbers."""

    def fills(x):
        x.zero_()

    leaf = torch.ones(()).to(torch.float8_e5m2).requires_grad_()
    x = leaf.clone()
    torch.compile(fills, backend=aliasproof)(x)
    x.backward()
    assert leaf.grad is not None
    assert leaf.grad.item() == 0


def slides(x):
    return (x * 2).unfold(0, 2, 1)


def returns_one_tensor_twice(x):
    view = x.view_as(x)
    return view, view.contiguous(), x * 2


def fills_what_overlaps_itself(x):
    with torch.no_grad():
        x.as_strided((2, 2), (1, 1)).zero_()
    return x * 2


@pytest.mark.parametrize("function", [slides, returns_one_tensor_twice, fills_what_overlaps_itself])
def test_outputs_and_writes_that_aot_autograd_gets_wrong(function):
    def given():
        leaf = weights()
        return (leaf * 1,), [leaf]

    assert_as_eager(function, given)


def test_one_tensor_that_is_returned_twice_is_one_object():
    first, second, _ = torch.compile(returns_one_tensor_twice, backend=aliasproof)(weights() * 1)
    assert first is second


def test_zeros_without_memory_are_not_written():
    """The gradient of `sgn` is such zeros, and what is added to them is written in place."""

    def signs_and_fills(x, y):
        signs = torch.ops.aten.mul.Scalar(y, 2).sgn_()
        y.masked_fill_(y > 2, -1)
        return signs, y, x

    def given():
        leaf = weights()
        base = leaf * 1
        return (base.as_strided((4,), (0,)), base[1:2]), [leaf]

    assert_as_eager(signs_and_fills, given, given)


def writes_what_drops_nothing(x):
    torch.dropout(x, 0.1, False).zero_()
    return x * 2


def detaches_what_has_no_finite_gradient(x):
    y = (x - 1).log()
    x.zero_()
    return y.detach(), x * 2


@pytest.mark.parametrize(
    "function", [writes_what_drops_nothing, detaches_what_has_no_finite_gradient]
)
def test_gradients_are_of_what_the_program_has(function):
    def given():
        leaf = weights()
        return (leaf * 1,), [leaf]

    assert_as_eager(function, given)


def test_a_history_of_its_own_through_detach_runs_as_given():
    """Two tensors of one memory then have different gradients, which no functional graph has."""

    def program(cache, x):
        row = cache.detach()
        row[...] = x
        return row * 2

    for backend in ("eager", "aliasproof"):
        torch._dynamo.reset()
        cache, x = torch.ones(3), torch.tensor(3.0, requires_grad=True)
        torch.compile(program, backend=backend)(cache, x).sum().backward()
        assert cache.tolist() == [3, 3, 3]
        assert not cache.requires_grad
        assert x.grad is not None
        assert x.grad.item() == 6


def writes_what_it_saved(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    t = a * b
    b[1:].mul_(2)
    return t.sum()


def writes_a_saved_leaf(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    t = a.view_as(a) ** 2
    a.detach().mul_(2)
    return t.sum()


def writes_a_saved_result(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    t = a.exp()
    u = t.sum()
    t[1:].mul_(2)
    return u


@pytest.mark.parametrize(
    "function", [writes_what_it_saved, writes_a_saved_leaf, writes_a_saved_result]
)
def test_a_write_to_what_autograd_saved_is_refused_in_backward(function) -> None:
    total = torch.compile(function, backend="aliasproof")(
        torch.ones(3).requires_grad_(), torch.ones(3)
    )
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()
