"""Planned memory under `torch.compile`: bits, gradients, symbols, control flow, and the peak."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch.utils._python_dispatch import TorchDispatchMode

from aliasproof.reference_pass import functionalize, pipeline, plan_memory, reinplace, remove_noops
from aliasproof.reference_pass.capture.footprint import footprint

PLANNED: dict[str, Any] = {"plan_memory": True}


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, backend="aliasproof", options=PLANNED, **options)


class Gate(nn.Module):
    """Two branches, joined, with a buffer that is written."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros(2, 4))

    def forward(self, x):
        joined = torch.cat([self.left(x) * 2, self.right(x).sigmoid()], 1)
        self.seen.add_(joined[:, :4].detach())
        return joined.relu()


def test_training_is_that_of_eager():
    torch.manual_seed(0)
    ours, eager = Gate(), Gate()
    eager.load_state_dict(ours.state_dict())
    run, x = compiled(ours), torch.randn(2, 4)
    for _ in range(2):
        for module in (run, eager):
            module(x).square().sum().backward()
    for one, other in zip(ours.parameters(), eager.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)
    assert torch.equal(ours.seen, eager.seen)


def joins(x):
    p, q = x * 2, x + 1
    return torch.cat([p, q]).cos()


class Called(TorchDispatchMode):
    """Note the operators that are called."""

    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops.append(func)
        return func(*args, **(kwargs or {}))


def test_the_backend_has_buffers_as_the_pass_has():
    """Its fakes are at unlikely offsets in large storages, which are no bytes of the graph."""
    ours: Any = lookup_backend("aliasproof")
    compilers = []

    def backend(graph, inputs):
        compilers.append(ours(graph, inputs, options=PLANNED))
        return compilers[-1]

    torch._dynamo.reset()
    with torch.no_grad():
        for _ in range(2):  # the first call is observed
            torch.compile(joins, backend=backend, dynamic=False)(torch.ones(2, 3))
        with Called() as called:
            compilers[0](torch.ones(2, 3))
    assert torch.ops.aten.cat.default not in called.ops
    assert torch.ops.aten.mul.out in called.ops


def test_a_graph_for_all_sizes_is_planned():
    run = compiled(joins, dynamic=True)
    for size in (3, 5, 8):
        x = torch.randn(size, 2)
        assert torch.equal(run(x), joins(x))


def test_a_planned_symbolic_pipeline_needs_no_more_than_a_reinplaced_one():
    x = torch.randn(4, 3)
    planned = pipeline(joins, x, sizes="symbolic", planned=True)
    reinplaced = pipeline(joins, x, sizes="symbolic")
    assert footprint(planned.graph).peak <= footprint(reinplaced.graph).peak
    assert torch.equal(planned(torch.ones(6, 3)), joins(torch.ones(6, 3)))


def branches(x):
    a = x * 2
    b = torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (a,))
    return a + b


@pytest.mark.parametrize("sign", [1, -1])
def test_an_operand_of_control_flow_is_kept_while_it_is_read(sign):
    x = torch.ones(3) * sign
    assert torch.equal(compiled(branches)(x), branches(x))


def test_changing_sharing_compiles_anew():
    def step(a, b):
        a.add_(1)
        return torch.cat([a * 2, b * 3])

    run = compiled(step)
    for apart in (True, False):
        base = torch.zeros(4)
        given = base.clone()
        one = (base, base.clone()) if apart else (base, base)
        other = (given, given.clone()) if apart else (given, given)
        assert torch.equal(run(*one), step(*other))
        assert torch.equal(base, given)


def squares(x, y):
    x.copy_(x @ y)
    return y + 1


def rounds(x, y):
    x.copy_(x.double() + 1)
    y.copy_(y.half())
    return x + y


@pytest.mark.parametrize("program", [squares, rounds])
def test_a_kernel_that_is_not_elementwise_does_not_write_what_it_reads(program):
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    given = x.clone(), y.clone()
    planned = pipeline(program, x, y, planned=True)
    for node in planned.graph.nodes:
        if node.target is torch.ops.aten.mm.out:
            assert node.kwargs["out"] not in node.args
    assert torch.equal(planned(x, y), program(*given))
    assert torch.equal(x, given[0])
    assert torch.equal(y, given[1])


def test_planning_never_needs_more_than_reinplacing():
    """Where the estimate of a join is wrong, the reinplaced graph is taken."""

    def early(x):
        small = x[:1] * 2  # computed early, and joined late: a buffer would be live in between
        big = x.repeat(8, 1)
        total = (big.exp() + big).sum()
        return torch.cat([small, x.repeat(4, 1)]) * total

    x = torch.randn(4, 4)
    functional = remove_noops(functionalize(early, x))
    planned = plan_memory(copy.deepcopy(functional))
    reinplaced = reinplace(copy.deepcopy(functional))
    assert footprint(planned.graph).peak <= footprint(reinplaced.graph).peak
    assert torch.equal(planned(x), early(x))
