"""bfloat16 under Inductor is judged: float64 decides where rounding leaves a choice."""

from typing import Any

import torch
from torch import fx, nn

from aliasproof.running_model.lifted_graph import without_narrow_conversions


def loses_write_of_variance(graph: fx.Graph) -> None:
    """The second `copy_` into an input, which is that of `running_var`, is dropped."""
    writes = graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    graph.erase_node([node for node in writes if node.meta["val"].shape == (32,)][1])


def train(options: dict[str, Any] | None, steps: int = 2) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    compiled = torch.compile(model, options=options)
    for _ in range(steps):
        with torch.autocast("cpu", torch.bfloat16):
            loss = compiled(torch.randn(64, 16)).float().pow(2).mean()
        loss.backward()


def test_forward_and_backward_passes_in_bfloat16_are_judged(checking) -> None:
    # The gradient of the bias before BatchNorm is zero, with noise that differs.
    with checking() as check:
        train(None)
    assert check.differences == []
    counts = check.graphs[0].counts
    assert (counts.forward, counts.backward, counts.unjudged) == (2, 2, {})


def test_a_lost_write_is_no_rounding(checking, capsys) -> None:
    with checking() as check:
        train({"post_grad_custom_post_pass": loses_write_of_variance}, steps=1)
    (found,) = check.differences
    assert (found.direction, found.violation.oracle) == ("forward", "inputs")
    assert "running_var" in capsys.readouterr().err


class Mixed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bits = x.to(torch.bfloat16).view(torch.int16).sum()
        return x.half().float() + torch.ones(3, dtype=torch.bfloat16) + bits


def test_a_control_converts_to_no_narrow_dtype() -> None:
    module = without_narrow_conversions(fx.symbolic_trace(Mixed()))
    named = [(node.target, node.args[1:], node.kwargs) for node in module.graph.nodes]
    assert ("to", (torch.float64,), {}) in named
    assert ("view", (torch.int16,), {}) in named
    assert [target for target, *_ in named].count("double") == 2
