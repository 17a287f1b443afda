"""Lifting: the program does what the function does, to outputs and to inputs."""

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.utils import _pytree as pytree

from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import run
from aliasproof.ir.lifting import lift_program
from aliasproof.ir.parsing import parse_source
from aliasproof.ir.printing import source
from aliasproof.ir.serialization import dumps, loads
from aliasproof.ir.values import clone_inputs, input_tensors

Function = Callable[..., object]
CAPTURED = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def write_through_a_view(x, y):
    y[1:].add_(x.sum())
    return x.expand(3, 4), y.t()


def captured(x, y):
    CAPTURED.t()[0].copy_(x[:2])
    return x[:2] @ CAPTURED, CAPTURED


def constants(x, y):
    made = torch.tensor([5.0, 6.0, 7.0, 8.0])
    made.mul_(x)
    return made, torch.zeros(3), torch.full((), 2.5), x + torch.tensor(1.0)


def numbers_for_tensors(x, y):
    i = torch.arange(4)
    return i + 0.5, i * 2, x.eq(2), torch.where(x > 1, x, 0.0), x**2, torch.floor_divide(x, 2)


def words(x, y):
    chosen = torch.div(x, 2, rounding_mode="floor")
    return (
        chosen,
        functional.gelu(x, approximate="tanh"),
        x.scatter_reduce(0, torch.tensor([0, 0, 1, 1]), x, "sum"),
    )


def lists(x, y):
    one, other = x.chunk(2)
    torch._foreach_add_([one, other], [y[:2], y[2:]])
    return torch.split(x, 2), torch.stack((one, other)), y[torch.tensor([0, 2])]


def decided_by_data(x, y):
    if x.sum() > 0:
        x.neg_()
    return x * y[1].item()


def backward(x, y):
    leaf = x.detach().requires_grad_()
    with torch.enable_grad():
        (leaf.view(-1) * leaf.view(2, 2).flatten()).sum().backward()
    return leaf.grad


def returns_its_argument(x, y):
    return {"sum": x.add_(y), "same": y}, 7


def resized(x, y):
    return x.clone().resize_(2), x.to(torch.float64).contiguous(
        memory_format=torch.contiguous_format
    )


FUNCTIONS = [
    *(write_through_a_view, captured, constants, numbers_for_tensors, words, lists),
    *(decided_by_data, backward, returns_its_argument, resized),
]


def two_views() -> list[torch.Tensor]:
    """Two inputs in one storage, with values that no fill contains."""
    base = torch.tensor([0.5, -3.0, float("inf"), 2.0, 8.0, -0.0, 1e20, 1.0])
    return clone_inputs([base[:4], base[4:]])


def after(function: Function, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that a function returns, and its inputs after the call."""
    torch.manual_seed(0)
    with torch.no_grad():
        returned = pytree.tree_leaves(function(*inputs))
    return [leaf for leaf in returned if isinstance(leaf, torch.Tensor)] + inputs


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_program_does_what_the_function_does_and_can_be_written(function: Function) -> None:
    CAPTURED.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    with torch.no_grad():
        program = lift_program(function, two_views()).program
    CAPTURED.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    expected = after(function, two_views())
    tensors = input_tensors(program)
    actual = [*run(program, tensors), *tensors[:2]]
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    assert [tensor.stride() for tensor in actual] == [tensor.stride() for tensor in expected]
    assert tensors[0].untyped_storage()._cdata == tensors[1].untyped_storage()._cdata
    assert loads(dumps(program)) == program
    assert parse_source(source(program), program.storages, program.inputs) == program


def test_a_captured_tensor_is_a_further_input() -> None:
    with torch.no_grad():
        program = lift_program(captured, two_views()).program
    assert len(program.inputs) == 3
    assert program.inputs[2].sizes == (2, 2)


def test_with_originals_a_program_says_what_autograd_sees() -> None:
    def step(weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            weight.mul_(2)
        return weight * x + y

    leaf = torch.ones(2, requires_grad=True)
    originals = [leaf, leaf * 1, torch.ones(2)]
    copies = [original.detach().clone() for original in originals]
    program = lift_program(step, copies, originals).program
    assert [storage.gradient for storage in program.storages] == ["leaf", "computed", "none"]
    assert [call.grad for call in program.instructions] == [False, True, True]
    assert all(call.grad for call in lift_program(step, copies).program.instructions)


def test_numbers_from_data_are_noted() -> None:
    with torch.no_grad():
        (note,) = lift_program(decided_by_data, two_views()).notes
    assert "aten._local_scalar_dense.default" in note or "aten.is_nonzero" in note


def test_long_storages_lose_their_values_with_a_note() -> None:
    lifted = lift_program(lambda x: x + 1, [torch.rand(20_000)])
    assert lifted.program.storages[0].values == ()
    assert "too long" in lifted.notes[0]
    same = lift_program(lambda x: x + 1, [torch.zeros(20_000)])
    assert same.program.storages[0].values == ("0.0",)
    assert same.notes == ()


REFUSED = [
    (lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)), "cond"),
    (lambda x: x + 1j, "'other' of aten.add.Tensor"),
    (lambda x: x.to_sparse(), "sparse"),
    (lambda x: x.to("meta"), "meta"),
]


@pytest.mark.parametrize(("function", "name"), REFUSED)
def test_what_a_program_cannot_say_is_refused_by_name(function: Function, name: str) -> None:
    with pytest.raises(UserError, match=name):
        lift_program(function, [torch.ones(4)])
    torch._dynamo.reset()  # `cond` leaves compiled code, which cannot be exported


def test_an_input_that_is_too_large_is_refused() -> None:
    with pytest.raises(UserError, match="storages"):
        lift_program(lambda x: x[0] + 1, [torch.zeros(2**25)])


def test_calls_are_recorded_as_a_target_gets_them() -> None:
    """With the overload and the node name of a graph of `make_fx`."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return ((x + 1).mul_(2) / 4 - 0.5) // 3

    (x,) = two_views()[:1]
    graph = make_fx(function)(x.clone()).graph
    calls = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    program = lift_program(function, [x]).program
    assert [instruction.op.removeprefix("aten.") for instruction in program.instructions] == [
        call.removeprefix("aten.") for call in calls
    ]
    assert [instruction.args[1] for instruction in program.instructions] == [1, 2, 4, 0.5, 3]
