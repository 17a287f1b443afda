"""Gradients that are there before the call: a step of an optimizer uses them."""

from __future__ import annotations

import torch

from aliasproof import check

model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)


def scaled_step(scale: torch.Tensor) -> list[torch.Tensor]:
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(scale)
    return step(scale)


def step(scale: torch.Tensor) -> list[torch.Tensor]:
    optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_a_step_by_given_gradients_is_judged():
    model.zero_grad()
    model(torch.ones(4, 3)).sum().backward()
    before = model.bias.detach().clone()
    for function, factor in ((scaled_step, 0.5), (step, 1.0)):
        found = check(function, (torch.tensor(0.5),), ["aot-eager"])
        assert found.eager.unjudged is None
        assert found.eager.observation is not None
        stepped = found.eager.observation.outputs[1]
        assert isinstance(stepped, torch.Tensor)
        assert torch.allclose(stepped, before - 0.5 * factor * 4)
        assert not found.results["aot-eager"].violated
    # Nothing of the caller changes.
    assert torch.equal(model.bias, before)
    assert model.bias.grad is not None
    assert model.bias.grad.tolist() == [4, 4]
