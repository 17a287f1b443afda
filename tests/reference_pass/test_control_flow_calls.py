"""Higher-order operators: as functional calls with functional graphs, or inlined graphs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import foreach_map, hints_wrapper, out_dtype, strict_mode
from torch._higher_order_ops import print as show
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.compiler import nested_compile_region
from torch.nn.attention.flex_attention import flex_attention
from torch.utils._pytree import tree_leaves

from aliasproof.reference_pass import pipeline
from aliasproof.reference_pass.backend import aliasproof
from aliasproof.reference_pass.calls.operator_forms import aten, writes


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


def tripled(x: Tensor) -> Tensor:
    """By writes to its own tensors."""
    y = x * 2
    y[0].add_(x[0])
    y[1:].add_(x[1:])
    return y


def writes_its_own(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, tripled, lambda x: x * 2, (x,))


def loops(x: Tensor) -> Any:
    (result,) = while_loop(lambda x: x.abs().sum() < 1000, lambda x: (tripled(x) + 1,), (x,))
    return result.add_(x)


def scans(x: Tensor) -> Any:
    return scan(lambda carried, row: (tripled(carried) + row, carried * row), torch.zeros(3), x)


map_rows: Callable[..., Any] = torch._higher_order_ops.map


def maps(x: Tensor) -> Any:
    y = x * 2
    result: Tensor = map_rows(lambda row, first: tripled(row) * first, y, y[0].clone())
    y.add_(1)  # after the call has read it
    return result.mul_(2), y


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "function",
    [chooses, chooses_by_layout, writes_its_own, loops, scans, maps],
    ids=lambda f: f.__name__,
)
def test_a_control_flow_call_does_what_it_does_in_eager(function: Callable[..., Any], sign: int):
    def x() -> Tensor:
        return torch.arange(1.0, 7).view(2, 3) * sign

    expected = tree_leaves(function(x()))
    for compiled in (pipeline(function, -x()), torch.compile(function, backend=aliasproof)):
        for _ in range(2):  # the first call of the backend is observed
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


# --- operators that only run a graph --------------------------------------------------------------


@nested_compile_region
def region(x: Tensor, y: Tensor) -> Any:
    z = x * y
    z[0].add_(1)
    return z, x + y


def runs_a_region_twice(x: Tensor) -> Any:
    y = x * 3
    first, second = region(x, y)
    y = y.mul(second)
    return region(first, y), y


def maps_over_lists(x: Tensor) -> Any:
    y = x * 2
    first, second = foreach_map(torch.add, [y, y * 2], [y * 3, x])
    y = y.add(1)
    return first * y, second


def gives_hints(x: Tensor) -> Any:
    return hints_wrapper(lambda x: x.mul(2), (x.sin(),), {}, hints={"hint": 1})


def is_strict(x: Tensor) -> Any:
    return strict_mode(lambda x: x.mul(2), (x.sin(),))


@pytest.mark.parametrize(
    ("function", "trains"),
    [
        *((runs_a_region_twice, trains) for trains in (False, True)),
        *((maps_over_lists, trains) for trains in (False, True)),
        *((gives_hints, False), (is_strict, False)),  # torch has no gradient of these
        # Gradients go through control flow.
        (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), True),
        (lambda x: while_loop(lambda x: x.sum() < 1000, lambda x: (x * x,), (x,))[0], True),
        (lambda x: scan(lambda c, row: (c * row.sum(), c + row.sum()), torch.ones(()), x)[1], True),
        (lambda x: map_rows(lambda row, y: row * y, x, x[0].clone()), True),
    ],
)
def test_what_runs_a_graph_gives_what_the_calls_of_the_graph_give(function, trains):
    results: list[list[Tensor]] = []
    for backend in ("aot_eager", aliasproof):
        x = torch.arange(1.0, 7).view(2, 3).requires_grad_(trains)
        outputs = tree_leaves(torch.compile(function, backend=backend)(x))
        total = torch.stack([output.sum() for output in outputs]).sum()
        results.append([*outputs, *(torch.autograd.grad(total, x) if trains else ())])
    assert results[0][-1].any()
    assert all(map(torch.equal, *results))


# --- operators on operators, and `print` ----------------------------------------------------------


def test_a_product_with_another_dtype_is_a_functional_call():
    x = torch.arange(6, dtype=torch.int8).view(2, 3)
    compiled = pipeline(lambda x: out_dtype(aten.mm.default, torch.int32, x, x.t()).add_(1), x)
    assert torch.equal(compiled(x), x.int() @ x.int().t() + 1)


@pytest.mark.parametrize("trains", [False, True])
def test_print_shows_the_values_of_its_time(capsys: pytest.CaptureFixture[str], trains: bool):
    def program(x: Tensor) -> Tensor:
        y = x * 2
        show("first {} {target}", y.detach(), target=y.detach()[0])
        y.add_(1)
        show("then {}", y.detach())
        return y * 2

    def x() -> Tensor:
        return torch.arange(3.0).requires_grad_(trains)

    program(x())
    expected = capsys.readouterr().out
    torch.compile(program, backend=aliasproof, fullgraph=True)(x())
    assert capsys.readouterr().out == expected


def attends(x: Tensor) -> Any:
    q = x.new_ones(1, 1, 16, 16).cumsum(-1) * x[0, 0]
    result: Any = flex_attention(q, q, q * 2, score_mod=lambda score, b, h, i, j: score + i - j)
    return result.add_(q)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_is_a_functional_call():
    x = torch.arange(1.0, 7).view(2, 3)
    assert torch.equal(torch.compile(attends, backend=aliasproof)(x), attends(x))
