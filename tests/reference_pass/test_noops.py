"""Erasing no-ops: calls without an effect are erased, unless a use distinguishes their result."""

import copy

import pytest
import torch
from torch import Tensor, fx

from aliasproof.reference_pass import checked, functionalize, pipeline, remove_noops
from aliasproof.reference_pass.eager.layout_conditions import no_use_of_location
from aliasproof.reference_pass.pipeline import NOOP_RULES, RemoveNoOps
from aliasproof.reference_pass.planning.noops import (
    copy_is_not_returned,
    original_is_not_overwritten,
    same_metadata,
    view_is_not_returned,
)
from tests.reference_pass.graphs import calls_of
from tests.reference_pass.scene import names, programs_of, violations

aten = torch.ops.aten


def calls_left(program, *inputs: Tensor) -> list[str]:
    graph_module = functionalize(program, *inputs)
    with checked():
        RemoveNoOps(*inputs)(graph_module)
    assert violations(program, inputs, lambda *_: graph_module) == []
    return calls_of(graph_module)


X = torch.arange(1.0, 7)


TWO, GRID = torch.arange(2.0), torch.arange(9.0).view(3, 3)

# Each head: the calls that remain, all or some of them, or one that is erased; and other inputs.
PROGRAMS = programs_of(
    """
a_clone_that_no_use_can_tell(x): "add.Tensor"
    return x.clone() + 1

a_clone_that_is_returned(x): "clone.default"
    return x.clone()

a_clone_whose_original_is_returned(x): "add.Tensor clone.default"
    y = x + 1
    return y, y.clone()

one_that_would_alias_an_input_through_the_epilogue(x): "clone.default ..."
    y = x.clone()
    x.copy_(y)
    return y

swapped_inputs(x, y): "copy.default copy_.default copy_.default", X, X + 6
    old = x.clone()
    x.copy_(y)
    y.copy_(old)

one_that_is_read_only_before_the_epilogue(x): "no clone.default"
    old = x.clone()
    x.add_(old * 2)

another_layout_on_which_a_use_depends(x): "clone.default ..."
    return x.view(2, 3).t().clone(memory_format=torch.contiguous_format).view(6) + 1

another_offset_on_which_as_strided_depends(x): "clone.default ..."
    return x[2:].clone().as_strided((2,), (1,), 0) + 1

a_copy_of_a_whole_storage_beside_a_scatter_around_it(x, y): "...", TWO[0], torch.tensor(5.0)
    x.copy_(y)
    return torch.as_strided_scatter(x, torch.ones(2), (2,), (1,), 0)

views_of_all(x): "cat.default"
    return torch.cat([x.view(6), x.expand(6), x[:], x.permute(0), x.detach()])

there_and_back(x): "add.Tensor"
    return x.unsqueeze(0).squeeze(0) + 1

stored_beside_its_original(x): "clone.default ...", GRID
    return x[1:].copy_(x[:-1].clone())

stored_beside_a_part_of_its_original(x): "clone.default ...", GRID
    return x[1:].copy_(x.clone()[:-1])

stored_turned(x): "clone.default ...", GRID
    return x.copy_(x.t().clone())

turned_and_stored(x): "clone.default ...", GRID
    return x.copy_(x.clone().t())

a_column_that_is_stored_in_a_row(x): "clone.default ...", GRID
    return x[0].copy_(x.clone()[:, 0])

stored_where_it_came_from(x): "no clone.default"
    return x[1:].copy_(x.clone()[1:])

a_view_that_is_returned_stays_another_object(x): "view.default"
    return x, x.view(6)

a_scatter_of_its_own_view(x): "add.Tensor"
    return torch.slice_scatter(x, x[2:], 0, 2) + 1

casts_to_the_same_dtype_and_to_another(x): "_to_copy.default add.Tensor"
    same = aten._to_copy.default(x, dtype=torch.float32)
    return same + aten._to_copy.default(x, dtype=torch.float64)
""",
    globals(),
    lambda calls, *inputs: (calls, inputs or (X,)),
)


@pytest.mark.parametrize(("program", "given"), PROGRAMS, ids=names(PROGRAMS))
def test_the_calls_that_are_left(program, given):
    calls, inputs = given
    left = calls_left(program, *inputs)
    if calls.startswith("no "):
        assert calls.removeprefix("no ") not in left
    elif calls.endswith("..."):
        assert {*calls.removesuffix("...").split()} <= {*left}
    else:
        assert left == calls.split()


@pytest.mark.parametrize("same", [aten.contiguous.default, aten.resolve_neg.default])
def test_a_view_stays_that_a_composite_hands_on(same):
    compiled = pipeline(fx.symbolic_trace(lambda x: same(aten.alias.default(x))), X)
    assert compiled(X) is not X


def test_it_does_nothing_twice():
    graph_module = remove_noops(functionalize(lambda x: x.clone().view(6) + 1, X), X)
    before = str(graph_module.graph)
    assert str(remove_noops(graph_module, X).graph) == before


KEPT_BY = {
    same_metadata: "casts_to_the_same_dtype_and_to_another",
    view_is_not_returned: "a_view_that_is_returned_stays_another_object",
    copy_is_not_returned: "a_clone_that_is_returned",
    no_use_of_location: "another_offset_on_which_as_strided_depends",
    original_is_not_overwritten: "swapped_inputs",
}


@pytest.mark.parametrize("rule", NOOP_RULES, ids=lambda rule: rule.__name__)
def test_each_rule_keeps_what_would_be_erased_without_it(rule):
    (functional,) = (
        functionalize(program, *inputs)
        for program, (_, inputs) in PROGRAMS
        if program.__name__ == KEPT_BY[rule]
    )
    others = [other for other in NOOP_RULES if other is not rule]
    kept = calls_of(remove_noops(copy.deepcopy(functional)))
    assert len(calls_of(remove_noops(functional, rules=others))) < len(kept)
