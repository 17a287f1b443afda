"""Variants *buffers*, *kept-buffers* and *freezing*: what is written into a buffer is kept."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from aliasproof.ir.lifting import lift_program
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets import buffers, identity
from aliasproof.targets.registry import target
from aliasproof.targets.target import Build, Function
from tests.targets.conftest import defined_by, stages_of, trial_of, vector


def counter(x: Tensor, state: Tensor) -> Tensor:
    state.add_(x)
    return state * 2


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        *((f"{name}:buffers", 1) for name in ("aot", "dynamo", "aot-eager", "export", "reference")),
        *((f"{name}:kept-buffers", 2) for name in ("identity", "export", "aot-inductor")),
    ],
)
def test_a_written_buffer_is_a_mutated_input_of_each_call(name: str, calls: int) -> None:
    case = Case.of(lift_program(counter, [vector(), vector()]).program)
    found = examine(case, target(name))
    assert found.violations == []
    assert torch.equal(trial_of(found).target.inputs[1], (1 + calls) * vector())


@pytest.mark.parametrize("name", ["aot", "aot-eager", "export"])
def test_the_recipe_compiles_a_module_too(name: str) -> None:
    compiled = defined_by(target(f"{name}:buffers").recipe)["compiled"]
    x, state = vector(), vector()
    with torch.no_grad():
        result = compiled(counter, [vector(), vector()])(x, state)
    assert torch.equal(
        torch.cat([state, *tree_leaves(result)]), torch.cat([2 * vector(), 4 * vector()])
    )


def test_buffers_of_one_storage_share_it_in_the_module() -> None:
    base = vector()
    program = lift_program(lambda x, y: (y.add_(1), x * 1)[1], [base[:3], base[1:]]).program
    for name in ("aot-eager:buffers", "reference:buffers"):
        assert examine(Case.of(program), target(name)).violations == []


def test_a_lost_write_into_a_buffer_is_a_violation() -> None:
    """The module is compiled on copies of its buffers, and forgets to write them back."""

    def forgetful(function: Function, inputs: Sequence[Tensor]) -> Build:
        assert isinstance(function, buffers.WithBuffers)
        copies = [buffer.clone() for buffer in function.buffers()]
        return identity.build(buffers.WithBuffers(function.function, copies), inputs)

    right = target("identity:buffers")
    planted = replace(right, build=functools.partial(buffers.build, forgetful))
    case = Case.of(lift_program(counter, [vector(), vector()]).program)
    assert examine(case, right).violations == []
    found = examine(case, planted)
    assert found.reports["values"].verdict is Verdict.HOLDS
    assert found.violations[0].oracle == "inputs"
    # The same mistake is invisible where the function gets all tensors as inputs.
    assert examine(case, target("identity")).violations == []


# --- two calls ------------------------------------------------------------------------------------


def test_state_that_is_lost_between_calls_is_a_violation() -> None:
    """Each call starts with the buffers of the compilation, as in a package."""

    def forgetful(function: Function, inputs: Sequence[Tensor]) -> Build:
        assert isinstance(function, buffers.CopiedBuffers)

        def run(*tensors: Tensor) -> object:
            copies = [buffer.clone() for buffer in function.buffers()]
            return buffers.CopiedBuffers(function.function, copies)(*tensors)

        return Build(run, [])

    planted = replace(
        target("identity:kept-buffers"), build=functools.partial(buffers.build_kept, forgetful)
    )
    for program in (counter, lambda x, state: (state.add_(1), x + 1)[1]):
        case = Case.of(lift_program(program, [vector(), vector()]).program)
        assert "inputs" in {violation.oracle for violation in examine(case, planted).violations}


# --- freezing: buffers become constants -----------------------------------------------------------


FREEZING = target("inductor-fx:freezing")


def examined(function: Function, inputs: Sequence[Tensor]) -> Examination:
    case = Case.of(lift_program(function, inputs).program)
    return examine(case, FREEZING, attribute=False)


def test_what_is_computed_from_buffers_is_folded() -> None:
    found = examined(lambda x, weight: x + weight.neg(), [vector(), vector()])
    assert found.violations == []
    assert "aten.neg" not in stages_of(trial_of(found))[0].graph.code


@pytest.mark.parametrize(
    ("inputs", "verdict"),
    [([vector(), vector()], Verdict.HOLDS), ([(x := vector()), x[1:]], Verdict.DOCUMENTED)],
)
def test_only_a_write_through_another_tensor_is_documented(inputs, verdict):
    """In the second case, the buffer is a view of the input, and keeps its first contents."""

    def program(x: Tensor, weight: Tensor) -> Tensor:
        x.add_(1)
        return weight * 2

    assert examined(program, inputs).reports["values"].verdict is verdict


def test_a_written_buffer_keeps_the_write() -> None:
    assert examined(lambda x, weight: weight.add_(x), [vector(), vector()]).violations == []

    def forgets(function: Function, inputs: Sequence[Tensor]) -> Build:
        right = FREEZING.build(function, inputs).function

        def run(x: Any, weight: Any) -> object:
            return right(x, weight.clone())

        return Build(run, [], "planted")

    case = Case.of(
        lift_program(lambda x, weight: (weight.add_(x), None)[1], [vector(), vector()]).program
    )
    planted = replace(FREEZING, build=forgets)
    assert examine(case, planted, attribute=False).violations[0].oracle == "inputs"
