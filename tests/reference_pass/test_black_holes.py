"""Opaque calls may keep what they are given, and return it later."""

from __future__ import annotations

import pytest
import torch

from aliasproof.reference_pass import Broken, Refused, functionalize, plan_memory
from aliasproof.reference_pass.capture.footprint import footprint

KEPT: list[torch.Tensor] = []  # what `cached` was given first


@pytest.fixture(scope="module", autouse=True)
def library():
    """An operator that returns what it got first, against its schema."""
    with torch.library._scoped_library("aliasproof_black_holes", "DEF") as library:
        library.define("cached(Tensor x) -> Tensor")

        def cached(x):
            KEPT.append(x)
            return KEPT[0]

        library.impl("cached", cached, "CPU")
        library.impl("cached", torch.empty_like, "Meta")
        yield
    KEPT.clear()


def cached(x):
    return torch.ops.aliasproof_black_holes.cached.default(x)


def hidden_alias(x):
    a = x * 2
    count = cached(a).sum()
    b = a + 1  # must not be in `a`: the next call returns it
    return cached(b) * b + count


def planned(**options):
    KEPT.clear()
    made = plan_memory(functionalize(hidden_alias, torch.ones(3)), **options)
    KEPT.clear()
    return made


def test_what_an_opaque_call_was_given_is_not_overwritten():
    KEPT.clear()
    expected = hidden_alias(torch.ones(3))
    assert torch.equal(planned()(torch.ones(3)), expected)


def stated():
    return [torch.ops.aliasproof_black_holes.cached.default]


def test_an_operator_that_is_stated_to_keep_nothing_bars_nothing():
    calls = footprint(planned().graph).calls
    assert footprint(planned(non_aliasing=stated()).graph).calls < calls


def test_a_wrong_statement_is_found_when_the_graph_runs():
    made = planned(non_aliasing=stated(), check_non_aliasing=True)
    with pytest.raises(Broken, match="returns memory that it had before"):
        made(torch.ones(3))


def remembers(x):
    """A Python function that returns what it got first."""
    KEPT.append(x)
    return KEPT[0]


def graph_with_a_function():
    made = functionalize(hidden_alias, torch.ones(3))
    for node in made.graph.nodes:
        if node.target is torch.ops.aliasproof_black_holes.cached.default:
            node.target = remembers
    made.recompile()
    return made


def test_a_python_function_is_a_black_hole():
    KEPT.clear()
    expected = hidden_alias(torch.ones(3))
    KEPT.clear()
    made = plan_memory(graph_with_a_function())
    assert not KEPT  # it is not run on fakes
    assert torch.equal(made(torch.ones(3)), expected)
    assert remembers in [node.target for node in made.graph.nodes]


def test_a_python_function_without_metadata_is_refused():
    made = graph_with_a_function()
    for node in made.graph.nodes:
        node.meta.clear()
    with pytest.raises(Refused, match="is not an ATen call"):
        plan_memory(made, torch.ones(3))
