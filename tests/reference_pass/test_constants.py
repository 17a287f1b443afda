"""Constants of a graph as one element, and the bits of the calls that read them."""

from __future__ import annotations

import pytest
import torch

from aliasproof.reference_pass import functionalize
from aliasproof.reference_pass.backend.constants import expand_constants


def targets(function, *inputs):
    graph_module = functionalize(function, *inputs)
    expand_constants(graph_module)
    result = graph_module(*inputs)
    assert torch.equal(result, function(*inputs))
    return [str(node.target) for node in graph_module.graph.nodes]


def lerp(base, end):
    difference = end - base
    return torch.addcmul(base, torch.full_like(difference, 0.1), difference)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(5, 7), (37, 29), (4, 3, 17, 5)])
def test_one_element_gives_the_bits_of_a_constant(dtype, sizes):
    torch.manual_seed(0)
    base, end = torch.randn(sizes).to(dtype), torch.randn(sizes).to(dtype)
    assert "aten.full_like.default" not in targets(lerp, base, end)
    assert "aten.full_like.default" not in targets(lerp, base.mT, end.mT)


@pytest.mark.parametrize(
    ("function", "sizes"),
    [
        (lambda x: torch.full_like(x, 2) * x, (4,)),  # another call
        (lambda x: torch.full_like(x, 2), (4,)),  # it is returned
        (lambda x: torch.addcmul(torch.full_like(x, 2), x, x), (4,)),  # its sum may be in place
        (lambda x: torch.addcmul(x[:, :4], torch.full_like(x[:, :4], 2), x[:, 4:]), (3, 8)),
        (lambda x: torch.addcmul(x, torch.full_like(x, 2), x[0]), (3, 8)),
        # One of the two may be one element: the loop over dense tensors takes one that repeats.
        (lambda x: torch.addcmul(x, torch.full_like(x, 2), torch.full_like(x, 3)), (4,)),
    ],
)
def test_other_constants_stay(function, sizes):
    assert "aten.full_like.default" in targets(function, torch.randn(sizes))
