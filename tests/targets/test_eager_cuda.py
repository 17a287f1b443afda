"""Eager on another device: results are copied back with layouts, sharing and identities.

Most tests need no GPU: a copy on the CPU is separate memory, too.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import Rejected
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, run_trial
from aliasproof.targets import eager_cuda
from aliasproof.targets.eager_cuda import Elsewhere
from aliasproof.targets.target import Build
from tests.targets.conftest import defined_by

HERE = replace(
    eager_cuda.TARGET,
    lacking=lambda: None,
    build=lambda function, inputs: Build(Elsewhere(function, "cpu"), [], "as the target"),
)


def test_what_runs_elsewhere_leaves_the_same() -> None:
    for program in sample(swarm(5), 5, 60):
        found = examine(Case.of(program), HERE)
        assert found.symptom is None, (found.symptom, program)


def resizes(x: Tensor, y: Tensor) -> Tensor:
    x.t_()
    return y.resize_(9)


def exchanges(x: Tensor, y: Tensor) -> Tensor:
    x.set_(y)  # type: ignore[call-overload]
    return x


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x, x[1:], y.expand(2, 2, 3), x + 1),
        lambda x, y: [x.view(torch.int32), (z := y.clone()), z[0], z],
        lambda x, y: (torch.view_as_complex(x.view(3, 2)).conj(), x.sum().item()),
        lambda x, y: None,
        exchanges,
    ],
)
def test_identities_layouts_and_sharing_come_back(function: Callable[..., object]) -> None:
    inputs = [torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3)]
    trial = run_trial(Case.of_function(function, inputs), HERE)
    assert trial.judgement.violations == []


def test_a_resized_storage_comes_back() -> None:
    inputs = [torch.arange(6.0).view(2, 3), torch.arange(4.0)]
    elsewhere = Elsewhere(resizes, "cpu")
    with torch.no_grad():
        left = elsewhere(*inputs)
    assert left is inputs[1]
    assert inputs[0].shape == (3, 2)
    assert inputs[1].untyped_storage().nbytes() == 36
    assert left[:4].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("part", ["outputs", "inputs"])
def test_another_kernel_shows(part: str) -> None:
    """On the other device, an addition adds one too much: to a result, or to a written input."""

    def build(function, inputs):
        def wrong(*tensors):
            outputs = function(*tensors)
            (tensors[0] if part == "inputs" else outputs[0]).add_(1)
            return outputs

        return Build(Elsewhere(wrong, "cpu"), [], "as the target")

    case = Case.of_function(lambda x: (x + 1,), [torch.arange(4.0)])
    (found,) = run_trial(case, replace(HERE, build=build)).judgement.violations
    assert found.oracle == ("values" if part == "outputs" else "inputs")


def test_random_numbers_are_not_compared() -> None:
    case = Case.of_function(torch.rand_like, [torch.arange(4.0)])
    wrong = replace(HERE, build=lambda function, inputs: Build(lambda x: x + 2, [], ""))
    judgement = run_trial(case, wrong).judgement
    assert judgement.violations == []
    assert "no random numbers" in judgement.documented[0].limitation.name


def test_without_cuda_it_says_so() -> None:
    missing = replace(eager_cuda.TARGET, lacking=lambda: "needs CUDA: there is none")
    with pytest.raises(Rejected, match="needs CUDA: there is none"):
        run_trial(Case.of_function(lambda x: x + 1, [torch.arange(4.0)]), missing)


def test_it_starts_on_the_cpu() -> None:
    with pytest.raises(Rejected, match="start on the CPU"):
        eager_cuda.build(lambda x: x, [torch.ones(2, device="meta")])


def test_the_recipe_is_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = defined_by(eager_cuda.RECIPE)["compiled"](lambda x: x.add_(1), None)
    assert compiled.device == "cuda"
    monkeypatch.setattr(compiled, "device", "cpu")
    x = torch.arange(3.0)
    out = compiled(x)
    assert out is x
    assert x.tolist() == [1, 2, 3]
