"""Contracts of targets: exceptions have reasons, and refusals match torch's own words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as torch_map
from torch._inductor.exc import InductorError

from aliasproof.checks.check import check
from aliasproof.eager.trace import Trace
from aliasproof.ir.values import clone_inputs
from aliasproof.judge.attribution import examine_graphs
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.contract import Refusal
from aliasproof.oracles.observation import observe, observe_eager
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.clauses import BODY_CAPTURED_WHOLE, MIXED_BASES
from aliasproof.targets.registry import TARGETS, target
from aliasproof.targets.target import Function, Target
from aliasproof.targets.variants import VARIANTS
from tests.targets.conftest import OF_TORCH, matrix


def test_identity_waives_nothing() -> None:
    contract = target("identity").contract
    assert (contract.waivers, contract.preconditions, contract.refusals) == ((), (), ())


def test_the_contract_of_reinplace_is_that_of_functionalize_and_refusals_more() -> None:
    one, other = target("functionalize").contract, target("fx-reinplace").contract
    assert replace(other, refusals=one.refusals) == one
    assert set(one.refusals) < set(other.refusals)


def test_every_exception_has_its_reason(tested: Target) -> None:
    contract = tested.contract
    reasons = [waiver.reason for waiver in contract.waivers]
    reasons += [precondition.reason for precondition in contract.preconditions]
    reasons += [refusal.reason for refusal in contract.refusals]
    assert all(len(reason.split()) >= 5 for reason in reasons)
    promises = [waiver.promise for waiver in contract.waivers]
    assert len(promises) == len(set(promises))


def read_data(x: Tensor) -> object:
    return x.view(9)[: int(x.sum())]


def assigns_data(x: Tensor) -> object:
    x.data = x + 1
    return x.sum()


@torch.library.custom_op("refusals_test::bump", mutates_args=("x",))
def bump(x: Tensor, y: Tensor) -> None:
    for one, other in zip(x, y, strict=True):
        one.add_(other)


def bump_itself(x: Tensor) -> object:
    torch.ops.refusals_test.bump(x, x + 1)
    return x


def fused_sgd(x: Tensor) -> None:
    options: dict[str, Any] = dict.fromkeys(("momentum", "weight_decay", "dampening"), 0.0)
    options |= dict.fromkeys(("nesterov", "maximize", "is_first_step"), False)
    torch._fused_sgd_([x], [x + 1], [], lr=1.0, **options)


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


@torch.library.custom_op("refusals_test::positive", mutates_args=())
def positive(x: Tensor) -> Tensor:
    return x[x > 2]


@positive.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


def enters_compiled_code(x: Tensor) -> object:
    return torch.compile(lambda y: y + 1, backend="eager")(x)


CAPTURED = torch.ones(3)


def breaks_in_a_branch(x: Tensor) -> object:
    def branch(x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return x + 1

    return torch.cond(x.sum() > 0, branch, branch, (x,))


def gradient_of_a_gradient(x: Tensor) -> object:
    with torch.enable_grad():
        weight = torch.ones(3, requires_grad=True)
        (slope,) = torch.autograd.grad((x @ weight).tanh().sum(), weight, create_graph=True)
        slope.square().sum().backward()
    return weight.grad


def writes_one(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return y + 1


def view_and_alias() -> list[Tensor]:
    base = torch.ones(4)
    return [base[:3], torch.empty(0).set_(base.untyped_storage(), 0, (4,))]  # type: ignore[call-overload]


Example = tuple[Function, Callable[[], list[Tensor]]]

# By the name of the refusal: functions, with inputs, that make torch refuse.
TRIGGERS: dict[str, list[Example]] = {
    "tensor data in a trace": [
        (lambda x: torch.from_numpy(x.numpy() + 1), lambda: [matrix()]),
        (lambda x: torch.tensor(x.tolist()), lambda: [matrix()]),
    ],
    "compiled code, or a tensor that is no input, in a trace": [
        (enters_compiled_code, lambda: [matrix()]),
        (lambda x: x + CAPTURED, lambda: [matrix()]),
    ],
    "number that is read from a tensor": [
        (lambda x, i: x.narrow(0, i, 1), lambda: [matrix(), torch.tensor(0)])
    ],
    "no kernel for fake tensors": [(fused_sgd, lambda: [matrix()])],
    "write through a chain of views with as_strided": [
        (lambda x: x[0].as_strided((2,), (1,)).zero_(), lambda: [matrix()])
    ],
    "data-dependent shape": [
        (read_data, lambda: [matrix()]),
        (lambda x: x[x > 2], lambda: [matrix()]),
    ],
    "data-dependent shape of a custom operator": [
        (torch.ops.refusals_test.positive, lambda: [matrix()])
    ],
    "data-dependent call": [(read_data, lambda: [matrix()])],
    "what no graph of ATen calls shows": [(assigns_data, lambda: [matrix()])],
    "operator whose schema hides what it writes": [
        (lambda x: torch.ops.aten.linspace.out(0, 1, 5, out=x), lambda: [torch.empty(0)])
    ],
    "autograd inside of a transform": [
        (squared_gradient, lambda: [matrix()]),
        (lambda x: x.sum().backward(), lambda: [matrix().requires_grad_()]),
    ],
    "custom operator that writes": [(bump_itself, lambda: [matrix()])],
    "write into an input that overlaps itself": [
        (lambda x: x[0].add_(1), lambda: [torch.ones(2).expand(3, 2)])
    ],
    "set_ to a place in a storage": [
        (
            lambda x: torch.ops.aten.set_.source_Tensor_storage_offset(x, x, 1, [1], [1]),
            lambda: [torch.ones(2)],
        )
    ],
    "write to memory that set_ took from a tensor": [(write_what_set_left, lambda: [matrix()])],
    "resize_ to a larger size beside views": [(grow_beside_a_view, lambda: [matrix()])],
    "kernel without data that refuses what eager accepts": [
        (torch.ops.aten.nll_loss_nd.default, lambda: [torch.tensor([11.0]), torch.tensor([0])]),
        (lambda x: torch.normal(x, 0.0), lambda: [torch.tensor(1 + 2j)]),
    ],
    "overlapping inputs of different dtypes": [
        (lambda x, y: x.zero_(), lambda: [(x := matrix()), x.view(torch.int32)])
    ],
}


EXPECTED = [
    pytest.param(tested, refusal, id=f"{tested.name}-{refusal.name}")
    for tested in OF_TORCH.values()
    for refusal in tested.contract.refusals
    if "torch.compile(" not in tested.recipe  # Dynamo runs these parts of a function in eager
    and refusal is not BODY_CAPTURED_WHOLE  # Dynamo raises it, before a target has a graph
]


def raised(tested: Target, function: Function, inputs: list[Tensor]) -> tuple[Any, Trace]:
    """The error of the target, if any, and the trace of eager, which raises nothing."""
    eager, trace = observe_eager(function, clone_inputs(inputs))
    assert eager.error is None
    torch._dynamo.reset()
    sample = clone_inputs(inputs)
    run = observe(lambda *x: tested.build(function, sample).function(*x), inputs)
    return run.error, trace


@pytest.mark.parametrize(("tested", "refusal"), EXPECTED)
def test_every_refusal_is_in_words_that_torch_uses(tested: Target, refusal: Refusal) -> None:
    assert refusal.covers(*example(tested, refusal))


@pytest.mark.parametrize("tested", [it for it in TARGETS.values() if it.backend is not None])
def test_dynamo_refuses_a_body_that_it_cannot_capture(tested: Target) -> None:
    eager, trace = observe_eager(breaks_in_a_branch, [matrix()])
    torch._dynamo.reset()
    compiled = torch.compile(breaks_in_a_branch, backend=tested.backend)
    error = observe(compiled, [matrix()]).error
    assert eager.error is None
    assert error is not None
    assert tested.contract.refusal(error, trace) is BODY_CAPTURED_WHOLE


# --- impostors ------------------------------------------------------------------------------------

ALL = {
    refusal.name: (OF_TORCH["aot"], refusal)
    for variant in VARIANTS.values()
    for refusal in variant.clauses.refusals
} | {
    refusal.name: (tested, refusal)
    for tested in reversed(TARGETS.values())
    for refusal in tested.contract.refusals
}
# Refusals of variants, and refusals behind Dynamo.
ELSEWHERE: dict[str, tuple[str, Example]] = {
    "body of a higher-order operator": ("aot-eager", (breaks_in_a_branch, lambda: [matrix()])),
    "double backward": ("aot-eager", (gradient_of_a_gradient, lambda: [matrix()])),
    "symbolic sizes for a kernel that needs numbers": (
        "reference:symbolic",
        (torch.geqrf, lambda: [matrix()]),
    ),
    "a write of an input into what comes from captured tensors alone": (
        "functionalize:captured",
        (lambda x, y: (y * 2).add_(x), lambda: [matrix(), matrix()]),
    ),
}
VERIFIER = "executorch.exir.verification.verifier"
RUNTIME = "aliasproof.compilers.executorch.executorch"
FAILED = "method->execute() failed with error 0x12: Check failed (a == b)"
# Refusals of compilers that may not be installed: the module that raises, and the error.
NOT_INSTALLED: dict[str, tuple[str, Exception]] = {
    "operator outside Core ATen": (
        VERIFIER,
        RuntimeError("Operator aten.add_.Tensor is not in Core ATen opset"),
    ),
    "dtypes that the edge dialect does not have": (
        VERIFIER,
        RuntimeError("taking Tensor inputs with mismatched dtypes"),
    ),
    "operator without an out variant": (
        "executorch.exir.passes",
        RuntimeError("Missing out variants: {'aten::add_'}"),
    ),
    "operator without a kernel": (
        RUNTIME,
        RuntimeError("loading failed: Missing operator: [0] aten::add.out"),
    ),
    "arguments that a kernel does not take": (RUNTIME, RuntimeError(FAILED)),
    "custom operator without an out variant": (
        "executorch.exir.passes",
        AttributeError("'NoneType' object has no attribute 'kind'"),
    ),
    "layout of an input": (
        "executorch.exir.dim_order_utils",
        ValueError("0 in strides is not supported"),
    ),
    "operator that the frontend does not know": (
        "tvm.relax.frontend.torch.base_fx_graph_translator",
        AssertionError("Unsupported function types ['add_']"),
    ),
    "index_put with fewer indices than dimensions": (
        "tvm.relax.op.manipulate",
        RuntimeError("IndexPut requires the number of index tensors"),
    ),
}


def raise_again(error: Exception) -> None:
    raise error


def raised_in(module: str, error: Exception) -> Exception:
    """The same error, raised in a module of that name."""
    function: Any = FunctionType(raise_again.__code__, {"__name__": module})
    caught = observe(lambda: function(error.with_traceback(None)), []).error
    assert caught is error
    return caught


def example(tested: Target, refusal: Refusal) -> tuple[Exception, Trace]:
    """An error that the refusal covers, and the trace of the program."""
    if refusal.name in NOT_INSTALLED:
        return raised_in(*NOT_INSTALLED[refusal.name]), Trace(custom_write=True)
    if refusal.name in ELSEWHERE:
        name, (function, inputs) = ELSEWHERE[refusal.name]
        return raised(target(name), function, inputs())
    if refusal is MIXED_BASES:  # clones of the inputs would have no base
        torch._dynamo.reset()
        error = observe(torch.compile(writes_one, backend="aot_eager"), view_and_alias()).error
        assert error is not None
        return error, observe_eager(writes_one, view_and_alias())[1]
    for function, inputs in TRIGGERS[refusal.name]:
        error, trace = raised(tested, function, inputs())
        if error is not None and tested.contract.refusal(error, trace) is refusal:
            return error, trace
    raise AssertionError(f"nothing makes {tested.name} refuse '{refusal.name}'")


@pytest.mark.parametrize(("tested", "refusal"), ALL.values(), ids=list(ALL))
def test_an_error_with_the_same_text_is_no_refusal_where_another_one_raises_it(tested, refusal):
    error, trace = example(tested, refusal)
    assert refusal.covers(error, trace)
    quoted = InductorError(RuntimeError(f"{type(error).__name__}: {error}"), None)
    assert not refusal.covers(raised_in("torch._inductor.compile_fx", quoted), trace)
    while (inner := getattr(error, "inner_exception", None)) is not None:
        error = inner
    assert not refusal.covers(raised_in("torch._inductor.lowering", error), trace)


def test_an_error_that_reads_data_is_no_refusal_where_the_program_reads_none() -> None:
    """Inductor's message says that the body of a map reads data, which is wrong."""

    def program(x: Tensor, y: Tensor) -> object:
        return torch_map(lambda one, other: one + other, x, y)  # type: ignore[arg-type]

    error, trace = raised(target("inductor"), program, [torch.ones(3, 2), torch.ones(2)])
    assert "DataDependentOutputException" in str(error)
    assert target("inductor").contract.refusal(error, trace) is None


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
def test_a_bug_is_not_taken_for_a_refusal(tested: Target, error: Exception) -> None:
    assert tested.contract.refusal(error, Trace()) is None


