"""`torch.compile(backend="aliasproof")`: optimisers, batch norm, aliased inputs, gradients.

Compared with `backend="eager"`: Dynamo itself takes other branches of an optimiser than eager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aliasproof.reference_pass.backend import aliasproof

Compile = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled_by(backend: Any) -> Compile:
    return lambda function: torch.compile(function, backend=backend)


def both(run: Callable[[Compile], Any]) -> tuple[list[Any], list[Any]]:
    results = []
    backends: tuple[Any, ...] = ("eager", aliasproof)
    for backend in backends:
        torch._dynamo.reset()
        torch.manual_seed(0)
        results.append(torch.utils._pytree.tree_leaves(run(compiled_by(backend))))
    return results[0], results[1]


def assert_same(run: Callable[[Compile], Any]) -> None:
    expected, actual = both(run)
    assert len(expected) == len(actual)
    for one, other in zip(expected, actual, strict=True):
        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other


@pytest.mark.filterwarnings("ignore")  # of Dynamo, about what it does not trace in optimisers
@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (torch.optim.Adam, {"weight_decay": 0.1, "amsgrad": True}),
        (torch.optim.AdamW, {}),
    ],
)
def test_steps_of_optimisers(kind, options, foreach):
    def run(compiled):
        parameters = [nn.Parameter(torch.arange(6.0).view(2, 3)), nn.Parameter(torch.ones(4))]
        optimiser = kind(parameters, lr=0.1, foreach=foreach, **options)
        step = compiled(optimiser.step)
        for number in range(3):
            for each in parameters:
                each.grad = (number + 1) * each.detach()
            step()
        return [each.detach() for each in parameters], [
            list(each.values()) for each in optimiser.state.values()
        ]

    assert_same(run)


def test_training_steps_of_a_model_with_batch_norm():
    def run(compiled):
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True))
        forward = compiled(model)
        results = [forward(torch.randn(5, 4)) for _ in range(2)]
        sum(each.sum() for each in results).backward()
        gradients = [each.grad for each in model.parameters()]
        return (
            [each.detach() for each in results],
            [each.clone() for each in model.buffers()],
            gradients,
        )

    assert_same(run)


def test_batch_norm_updates_its_statistics_without_gradients():
    def run(compiled):
        model = nn.BatchNorm2d(4)
        with torch.no_grad():
            return [compiled(model)(torch.randn(2, 4, 3, 3)) for _ in range(2)], list(
                model.buffers()
            )

    assert_same(run)


def test_dropout_leaves_the_generator_as_eager_does():
    def run(compiled):
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        with torch.no_grad():
            return compiled(model)(torch.ones(3, 4)), torch.rand(2)

    assert_same(run)


@pytest.mark.parametrize("sizes", [(12, 600, 3, 9), (5, 129, 2, 3)])
def test_a_product_with_a_parameter_has_the_bits_of_eager_without_gradients(sizes):
    # `matmul` folds the batch into one product if the parameter requires a gradient.
    rows, inner, batch, columns = sizes

    def run(compiled):
        weight, x = nn.Parameter(torch.randn(rows, inner)), torch.randn(batch, inner, columns)
        with torch.no_grad():
            return compiled(lambda x: weight @ x)(x), nn.functional.linear(x.mT, weight) @ weight

    assert_same(run)


def test_a_parameter_is_written_without_gradients():
    def run(compiled):
        weight = nn.Parameter(torch.ones(3, 3))
        with torch.no_grad():
            return compiled(lambda x: weight.mul_(x)[0].add_(1) + weight.detach())(
                torch.tensor(2.0)
            ), weight.detach()

    assert_same(run)


def test_inputs_that_alias_are_compiled_anew():
    def program(x, y):
        x.add_(1)
        return y * 2

    def run(compiled):
        function = compiled(program)
        results = []
        for start in (4, 0, 2, 3):
            buffer = torch.arange(8.0)
            results += [function(buffer[:4], buffer[start : start + 4]), buffer]
        return results

    expected, actual = both(run)
    assert all(map(torch.equal, expected, actual))


def test_a_start_that_is_a_tensor_beside_a_size_that_the_trace_fixed():
    compiled = torch.compile(lambda x, start: x.narrow(0, start, 0) + 1, backend="aliasproof")
    assert compiled(torch.ones(1), torch.tensor(0)).shape == (0,)
    assert compiled(torch.ones(1), torch.tensor(1)).shape == (0,)


def test_it_is_known_to_torch_compile_by_its_name():
    if "aliasproof" not in torch._dynamo.list_backends(exclude_tags=()):
        pytest.skip("the project is on the path but not installed, so it has no entry points")
    assert torch.equal(
        torch.compile(lambda x: x.mul_(2), backend="aliasproof")(torch.ones(2)),
        torch.full((2,), 2.0),
    )
