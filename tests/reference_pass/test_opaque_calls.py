"""Opaque calls may keep what they are given, and return it later."""

from __future__ import annotations

import pytest
import torch

from aliasproof.reference_pass import Broken, Refused, functionalize, plan_memory
from aliasproof.reference_pass.capture.footprint import footprint

KEPT: list[torch.Tensor] = []  # what `cached` was given first


@torch.library.custom_op("aliasproof_keeping::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    KEPT.append(x)
    return x.sum()


counted.register_fake(lambda x: x.new_empty(()))
COUNTED = torch.ops.aliasproof_keeping.counted.default


@pytest.fixture(scope="module", autouse=True)
def library():
    """An operator that returns what it got first, against its schema."""
    with torch.library._scoped_library("aliasproof_opaque_calls", "DEF") as library:
        library.define("cached(Tensor x) -> Tensor")

        def cached(x):
            KEPT.append(x)
            return KEPT[0]

        library.impl("cached", cached, "CPU")
        library.impl("cached", torch.empty_like, "Meta")
        yield
    KEPT.clear()


def cached(x):
    return torch.ops.aliasproof_opaque_calls.cached.default(x)


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
    return [torch.ops.aliasproof_opaque_calls.cached.default]


def test_an_operator_that_is_stated_to_keep_nothing_bars_nothing():
    calls = footprint(planned().graph).calls
    assert footprint(planned(non_aliasing=stated()).graph).calls < calls


def test_a_wrong_statement_is_found_when_the_graph_runs():
    made = planned(non_aliasing=stated(), check_non_aliasing=True)
    with pytest.raises(Broken, match="returns memory that it had before"):
        made(torch.ones(3))


def test_an_operator_that_keeps_what_it_was_given_is_found_at_once():
    KEPT.clear()
    program = functionalize(lambda x: counted(x * 2) + 1, torch.ones(3))
    made = plan_memory(program, non_aliasing=[COUNTED], check_non_aliasing=True)
    with pytest.raises(Broken, match="keeps what it was given"):
        made(torch.ones(3))


@pytest.mark.parametrize("wrong", [["aten.mul"], COUNTED, [torch.ops.aten.mul], None])
def test_what_is_no_operator_is_refused(wrong):
    with pytest.raises(Refused, match="give a list of operators"):
        plan_memory(functionalize(lambda x: x + 1, torch.ones(3)), non_aliasing=wrong)


def test_the_reason_says_who_may_have_kept_it():
    made = planned()
    reasons = str(made.meta["reinplace"])
    assert "may have kept mul" in reasons
    assert "later reads mul" not in reasons


def test_another_number_of_sample_arguments_is_refused():
    made = functionalize(lambda x, y: x * 2 - y, torch.ones(3), torch.ones(3))
    with pytest.raises(Refused, match="takes 2 inputs, but 1"):
        plan_memory(made, torch.ones(3))


def remembers(x):
    """A Python function that returns what it got first."""
    KEPT.append(x)
    return KEPT[0]


def graph_with_a_function():
    made = functionalize(hidden_alias, torch.ones(3))
    for node in made.graph.nodes:
        if node.target is torch.ops.aliasproof_opaque_calls.cached.default:
            node.target = remembers
    made.recompile()
    return made


def test_a_python_function_is_an_opaque_call():
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