# --- disputes: only results of a write through expand ---------------------------------------------


def labels(function: Callable[..., Any], *inputs: Tensor) -> dict[str, str]:
    """The label of each violation of functionalize, by oracle and place."""
    case, tested = Case.of_function(function, inputs), target("functionalize")
    trial = run_trial(case, tested)
    found = [*trial.judgement.violations, *examine_graphs(case, tested, trial).violations]
    return {f"{each.oracle}, {each.place}": each.label for each in found}


def writes_through_both(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    x.expand(3, 4).zero_()
    y.unfold(0, 1, 2).add_(1)
    return x + 1, y + 1, x * y[0]


@pytest.mark.parametrize("oracle", ["values, output", "equivalence, output"])
def test_a_violation_is_disputed_by_where_its_data_come_from(oracle: str) -> None:
    found = labels(writes_through_both, torch.arange(4.0), torch.arange(3.0))
    assert [found[f"{oracle} {index}"] for index in range(3)] == ["disputed", "", "disputed"]
    assert [found[f"inputs, input {index}"] for index in range(2)] == ["disputed", ""]


def refuses_for_another_reason(x: Tensor, y: Tensor) -> None:
    x.expand(3, 4).zero_()
    y.square_()


@pytest.mark.parametrize(
    ("function", "dtype", "label"),
    [
        pytest.param(lambda x, y: x.expand(3, 4).zero_(), torch.bool, "disputed", id="bool"),
        pytest.param(lambda x, y: x.expand(3, 4).zero_(), torch.uint16, "disputed", id="uint16"),
        pytest.param(refuses_for_another_reason, torch.float32, "", id="square_"),
    ],
)
def test_an_error_is_disputed_if_the_inverse_of_expand_raises_it(function, dtype, label):
    found = labels(function, torch.ones(4, dtype=dtype), torch.ones(2))
    assert found == {"errors, call": label}


# --- documented differences: each program of samples/limitations.md -------------------------------


PAGE = (Path(__file__).parents[2] / "tests" / "samples" / "limitations.md").read_text(
    encoding="utf-8"
)
SECTION = re.compile(r"## ([^\n]+)\n\nTarget (\S+)\. [^`]*```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(
    ("name", "target", "code"),
    [pytest.param(*found, id=f"{found[1]}: {found[0]}") for found in SECTION.findall(PAGE)],
)
def test_the_program_shows_the_limitation(name: str, target: str, code: str) -> None:
    defined: dict[str, Any] = {}
    exec(compile(code, name, "exec"), defined)
    result = check(defined["program"], defined["inputs"](), [target]).results[target]
    assert result.verdict is Verdict.DOCUMENTED
    assert name in {found.limitation.name for found in result.documented}
