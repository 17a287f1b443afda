"""Marks: which operand may hold a result, decided early and lowered late."""

import copy

import pytest
import torch

from aliasproof.reference_pass import (
    Refused,
    call_in_place,
    functionalize,
    mark_in_place,
    plan_memory,
    remove_noops,
)
from aliasproof.reference_pass.planning.timeline import footprint
from tests.reference_pass.graphs import X, graph_of
from tests.reference_pass.scene import assert_alike

aten = torch.ops.aten


def functional(program, *inputs):
    return remove_noops(functionalize(program, *inputs))


def marks(graph_module):
    """The marks of a graph, by the name of their node."""
    return {
        node.name: node.args[1] for node in graph_module.graph.nodes if node.target is call_in_place
    }


def marked_by_hand(program, name, into, *inputs):
    """The functional graph of a program, with one mark."""
    made = functional(program, *inputs)
    (node,) = [node for node in made.graph.nodes if node.name == name]
    node.args = (node.target, into, *node.args)
    node.target = call_in_place
    return made


def chain(x, y):
    a = x * 2
    b = a + y
    return b.relu()


def test_a_mark_names_the_dead_operand():
    assert marks(mark_in_place(functional(chain, torch.ones(3), torch.ones(3)))) == {
        "add": (0,),
        "relu": (0,),
    }


def test_a_marked_graph_is_pure_and_computes_the_same():
    x, y = torch.randn(3), torch.randn(3)
    made = mark_in_place(functional(chain, x, y))
    assert_alike(made, chain, x, y)
    assert footprint(made.graph) == footprint(functional(chain, x, y).graph)


def test_marks_are_lowered():
    x, y = torch.randn(3), torch.randn(3)
    made = plan_memory(mark_in_place(functional(chain, x, y)))
    assert not marks(made)
    assert footprint(made.graph).calls == 1
    assert_alike(made, chain, x, y)


def two(x, y):
    a, b = x * 2, y * 3
    return a + b


@pytest.mark.parametrize(("into", "holder"), [((0,), "mul"), ((1,), "mul_1")])
def test_a_user_may_say_which_operand(into, holder):
    made = plan_memory(marked_by_hand(two, "add", into, torch.ones(2), torch.ones(2)))
    assert str(made.graph.output_node().args[0]) == holder
    assert torch.equal(made(torch.ones(2), torch.ones(2)), torch.full((2,), 5.0))


def test_a_user_may_say_that_a_result_gets_a_new_storage():
    made = plan_memory(marked_by_hand(two, "add", (-1,), torch.ones(2), torch.ones(2)))
    assert footprint(made.graph).calls == 3


def uses_operand_later(x, y):
    a = x * 2
    return a + y, a


def broadcasts(x, y):
    a = x * 2
    return a[:1] + y


@pytest.mark.parametrize(
    ("program", "into", "reason"),
    [
        (two, (2,), "it has 2 operands"),
        (two, (0, 1), "it has 1 result$"),
        (two, 0, "a mark is a tuple"),
        (two, ("0",), "a mark is a tuple"),
        (uses_operand_later, (0,), "shares memory with it, and output later reads mul"),
        (uses_operand_later, (1,), "is memory of an input"),
        (broadcasts, (0,), "the operator cannot write its result there|has size"),
    ],
)
def test_a_mark_that_is_not_safe_is_refused(program, into, reason):
    made = marked_by_hand(program, "add", into, torch.ones(2), torch.ones(2))
    with pytest.raises(Refused, match=reason):
        plan_memory(made)


@pytest.mark.parametrize("into", [(-1,), (0,)])
def test_a_marked_concatenation_stays_one(into):
    """Its parts get no buffer, as without a mark."""

    def program(x, y):
        return torch.cat([x * 2, y + 1])

    made = marked_by_hand(program, "cat", into, torch.ones(2), torch.ones(2))
    if into == (0,):
        with pytest.raises(Refused, match="the operator cannot write its result there"):
            plan_memory(made)
    else:
        called = [node.target for node in plan_memory(made).graph.nodes]
        assert aten.cat.default in called


def test_a_pass_in_between_may_make_a_mark_wrong():
    made = mark_in_place(functional(two, torch.ones(2), torch.ones(2)))
    (add,) = [node for node in made.graph.nodes if node.name == "add"]
    output = made.graph.output_node()
    output.args = ((output.args[0], add.args[2]),)
    with pytest.raises(Refused, match="marked"):
        plan_memory(made)


def test_a_mark_of_a_mutating_operator_is_refused():
    graph = graph_of((call_in_place, aten.add_.Tensor, (0,), X, 1))
    with pytest.raises(Refused, match="not a call of a functional operator"):
        plan_memory(graph, torch.ones(2))


def test_planning_leaves_a_copy_of_the_marked_graph_alone():
    made = mark_in_place(functional(chain, torch.ones(3), torch.ones(3)))
    kept = copy.deepcopy(made)
    plan_memory(made)
    assert marks(kept)
