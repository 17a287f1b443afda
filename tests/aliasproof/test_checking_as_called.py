"""`check` judges a function as its user calls it: gradients enabled, nothing detached."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func

from aliasproof import check
from aliasproof.checks.assertions import assert_equivalent
from aliasproof.faults import python_faults
from aliasproof.ir.errors import UserError
from aliasproof.judge.python_case import run_in_eager
from aliasproof.oracles.check_result import Check, TargetResult
from aliasproof.oracles.verdict import Verdict
from aliasproof.user_code.user_call import UserCall
from tests.aliasproof.functions_as_called import (
    PAIRINGS,
    RIGHT,
    Pairing,
    Steps,
    compile_with,
    counts_steps,
    leaf,
    model,
    result,
    step_of_sgd,
    x,
    y,
)

# Warnings of torch about functions of autograd and odd views.
pytestmark = pytest.mark.filterwarnings("ignore")


def result_as_called(found: Check) -> TargetResult:
    (called,) = (it for name, it in found.results.items() if name.endswith(" as called"))
    return called


# --- what torch gets wrong ------------------------------------------------------------------------


@pytest.mark.parametrize("pairing", PAIRINGS, ids=lambda it: it.wrong.__name__)
def test_a_wrong_layer_is_flagged_and_the_like_of_it_holds(pairing: Pairing) -> None:
    found = check(pairing.wrong, tuple(pairing.inputs()), [pairing.layer], grad=True)
    called = result_as_called(found)
    assert called.violations[0].oracle == pairing.oracle
    assert not called.wrong_part  # no earlier layer is wrong
    assert found.exit_status() == 1
    right = check(pairing.right, tuple(pairing.inputs()), [pairing.layer], grad=True)
    assert right.exit_status() == 0, right.results


@pytest.mark.parametrize(("function", "inputs"), RIGHT, ids=lambda it: getattr(it, "__name__", ""))
@pytest.mark.parametrize(
    "target", ["aot-eager", pytest.param("inductor", marks=pytest.mark.thorough)]
)
def test_right_training_holds(function: Any, inputs: Callable[[], Any], target: str) -> None:
    found = check(function, inputs(), [target], grad=True)
    assert found.eager.unjudged is None
    assert not result_as_called(found).violations


# --- wrong backends -------------------------------------------------------------------------------


def wrong_backward(change: Callable[..., list[Any]]) -> Any:
    """A backend of AOTAutograd that changes the gradients of its backward graph."""

    def backward(graph: fx.GraphModule, _: object) -> Any:
        return make_boxed_func(lambda *args: change(*graph(*args)))

    return aot_autograd(
        fw_compiler=lambda graph, _: make_boxed_func(graph.forward), bw_compiler=backward
    )


def detaching(graph: fx.GraphModule, _: object) -> Any:
    return lambda *args: [out.detach() for out in graph(*args)]


def losing_writes(graph: fx.GraphModule, _: object) -> Any:
    def run(*args: Any) -> Any:
        kept = [it.detach().clone() for it in args]
        out = graph(*args)
        for it, old in zip(args, kept, strict=True):
            it.data.copy_(old)
        return out

    return run


def product(a: Tensor, b: Tensor) -> Tensor:
    return a * b


def two() -> tuple[Tensor, Tensor]:
    return torch.ones(2).requires_grad_(), torch.full((2,), 3.0).requires_grad_()


class Layer(torch.nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.mul_(2)
        return super().forward(x)


@pytest.mark.parametrize(
    ("backend", "function", "inputs", "violation"),
    [
        (wrong_backward(lambda a, b: [a * 0, b]), product, two(), "values: a.grad"),
        (wrong_backward(lambda a, b: [b, a]), product, two(), "values: a.grad"),
        (detaching, product, two(), "structure: a.grad"),
        (losing_writes, Layer(2, 2), (torch.ones(1, 2),), "values: weight"),
    ],
)
def test_a_wrong_backend_is_flagged_by_what_it_does(backend, function, inputs, violation):
    called = result_as_called(check(function, inputs, [backend]))
    first = called.violations[0]
    assert f"{first.oracle}: {first.place}" == violation
    assert called.wrong_part.startswith("your backend")


class Box:
    last: object = None


def kept_in_box(v: Tensor, box: Box) -> Tensor:
    box.last = v * 2
    return v * 3


def saved_and_written(v: Tensor) -> Tensor:
    out = v.sin()
    v.mul_(2)
    return out


def adds_to_both(v: Tensor, w: Tensor) -> Tensor:
    v.add_(1)
    return w * 2


def shared() -> tuple[Tensor, Tensor]:
    base = torch.zeros(3)
    return base, base[1:]


@pytest.mark.parametrize(
    ("fault", "function", "inputs", "violation"),
    [
        (python_faults.lost_attributes, kept_in_box, (leaf(), Box()), "structure: box.last"),
        (python_faults.missed_version_errors, saved_and_written, (result(),), "errors: call"),
        (python_faults.doubled_gradients, product, two(), "values: a.grad"),
        (python_faults.forgotten_requirement, product, two(), "structure: a.grad"),
        # In a second call.
        (python_faults.first_result, counts_steps, (torch.ones(2),), "values: number"),
        (python_faults.unshared_later, adds_to_both, shared(), "values: second output"),
        (python_faults.later_without_gradients, product, two(), "structure: second a.grad"),
    ],
)
def test_a_wrong_compiler_is_flagged_by_what_it_does(
    monkeypatch: pytest.MonkeyPatch, fault: Any, function: Any, inputs: Any, violation: str
) -> None:
    right = check(function, inputs, ["dynamo"], grad=True)
    assert right.exit_status() == 0, right.results
    compile_with(monkeypatch, fault)
    first = result_as_called(check(function, inputs, ["dynamo"], grad=True)).violations[0]
    assert f"{first.oracle}: {first.place}" == violation
    assert Steps.number == 0


EXACT = torch.linspace(0, 3, 5).sin()


def carries_rounding(v: Tensor) -> Tensor:
    """The sine is rounded; the second call magnifies the rounding error in the state."""
    seen = (Steps.total - EXACT) * 1e6
    Steps.total.copy_(v.detach().sin())
    return v * seen


def rounding_otherwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Sines are off by one unit in the last place, also in float64."""

    def run(*args: Any) -> Any:
        result = function(*args)
        Steps.total.mul_(1 + torch.finfo(Steps.total.dtype).eps)
        return result

    return run


