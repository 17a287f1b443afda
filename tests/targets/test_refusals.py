"""Contracts of targets: every exception has a reason, and refusals are in torch's own words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from aliasproof.oracles.contract import Refusal
from aliasproof.oracles.observation import observe, observe_eager
from aliasproof.programs.trace import Trace
from aliasproof.programs.values import clone_inputs
from aliasproof.targets.clauses import BODY_CAPTURED_WHOLE
from aliasproof.targets.registry import TARGETS, target
from aliasproof.targets.target import Function, Target
from tests.targets.conftest import OF_TORCH


def matrix() -> Tensor:
    return torch.arange(1.0, 10).view(3, 3)


def test_identity_waives_nothing() -> None:
    contract = target("identity").contract
    assert (contract.waivers, contract.preconditions, contract.refusals) == ((), (), ())


def test_the_contract_of_reinplace_is_that_of_functionalize_and_one_refusal_more() -> None:
    one, other = target("functionalize").contract, target("fx-reinplace").contract
    assert replace(other, refusals=one.refusals) == one
    assert set(one.refusals) < set(other.refusals)


def test_every_exception_has_its_reason(accused: Target) -> None:
    contract = accused.contract
    reasons = [waiver.reason for waiver in contract.waivers]
    reasons += [precondition.reason for precondition in contract.preconditions]
    reasons += [refusal.reason for refusal in contract.refusals]
    assert all(len(reason.split()) >= 5 for reason in reasons)
    promises = [waiver.promise for waiver in contract.waivers]
    assert len(promises) == len(set(promises))


def masked(x: Tensor) -> object:
    return x[x > 2]


def read_data(x: Tensor) -> object:
    return x.view(9)[: int(x.sum())]


def through_numpy(x: Tensor) -> object:
    return torch.from_numpy(x.numpy() + 1)


def assigns_data(x: Tensor) -> object:
    x.data = x + 1
    return x.sum()


def resizes(x: Tensor) -> object:
    return torch.ops.aten.linspace.out(0, 1, 5, out=x)


@torch.library.custom_op("refusals_test::bump", mutates_args=("x",))
def bump(x: Tensor, y: Tensor) -> None:
    for one, other in zip(x, y, strict=True):
        one.add_(other)


def bump_itself(x: Tensor) -> object:
    torch.ops.refusals_test.bump(x, x + 1)
    return x


def fused_sgd(x: Tensor) -> None:
    torch._fused_sgd_(
        [x],
        [x + 1],
        [],
        lr=1.0,
        momentum=0.0,
        weight_decay=0.0,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=True,
    )


def set_to_second_element(x: Tensor) -> None:
    torch.ops.aten.set_.source_Tensor_storage_offset(x, x, 1, [1], [1])


def write_what_set_left(x: Tensor) -> Tensor:
    old = x.view(-1)
    torch.ops.aten.set_.source_Tensor(x, x.clone())
    return old.add_(1)


def grow_beside_a_view(x: Tensor) -> Tensor:
    view = x.view(-1)
    x.resize_(x.numel() + 9).fill_(1)
    return view + 1


def squared_gradient(x: Tensor) -> object:
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        (y * y).sum().backward()
    return y.grad


# By a part of the refusal's pattern: functions, with inputs, that make torch refuse.
TRIGGERS: dict[str, list[tuple[Function, Callable[[], list[Tensor]]]]] = {
    "tracing tensor": [(read_data, lambda: [matrix()]), (through_numpy, lambda: [matrix()])],
    "PendingUnbacked": [(lambda x, i: x.narrow(0, i, 1), lambda: [matrix(), torch.tensor(0)])],
    "no fake impl": [(fused_sgd, lambda: [matrix()])],
    "view chain": [(lambda x: x[0].as_strided((2,), (1,)).zero_(), lambda: [matrix()])],
    "DynamicOutputShapeException": [
        (masked, lambda: [matrix()]),
        (read_data, lambda: [matrix()]),
    ],
    "^(DataDependent|": [(read_data, lambda: [matrix()])],
    "goes past the dispatcher": [(assigns_data, lambda: [matrix()])],
    "schema does not say so": [(resizes, lambda: [torch.empty(0)])],
    "functorch transform": [(squared_gradient, lambda: [matrix()])],
    "non-ATen": [(bump_itself, lambda: [matrix()])],
    "more than one element": [
        (lambda x: x[0].add_(1), lambda: [torch.ones(2).expand(3, 2)]),
    ],
    "set_\\.source_Tensor": [(set_to_second_element, lambda: [torch.ones(2)])],
    "frozen storage": [(write_what_set_left, lambda: [matrix()])],
    "to a larger size": [(grow_beside_a_view, lambda: [matrix()])],
    "raises on tensors without data": [
        (torch.ops.aten.nll_loss_nd.default, lambda: [torch.tensor([11.0]), torch.tensor([0])]),
        (lambda x: torch.normal(x, 0.0), lambda: [torch.tensor(1 + 2j)]),
    ],
    "different dtypes": [(lambda x, y: x.zero_(), lambda: [(x := matrix()), x.view(torch.int32)])],
}


EXPECTED = [
    pytest.param(accused, refusal, id=f"{accused.name}-{refusal.message[:30]}")
    for accused in OF_TORCH.values()
    for refusal in accused.contract.refusals
    if "torch.compile(" not in accused.recipe  # Dynamo runs these parts of a function in eager
    and refusal is not BODY_CAPTURED_WHOLE  # of Dynamo, before a target has a graph
]


@pytest.mark.parametrize(("accused", "refusal"), EXPECTED)
def test_every_refusal_is_in_words_that_torch_uses(accused: Target, refusal: Refusal) -> None:
    (triggers,) = (some for part, some in TRIGGERS.items() if part in refusal.message)
    found = []
    for function, inputs in triggers:
        eager, trace = observe_eager(function, clone_inputs(inputs()))

        def compiled(*tensors: Tensor, function=function, sample_inputs=inputs) -> object:
            return accused.build(function, clone_inputs(sample_inputs())).function(*tensors)

        error = observe(compiled, clone_inputs(inputs())).error
        assert eager.error is None
        found.append(error is not None and accused.contract.refusal(error, trace))
    assert refusal in found


@pytest.mark.parametrize("accused", [it for it in TARGETS.values() if it.backend is not None])
def test_dynamo_refuses_a_body_that_it_cannot_capture(accused: Target) -> None:
    def broken(x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return x + 1

    def program(x: Tensor) -> object:
        return torch.cond(x.sum() > 0, broken, broken, (x,))

    eager, trace = observe_eager(program, [matrix()])
    torch._dynamo.reset()
    error = observe(torch.compile(program, backend=accused.backend), [matrix()]).error
    assert eager.error is None
    assert error is not None
    assert accused.contract.refusal(error, trace) is BODY_CAPTURED_WHOLE


# Real bugs, whose messages must not be taken for refusals.
BUGS = (
    NotImplementedError("aten::t_: there was no fake impl or Meta kernel registered"),
    RuntimeError(
        "unsupported operation: more than one element of the written-to tensor refers to a single"
        " memory location."
    ),
    RuntimeError(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer"
        " to a single memory"
    ),
    RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported."),
    RuntimeError(
        "as_strided_scatter: sizes [1, 2], strides [0, 1] are out of bounds for storage of size 4"
    ),
    RuntimeError(
        "Found a custom (non-ATen) operator whose output has alias annotations:"
        " aten::square_(Tensor(a!) self)"
    ),
    AssertionError(
        "incorrect out shape after application of ViewMeta sequence: () (actual) vs (1) (expected)"
    ),
    IndexError("Dimension out of range (expected to be in range of [-1, 0], but got 1)"),
    RuntimeError(""),
)


@pytest.mark.parametrize("error", BUGS, ids=lambda error: str(error)[:30])
def test_a_bug_is_not_taken_for_a_refusal(accused: Target, error: Exception) -> None:
    assert accused.contract.refusal(error, Trace()) is None
