"""Target *aot*: a user's function is traced like a program, and with a `ShapeEnv`."""

import pytest
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.program import Program
from aliasproof.ir.values import input_tensors
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.contract import Promise
from aliasproof.oracles.observation import observe
from aliasproof.targets.aot import AOT
from aliasproof.targets.target import Function


def traced(function: Function, program: Program) -> object:
    """AOTAutograd's graphs of a function with their metadata, or its error."""
    torch.manual_seed(0)
    FakeTensorMode.cache_clear()
    build = AOT.build(function, input_tensors(program))
    seen = observe(build.function, input_tensors(program))
    return repr(seen.error), [
        (stage.graph.code, [repr(node.meta.get("val")) for node in stage.graph.graph.nodes])
        for stage in build.stages
    ]


def test_a_function_of_a_user_has_the_graphs_of_a_program() -> None:
    for seed in range(3):
        for program in sample(swarm(seed), seed, 4):
            function = ProgramFunction(program)
            assert traced(function.__call__, program) == traced(function, program)


@pytest.mark.parametrize("reads", [torch.nonzero, torch.Tensor.item, torch.Tensor.unique])
def test_data_dependent_shapes_are_refused_as_without_a_shape_env(reads: Function) -> None:
    function = AOT.build(reads, [torch.ones(1)]).function
    refusals = (DynamicOutputShapeException, DataDependentOutputException)
    with pytest.raises(refusals, match=r"aten\."):
        function(torch.ones(1))


def test_only_outputs_that_are_merged_inputs_may_be_other_objects() -> None:
    base = torch.zeros(2)
    case = Case.of_function(
        lambda x, y, z: (x.add_(1), z), [base, base.view(1, 2).detach(), torch.zeros(3)]
    )
    report = run_trial(case, AOT).judgement.reports["objects"]
    (documented,) = report.documented
    assert (documented.difference.place, documented.limitation.name) == (
        "output 0, input 0",
        f"does not promise '{Promise.IDENTITY.value}'",
    )
    # The write to z is lost: once x and y are merged, AOTAutograd writes another input. Torch 2.15
    # is right (`aliasproof/corpus/bugs/aot_autograd/renumbered-input.txt`).
    lost = ["output 1, input 2"] if torch.__version__.startswith("2.13.") else []
    assert [each.place for each in report.violations] == lost