def test_what_is_rounding_in_state_is_none_in_a_later_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Steps, "total", EXACT.clone())
    inputs = (torch.linspace(0, 3, 5, requires_grad=True),)
    compile_with(monkeypatch, rounding_otherwise)
    found = result_as_called(check(carries_rounding, inputs, ["dynamo"], grad=True))
    assert not found.violations, found.reports
    assert found.reports["values"].verdict is Verdict.HOLDS


@pytest.mark.parametrize("name", ["Adam", "ASGD", "NAdam", "RAdam"])
def test_steps_of_an_optimizer_that_makes_its_state_in_float32_hold(name: str) -> None:
    """Eager computes with Python's numbers, and a compiled step with such tensors."""
    torch.manual_seed(5)
    given, layer = torch.randn(5, 4), torch.nn.Linear(4, 3)
    optimizer = getattr(torch.optim, name)(layer.parameters(), lr=1e-2)

    def steps(v: Tensor) -> None:
        for _ in range(5):
            optimizer.zero_grad()
            layer(v).square().sum().backward()
            optimizer.step()

    found = check(steps, (given,), ["aot-eager"])
    assert found.exit_status() == 0, found.results


def test_a_second_call_has_the_inputs_anew_and_the_state_of_the_first() -> None:
    box = Box()

    def notes(v: Tensor, others: list[Tensor], of: Box) -> tuple[bool, float]:
        seen = of.last is None, float(v[0]) + float(others[0][0])
        of.last = v
        others.append(v.add_(1))
        return seen

    base = torch.zeros(3)
    call = UserCall.of(notes, (base, [base[1:]], box))
    left = replace(call, twice=True).run(lambda function: function, lambda left: None)
    assert (left["output"], left["second output"]) == ((True, 0.0), (False, 0.0))
    assert box.last is None
    second: Any = left["second others"]
    assert len(second) == 2
    assert second[0].untyped_storage().data_ptr() == second[1].untyped_storage().data_ptr()


def test_copying_the_inputs_is_no_write_of_the_function() -> None:
    seen = run_in_eager(UserCall.of(torch.relu, (torch.arange(6.0).reshape(2, 3).t(),))).trace
    assert (seen.written, seen.reshaped, seen.strided_layout) == (set(), set(), False)


def test_a_write_that_torch_refuses_after_data_was_assigned_is_wrong_in_all_rows() -> None:
    weight = torch.nn.Parameter(torch.arange(4.0))

    @torch.no_grad()
    def perturbs(v: Tensor) -> Tensor:
        weight.data += v
        weight.data -= v
        return weight * v

    rows = check(perturbs, torch.ones(4), ["aot-eager", "inductor"]).results
    assert len(rows) == 4
    assert {it.reports["errors"].verdict for it in rows.values()} == {Verdict.VIOLATED}


# --- what is judged, and what is said -------------------------------------------------------------


def test_a_function_without_gradients_has_no_row_as_called():
    assert [*check(torch.relu, torch.ones(2), ["dynamo"]).results] == ["dynamo"]
    found = check(torch.relu, torch.ones(2), ["dynamo"], grad=True)
    assert [*found.results] == ["dynamo as called"]


def test_nothing_of_the_user_changes():
    before = [it.detach().clone() for it in model.parameters()]
    for function, inputs in ((step_of_sgd, (x(), y())), (counts_steps, (leaf(),))):
        assert check(function, inputs, ["dynamo"]).exit_status() == 0
    assert all(map(torch.equal, before, model.parameters()))
    assert all(it.grad is None for it in model.parameters())
    assert (Steps.number, Steps.total.tolist()) == (0, [0, 0])


def test_the_rows_and_the_way_of_judging_are_told():
    found = check(step_of_sgd, (x(), y()), ["functionalize", "dynamo"])
    assert [*found.results] == ["functionalize", "dynamo", "dynamo as called"]
    assert "rows 'as called': as you call it, with gradients" in found.notes[-1]
    without = check(step_of_sgd, (x(), y()), ["dynamo"], grad=False)
    assert [*without.results] == ["dynamo"]
    with pytest.raises(UserError, match="give such a target"):
        check(step_of_sgd, (x(), y()), ["functionalize"], grad=True)


def test_what_is_undefined_in_eager_is_not_judged():
    for grad in (None, True):
        leaf = torch.ones(2).requires_grad_()
        found = check(lambda v: v + torch.empty(2), leaf, ["dynamo"], grad=grad)
        assert found.exit_status() == 4
        assert (found.eager.unjudged or "").startswith("it is undefined in eager")


def test_assert_equivalent_judges_as_called():
    (pairing,) = (it for it in PAIRINGS if it.wrong.__name__ == "view_under_no_grad")
    with pytest.raises(AssertionError, match=r"structure: something is new \(x.grad\)"):
        assert_equivalent(pairing.wrong, *pairing.inputs(), target=pairing.layer)
    assert_equivalent(pairing.right, *pairing.inputs(), target=pairing.layer)
