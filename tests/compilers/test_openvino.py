"""Targets *openvino*: right functions run right; parts that torch runs get no verdict."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest
import torch

from aliasproof.compilers.openvino import PLUGIN, SILENT, openvino_runtime
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case
from aliasproof.targets.registry import target
from tests.targets.conftest import RIGHT, check_recipe_of_model, matrix, write_part

pytestmark = pytest.mark.skipif(PLUGIN.missing() is not None, reason=f"openvino {PLUGIN.missing()}")


def examined(function: Callable[..., object], name: str) -> Examination:
    return examine(Case.of_function(function, [matrix(), -matrix()]), target(name))


@pytest.mark.parametrize("name", ["openvino-aot", "openvino-model", "openvino-shared"])
def test_right_functions_run_right(name: str) -> None:
    # A known bug: a clone of an input is returned as the memory of the input, which is written.
    for function in (it for key, it in RIGHT.items() if key != "swap"):
        examination = examined(function, name)
        assert not examination.violations
        waived = {found.difference.oracle for found in examination.documented}
        assert waived <= {"aliasing", "objects", "metadata"}


def test_what_openvino_leaves_to_torch_is_no_verdict() -> None:
    assert "no operator runs in OpenVINO" in str(examined(lambda x, y: x, "openvino-aot").rejected)
    with_error = mock.patch(
        "openvino.frontend.pytorch.torchdynamo.backend.Partitioner", side_effect=ValueError("no")
    )
    with with_error:
        rejected = examined(lambda x, y: (x + y) * y, "openvino").rejected
    assert "OpenVINO leaves the graph to Inductor: no" in str(rejected)


def test_an_operator_that_is_missing_is_no_violation() -> None:
    rejected = examined(lambda x, y: torch.special.bessel_j0(x), "openvino-model").rejected
    assert "OpenVINO does not translate aten.special_bessel_j0" in str(rejected)


def test_nothing_is_reported_to_anybody() -> None:
    examined(lambda x, y: (x + y) * y, "openvino")
    assert sys.modules.get("openvino_telemetry") is None
    assert SILENT in target("openvino-model").recipe


@pytest.mark.parametrize("name", ["openvino-aot", "openvino-model", "openvino-shared"])
def test_a_recipe_does_what_build_does(name: str) -> None:
    check_recipe_of_model(name)


# --- planted faults -------------------------------------------------------------------------------


def planted(fault: Any) -> AbstractContextManager[Any]:
    """A wrong runtime: the fault changes the inputs or the outputs of a compiled model."""
    openvino = openvino_runtime._load()
    original = openvino.CompiledModel.__call__

    def call(self: Any, inputs: Any, **options: Any) -> Any:
        outputs = original(self, inputs, **options)
        return fault(inputs, {key: outputs[key] for key in self.outputs})

    return mock.patch.object(openvino.CompiledModel, "__call__", call)


def shared_buffer(inputs: Any, outputs: dict[Any, Any]) -> Any:
    """Two outputs of one size are in one buffer, though both are live."""
    first = next(iter(outputs.values()))
    for key, array in outputs.items():
        if array.shape == first.shape:
            first[...] = array
            outputs[key] = first
    return outputs


def input_returned(inputs: Any, outputs: dict[Any, Any]) -> Any:
    """The caller's buffer is returned where it should be copied."""
    for key, array in outputs.items():
        outputs[key] = next((x for x in inputs.values() if (x == array).all()), array)
    return outputs


def write_dropped(inputs: Any, outputs: dict[Any, Any]) -> Any:
    """A write into an input is lost: the input keeps its contents."""
    *_, last = outputs
    return {**outputs, last: inputs["inputs_0"].copy()}


@pytest.mark.parametrize(
    ("fault", "oracle"),
    [(shared_buffer, "aliasing"), (input_returned, "aliasing"), (write_dropped, "inputs")],
)
def test_a_planted_fault_is_caught(fault: Any, oracle: str) -> None:
    assert not examined(write_part, "openvino-model").violations
    with planted(fault):
        examination = examined(write_part, "openvino-model")
    assert oracle in {violation.oracle for violation in examination.violations}
    assert examination.symptom is not None
    assert examination.symptom.target == "openvino-model"
