"""Histories of autograd: outputs whose gradients go elsewhere in compiled code are reported."""

import pytest
import torch

from aliasproof.checks.check import check_target
from aliasproof.checks.preparation import prepare_as_called
from aliasproof.formats.stored_graph import StoredGraph
from aliasproof.running_model.model_check import summary
from aliasproof.targets.gradients import WithGradients
from aliasproof.targets.registry import TARGETS
from tests.short_programs import known_bug

AOT = "aot-eager"


def doubled_and_its_view(x):
    y = x * 2
    with torch.no_grad():
        v = y.view(2, 2)
    return y, v


@known_bug
def test_a_view_that_brings_gradients_in_compiled_code_only_is_told(checking, capsys) -> None:
    x = torch.ones(4, requires_grad=True)
    with checking(AOT) as check:
        y, v = torch.compile(doubled_and_its_view)(x)
        (y.sum() + 3 * v.sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 4
    (found,) = check.differences
    assert (found.direction, found.violation.oracle) == ("backward", "values")
    assert "the gradient of input 'x': 4 of 4 elements" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["detaches", "detaches_as_leaf"])
def test_a_lost_history_is_told_without_a_backward_pass(checking, planted, name: str) -> None:
    with checking(planted(name)) as check:
        torch.compile(lambda x: x * 2)(torch.ones(2, requires_grad=True))
    assert check.differences[0].direction == "backward"


def test_another_history_with_equal_gradients_is_counted(checking, planted) -> None:
    with checking(planted("requires_more")) as check:
        compiled = torch.compile(lambda x, y: (y.sin(), x * 2))
        for _ in range(2):
            compiled(torch.ones(2, requires_grad=True), torch.ones(2))
    counts = check.graphs[0].counts
    assert check.differences == []
    assert (counts.forward, list(counts.unjudged.values())) == (0, [2])
    assert any("2 of 2 calls, because a tensor is a leaf" in line for line in summary(check))


def test_gradients_of_zeros_for_none_are_counted(checking) -> None:
    one, other = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with checking(AOT) as check:
        torch.compile(lambda a, b: (a * 2, b * 3))(one, other)[0].sum().backward()
    assert check.differences == []
    assert check.graphs[0].counts.backward == 1
    assert any(
        "backward pass in 1 of 1 call, because a gradient is None on one" in line
        for line in summary(check)
    )


def test_gradients_of_a_program_end_at_a_view_that_was_made_without_gradients() -> None:
    x = torch.ones(4, requires_grad=True)
    gradient = WithGradients(doubled_and_its_view)(x)[-1]
    assert gradient.tolist() == [3, 6, 9, 12]  # of y and x


def weighted(weight, state):
    return (weight * state.clone()).sum()


def test_a_write_before_the_backward_pass_is_part_of_what_is_compared(checking, capsys) -> None:
    # Compiled code saves `state` itself, eager its clone.
    weight, state = torch.ones(2, requires_grad=True), torch.ones(2)
    with checking(AOT) as check:
        compiled = torch.compile(weighted)
        first = compiled(weight, state)
        torch.compile(lambda x: x.add_(1))(state)
        (first + compiled(weight, state)).backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [3.0, 3.0]
    (found,) = check.differences
    assert (found.call.number, found.violation.oracle) == (1, "errors")
    assert "not stored: it shows if an input is written before" in capsys.readouterr().err


def test_a_write_that_eager_refuses_is_no_difference(checking) -> None:
    weight, state = torch.ones(2, requires_grad=True), torch.ones(2)
    with checking(AOT) as check:
        loss = torch.compile(lambda weight, state: (weight * state).sum())(weight, state)
        state.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    assert check.differences == []


def test_an_optimizer_within_the_backward_pass_is_no_earlier_write(checking) -> None:
    weight = torch.ones(2, requires_grad=True)

    def descend(parameter):
        with torch.no_grad():
            parameter.sub_(parameter.grad)

    weight.register_post_accumulate_grad_hook(descend)
    with checking(AOT) as check:
        torch.compile(lambda x: (x * x).sum())(weight).backward()
    assert check.differences == []
    assert (check.graphs[0].counts.backward, check.graphs[0].counts.unjudged) == (1, {})


class Scaled(torch.nn.Module):
    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        with torch.no_grad():
            self.scale.mul_(1.5)
        return (x * self.weight * self.scale.clone()).sin()


@known_bug
def test_a_stored_graph_keeps_which_inputs_are_static(checking) -> None:
    # AOTAutograd saves a static input in place of its clone, and so reads it after the write.
    with checking(AOT) as check:
        torch.compile(Scaled())(torch.ones(2, 3)).sum().backward()
    (folder,) = check.folders
    stored = StoredGraph.read(folder)
    called = prepare_as_called(stored.module, tuple(stored.inputs))
    assert called is not None
    (found,) = check_target(called, TARGETS[AOT]).violations
    assert (found.oracle, found.place) == ("values", "l_self_parameters_weight_.grad")
