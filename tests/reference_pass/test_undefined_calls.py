"""With `strict`, calls that eager does not define are refused; others are not."""

from __future__ import annotations

import pytest
import torch

from aliasproof.reference_pass import Refused, functionalize, pipeline

SQUARE, OTHER = torch.arange(1.0, 10).view(3, 3), torch.ones(3, 3)

UNDEFINED = {
    "reads at other positions": lambda x, y: x.diagonal().add_(x.view(-1)[0]),
    "a part of itself": lambda x, y: x[1:].add_(x[:-1]),
    "overlaps itself": lambda x, y: x.as_strided((3, 2), (1, 1)).add_(1),
    "reads all that it writes": lambda x, y: x.addmm_(x, y),
    "into its operand": lambda x, y: torch.mm(x, y, out=x),
    "another pair of a foreach": lambda x, y: torch._foreach_add_([x, y], [y, x]),
    "twice in a foreach": lambda x, y: torch._foreach_add_([x, x[0]], 1),
}
DEFINED = {
    "the same elements": lambda x, y: x.mul_(x),
    "other elements": lambda x, y: x[1:].add_(y[:-1]),
    "disjoint parts": lambda x, y: x[0].add_(x[1]),
    "a fill": lambda x, y: x.as_strided((3, 2), (1, 1)).zero_(),
    "another op": lambda x, y: x.addmm_(y, y),
    "the same pair of a foreach": lambda x, y: torch._foreach_add_([x, y], [x, y]),
    "metadata": lambda x, y: x.t_(),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_an_undefined_call_is_refused(name):
    with pytest.raises(Refused, match="undefined in eager"):
        functionalize(UNDEFINED[name], SQUARE, OTHER, strict=True)


@pytest.mark.parametrize("name", DEFINED)
def test_a_defined_call_is_compiled(name):
    eager, compiled = ([SQUARE.clone(), OTHER.clone()] for _ in range(2))
    DEFINED[name](*eager)
    pipeline(DEFINED[name], SQUARE, OTHER, strict=True)(*compiled)
    assert str(eager) == str(compiled)


def test_the_backend_is_strict_by_an_option():
    torch._dynamo.reset()
    overlapping = lambda x: x.as_strided((3, 2), (1, 1)).add_(1) * 1  # noqa: E731
    torch.compile(overlapping, backend="aliasproof", options={"strict": False})(torch.ones(6))
    torch._dynamo.reset()
    strict = torch.compile(overlapping, backend="aliasproof", options={"strict": True})
    with pytest.raises(Exception, match="undefined in eager"):
        strict(torch.ones(6))
