"""Targets *onnx*: right functions run right, and wrong optimizers and runtimes are caught."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from aliasproof.compilers.onnx import PLUGIN
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case
from aliasproof.targets.registry import target
from tests.targets.conftest import RIGHT, check_recipe_of_model, matrix, write_part

pytestmark = pytest.mark.skipif(PLUGIN.missing() is not None, reason=f"onnx {PLUGIN.missing()}")


def examined(function: Callable[..., object], name: str = "onnx") -> Examination:
    return examine(Case.of_function(function, [matrix(), -matrix()]), target(name))


def test_right_functions_run_right_or_are_no_models() -> None:
    for name, function in RIGHT.items():
        examination = examined(function)
        if name == "nothing":
            assert "a model needs an output" in str(examination.rejected)
        else:
            assert examination.rejected is None
            assert not examination.violations, name
        waived = {found.difference.oracle for found in examination.documented}
        assert waived <= {"aliasing", "objects", "metadata"}


def test_what_a_model_keeps_and_does_not() -> None:
    def with_aliases(x: Tensor, y: Tensor) -> object:
        x.t()[0].copy_(y[1])
        return x, x.t(), x[1:], y

    promises = {it.limitation.name for it in examined(with_aliases).documented}
    assert promises == {
        f"does not promise '{promise}'"
        for promise in (
            "inputs and outputs that share a byte in eager still do",
            "an output that is an input in eager is that very object",
            "outputs have eager's strides",
            "outputs have eager's storage offsets",
        )
    }


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda x: torch.complex(x, x).acos().abs(), "torch.onnx does not translate aten.acos"),
        (lambda x: torch.special.hermite_polynomial_he(x, 2), "does not translate"),
        (lambda x: (x > 1).cumsum(0, dtype=torch.int16), "ONNX has no CumSum of int16"),
        (lambda x: x.half().scatter_add(0, x.long() * 0, x.half()), "no kernel for ScatterEl"),
    ],
)
def test_an_operator_that_is_missing_is_no_violation(call, reason):
    examination = examine(Case.of_function(call, [matrix()]), target("onnx"))
    assert reason in str(examination.rejected)


@pytest.mark.parametrize("name", ["onnx-translated", "onnx-folded", "onnx-bound", "onnx"])
def test_a_recipe_does_what_build_does(name: str) -> None:
    check_recipe_of_model(name)


def test_calls_and_kept_outputs_do_not_disturb_each_other() -> None:
    for variant in ("kept-outputs", "feed-back"):
        assert not examined(RIGHT["swap"], f"onnx:{variant}").violations


# --- planted faults -------------------------------------------------------------------------------


def dropped_write(model: Any) -> Any:
    """An optimizer removes a scatter as if it changed nothing."""
    for node in list(model.graph):
        if node.op_type == "ScatterND":
            node.outputs[0].replace_all_uses_with(node.inputs[0], replace_graph_outputs=True)
    return model


def shared_buffer(run: Any) -> Any:
    """A planner gives two outputs of one size the same buffer while both are live."""

    def planned(self: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        first, *rest = run(self, *inputs)
        return (first, *(first.copy_(x) if x.shape == first.shape else x for x in rest))

    return planned


def input_returned(run: Any) -> Any:
    """A runtime returns the caller's buffer where it should copy."""

    def aliased(self: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(next((x for x in inputs if torch.equal(x, y)), y) for y in run(self, *inputs))

    return aliased


def input_overwritten(run: Any) -> Any:
    """A kernel computes in place in an input that the caller owns."""

    def in_place(self: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = run(self, *inputs)
        inputs[-1].copy_(outputs[0].reshape(-1)[0])
        return tuple(outputs)

    return in_place


def by_optimizer(fault: Any) -> AbstractContextManager[Any]:
    original = torch.onnx.ONNXProgram.optimize

    def optimize(self: torch.onnx.ONNXProgram) -> None:
        self.model = fault(self.model)
        original(self)

    return mock.patch.object(torch.onnx.ONNXProgram, "optimize", optimize)


def by_runtime(fault: Any) -> AbstractContextManager[Any]:
    return mock.patch.object(
        torch.onnx.ONNXProgram, "__call__", fault(torch.onnx.ONNXProgram.__call__)
    )


@pytest.mark.parametrize(
    ("planted", "fault", "oracle", "layer"),
    [
        (by_optimizer, dropped_write, "inputs", "onnx-folded"),
        (by_runtime, shared_buffer, "aliasing", "onnx-translated"),
        (by_runtime, input_returned, "aliasing", "onnx-translated"),
        (by_runtime, input_overwritten, "inputs", "onnx-translated"),
    ],
)
def test_a_planted_fault_is_caught_and_attributed(planted, fault, oracle, layer):
    assert not examined(write_part).violations
    with planted(fault):
        examination = examined(write_part)
    assert examination.symptom is not None
    assert examination.symptom.target == layer
    assert oracle in {violation.oracle for violation in examination.violations}
