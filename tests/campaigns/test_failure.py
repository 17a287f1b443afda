"""The reduction of a failure, and the text of a reduced failure."""

from typing import Any

import pytest
import torch
from torch import fx
from torch._inductor import config

from aliasproof.campaigns.failure.failure import Failure, Kept, pass_at_fault
from aliasproof.campaigns.failure.reduction import Runner, reduce_failure, shown_by_reduced
from aliasproof.eager import definedness
from aliasproof.eager.definedness_rules import RULES
from aliasproof.ir.eager_call import EagerCall
from aliasproof.judge.attribution import Symptom
from tests.campaigns.test_recognition import symptom_of


def swap_operands(graph: fx.Graph) -> None:
    """A wrong pass."""
    node: Any
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.sub.Tensor):
        node.args = (node.args[1], node.args[0])


def double_products(graph: fx.Graph) -> None:
    """Another wrong pass."""
    node: Any
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor):
        node.target = torch.ops.aten.add.Tensor


def test_a_reduction_stays_with_the_pass(program) -> None:
    product = program("v0 = aten.mul.Tensor(x0, x1)\nreturn (v0,)", (4,), (4,))
    difference = program("v0 = aten.sub.Tensor(x0, x1)\nreturn (v0,)", (4,), (4,))
    symptom = Symptom("inductor-fx", "values", "wrong value")
    with config.patch(
        joint_custom_post_pass=double_products, post_grad_custom_pre_pass=swap_operands
    ):
        kept = Kept(symptom, pass_at_fault(product, symptom))
        assert kept.wrong_part == "joint_graph: joint_custom_post_pass (double_products)"
        assert kept.grade(product) == 1
        assert kept.grade(difference) == 0
        assert Kept(symptom).grade(difference) == 1


def test_a_finding_names_the_pass_at_fault(program) -> None:
    drawn = program(
        "v0 = aten.neg.default(x0)\nv1 = aten.sub.Tensor(v0, x1)\nreturn v1, v0", (4,), (4,)
    )
    with config.patch(post_grad_custom_pre_pass=swap_operands):
        symptom = symptom_of(drawn, "inductor-fx")
        reduced = reduce_failure(Failure(symptom, drawn, seed=0))
    assert reduced is not None
    assert len(reduced.program) == 1
    assert reduced.wrong_part == "post_grad: post_grad_custom_pre_pass (swap_operands)"


@pytest.mark.parametrize("forks", [False, True])
def test_a_candidate_on_which_aliasproof_fails_ends_no_reduction(program, monkeypatch, forks):
    drawn = program(
        "v0 = aten.abs.default(x1)\nv1 = aten.sub.Tensor(x0, v0)\nreturn v1, v0", (4,), (4,)
    )

    def fails_on_one_tensor(call: EagerCall) -> str | None:
        if call.op is torch.ops.aten.sub.Tensor and len(set(map(id, call.only_read))) == 1:
            raise IndexError("a defect of the watch")
        return None

    with config.patch(post_grad_custom_pre_pass=swap_operands):
        symptom = symptom_of(drawn, "inductor-fx")
        monkeypatch.setattr(definedness, "RULES", (*RULES, fails_on_one_tensor))
        runner = Runner(forks)
        reduced = reduce_failure(Failure(symptom, drawn, seed=0), runner)
    assert reduced is not None
    assert len(reduced.program) == 1
    told = "watching aten.sub.Tensor failed: IndexError: a defect of the watch"
    assert runner.mistakes == [told]


def test_what_is_right_when_it_runs_again_shows_nothing(program) -> None:
    negated = program("v0 = aten.neg.default(x0)\nreturn (v0,)", (4,))
    assert shown_by_reduced(Symptom("identity", "values", "wrong value"), negated, negated) is None
