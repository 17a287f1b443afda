"""`torch.compile(backend="aliasproof")` under forward-mode AD, other grad modes, and options."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional

from aliasproof.reference_pass.backend import aliasproof


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function, **options):
    return torch.compile(function, backend=aliasproof, **options)


# Torch compiles its formulas for forward mode by `torch.jit.script`.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
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


def test_gradients_that_the_function_enables_under_no_grad():
    weight = torch.ones(2, requires_grad=True)

    def scaled(x):
        with torch.enable_grad():
            return weight * x

    def forces(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad((x**2).sum(), x)[0]

    with torch.no_grad():
        assert compiled(scaled)(torch.ones(2)).requires_grad
        assert torch.equal(compiled(forces)(torch.ones(2)), torch.full((2,), 2.0))
        assert not compiled(lambda x: weight * x)(torch.ones(2)).requires_grad


def test_a_mode_is_for_inductor():
    x = torch.ones(2)
    call = compiled(lambda x: x.add_(1) * 2, mode="reduce-overhead")
    assert torch.equal(call(x), torch.full((2,), 4.0))
    assert torch.equal(x, torch.full((2,), 2.0))


def test_an_option_that_does_not_exist_is_refused():
    with pytest.raises(Exception, match=r"no option trace.enabled: this backend has views, strict"):
        compiled(lambda x: x + 1, options={"trace.enabled": 0})(torch.ones(2))
