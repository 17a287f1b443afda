"""Control flow operators are functional calls, and their graphs are made functional."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention
from torch.utils._pytree import tree_leaves

from reference_pass import pipeline
from reference_pass.backend import aliasproof
from reference_pass.operator_forms import writes


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def chooses(x: Tensor) -> Any:
    y = x * 2
    y.add_(1)
    chosen = torch.cond(
        x.sum() > 0, lambda x, y: (x.sin() + y, y.cos()), lambda x, y: (y * 3, x - y), (x, y)
    )
    y.mul_(2)  # after the branch has read it
    chosen[0].add_(y)
    return chosen, y


def chooses_by_layout(x: Tensor) -> Any:
    return torch.cond(
        x.sum() > 0,
        lambda x: x.reshape(-1) * 2,
        lambda x: (x.view(-1) if x.is_contiguous() else x.mT.reshape(-1)) + 1,
        (x.t(),),
    )


def writes_its_own(x: Tensor) -> Any:
    def branch(x: Tensor) -> Tensor:
        y = x * 2
        y[0].add_(1)
        return y

    return torch.cond(x.sum() > 0, branch, lambda x: x * 2, (x,))


def loops(x: Tensor) -> Any:
    (result,) = while_loop(lambda x: x.abs().sum() < 1000, lambda x: (x * 2 + 1,), (x,))
    return result.add_(x)


def scans(x: Tensor) -> Any:
    return scan(lambda carried, row: (carried + row, carried * row), torch.zeros(3), x)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "function",
    [chooses, chooses_by_layout, writes_its_own, loops, scans],
    ids=lambda f: f.__name__,
)
def test_a_control_flow_call_does_what_it_does_in_eager(function: Callable[..., Any], sign: int):
    def x() -> Tensor:
        return torch.arange(1.0, 7).view(2, 3) * sign

    expected = tree_leaves(function(x()))
    for compiled in (pipeline(function, -x()), torch.compile(function, backend=aliasproof)):
        assert all(map(torch.equal, tree_leaves(compiled(x())), expected))


def test_no_graph_of_a_call_writes():
    compiled = pipeline(writes_its_own, torch.ones(3))
    modules = [getattr(compiled, name) for name in ("true_graph_0", "false_graph_0")]
    assert not any(writes(node.target) for module in modules for node in module.graph.nodes)


def test_a_branch_that_writes_its_operand_is_refused():
    def branch(x: Tensor) -> Tensor:
        return x.add_(1) * 1

    def program(x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, branch, lambda x: x * 2, (x,))

    with torch.no_grad(), pytest.raises(Exception, match="writes to its operand"):
        torch.compile(program, backend=aliasproof)(torch.ones(3))


def test_gradients_go_through_a_branch():
    gradients: list[Tensor] = []
    for backend in ("eager", aliasproof):
        x = torch.arange(1.0, 4).requires_grad_()
        program = torch.compile(
            lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), backend=backend
        )
        gradients += torch.autograd.grad(program(x).sum(), x)
    assert torch.equal(*gradients)


def attends(x: Tensor) -> Any:
    q = x.new_ones(1, 1, 16, 16).cumsum(-1) * x[0, 0]
    result: Any = flex_attention(q, q, q * 2, score_mod=lambda score, b, h, i, j: score + i - j)
    return result.add_(q)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_is_a_functional_call():
    x = torch.arange(1.0, 7).view(2, 3)
    assert torch.equal(torch.compile(attends, backend=aliasproof)(x), attends(x))
