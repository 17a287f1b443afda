"""Operators of other libraries: their operands are laid out, and share memory, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import aliasproof.ir.custom_operators  # noqa: F401 - it registers them
from aliasproof.reference_pass import functionalize, pipeline, remove_noops
from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.eager.layout_conditions import no_use_of_location
from aliasproof.reference_pass.pipeline import NOOP_RULES
from tests.reference_pass.graphs import X, Y, graph_of

ops = torch.ops.aliasproof


def agrees(program: Callable[..., Any], *inputs: Tensor) -> bool:
    """Whether the whole pass gives what eager gives, and leaves the inputs as eager does."""
    eager, ours = [tuple(tensor.clone() for tensor in inputs) for _ in range(2)]
    expected, found = program(*eager), pipeline(program, *inputs)(*ours)
    pairs = zip((expected, *eager), (found, *ours), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def line() -> Tensor:
    return torch.arange(1.0, 9)


def written_twice(x: Tensor) -> Any:
    ops.add_both(x[:-2], x[2:])
    return x + 1


def read_again(x: Tensor) -> Any:
    ops.add_twice(x[:6], x[2:])
    return x + 1


def one_tensor_three_times(x: Tensor) -> Any:
    y = x * 2
    ops.running_sum([y, y, y[:]])
    return y


def of_two_dtypes(x: Tensor) -> Any:
    ops.double(x.view(torch.int32)[2:])
    return x[:1] * 2


def through_the_composite(x: Tensor) -> Any:
    ops.add_composite(x[1:], x[:-1])
    return x


def buffer_beside_an_operand(x: Tensor) -> Any:
    ops.add_out(x[:4], x[1:5], out=x[2:6])
    return x * 2


OVERLAPS = [
    written_twice,
    read_again,
    one_tensor_three_times,
    of_two_dtypes,
    through_the_composite,
    buffer_beside_an_operand,
]


@pytest.mark.parametrize("program", OVERLAPS, ids=lambda program: program.__name__)
def test_operands_share_memory_as_in_eager(program: Callable[..., Any]) -> None:
    assert agrees(program, line())


def test_an_operand_with_the_lazy_negative_bit_shares_no_memory() -> None:
    # A trace would contain a call of `neg` instead.
    program = graph_of(
        (torch.ops.aten._neg_view.default, X), (ops.add_out.default, Y, X, {"out": X})
    )
    x = line()
    assert torch.equal(functionalize(program, line())(x)[0], torch.zeros(8))
    assert torch.equal(x, torch.zeros(8))


# --- layouts --------------------------------------------------------------------------------------


def of_a_write_through_a_view(x: Tensor) -> Any:
    y = x.view(2, 4).t() + 0
    y[1].zero_()  # the new value of y has the strides of a scatter
    return ops.strides(y)


def of_a_slice_that_was_written(x: Tensor) -> Any:
    y = x + 1
    y[2:].mul_(2)
    return ops.location(y[2:])


def of_an_operand_beside_spare_bytes(x: Tensor) -> Any:
    return ops.location(x.view(torch.uint8)[:11].clone().view(-1)[:8].view(torch.int32))


def of_an_expanded_input(x: Tensor) -> Any:
    y = x[:1].expand(2, 3, 1)
    x.add_(1)
    return ops.strides(y)


def without_its_optional_argument(x: Tensor) -> Any:
    y = x[2:]
    y.add_(1)
    return ops.add_into(y, None)


def of_a_fill_of_size_one(x: Tensor) -> Any:
    return ops.strides(torch.fill(x[:1:2].as_strided((1,), (2,)).tensor_split([0])[1], 0))


LAYOUTS = [
    of_a_fill_of_size_one,
    without_its_optional_argument,
    of_a_write_through_a_view,
    of_a_slice_that_was_written,
    of_an_operand_beside_spare_bytes,
    of_an_expanded_input,
]


@pytest.mark.parametrize("program", LAYOUTS, ids=lambda program: program.__name__)
def test_operands_are_laid_out_as_in_eager(program: Callable[..., Any]) -> None:
    assert agrees(program, line())


def clone_of_a_slice(x: Tensor) -> Any:
    return ops.location(x[2:].clone())


def test_a_clone_stays_if_an_operator_may_see_where_its_operand_is() -> None:
    assert agrees(clone_of_a_slice, line())
    kept = [rule for rule in NOOP_RULES if rule is not no_use_of_location]
    graph = remove_noops(functionalize(clone_of_a_slice, line()), rules=kept)
    assert graph(line()).tolist() != clone_of_a_slice(line()).tolist()


def test_a_clone_stays_if_an_operator_writes_its_original() -> None:
    def program(x: Tensor) -> Any:
        y = x.clone()
        ops.add_twice(x, y)  # it reads y again after it wrote x
        return x * 2

    assert agrees(program, line())


def test_an_operator_on_copies_is_in_place_again_where_nothing_reads_its_operand() -> None:
    def program(x: Tensor) -> Any:
        y = x + 1
        ops.add_both(y, x * 3)
        return y

    assert agrees(program, line())
    targets = [node.target for node in pipeline(program, line()).graph.nodes]
    assert ops.add_both.default in targets


@pytest.mark.parametrize("program", [written_twice, of_a_slice_that_was_written])
def test_layouts_may_be_symbols(program: Callable[..., Any]) -> None:
    graph = functionalize(program, line(), sizes="symbolic")
    longer = torch.arange(1.0, 12)
    eager, ours = longer.clone(), longer.clone()
    assert torch.equal(graph(ours), program(eager))
    assert torch.equal(ours, eager)


def test_a_copy_in_a_storage_of_symbolic_size_is_where_its_original_is() -> None:
    def program(x: Tensor) -> Any:
        y = x * 2
        ops.double(x[4:])
        return y

    graph = functionalize(program, line(), sizes="symbolic")
    (call,) = (node for node in graph.graph.nodes if node.target is on_copies)
    *_, copy = tensors_in(call.meta["val"])
    assert copy.storage_offset() == 4


def test_a_copy_of_the_storage_of_a_result_shows_where_the_result_is() -> None:
    """So the result may not be put at another offset, if an operator gets that copy."""

    def program(x: Tensor) -> Any:
        x.mul_(2)
        x[0] = x[0].neg()
        ops.double(x.clone())

    given = torch.zeros(20)[16:]
    (call,) = (node for node in pipeline(program, given).graph.nodes if node.target is on_copies)
    operand = call.args[1]
    assert isinstance(operand, fx.Node)
    assert operand.meta["val"].storage_offset() == 0


@pytest.mark.parametrize("views", ["alias", "copy"])
def test_a_copy_of_a_storage_that_ends_in_a_part_of_an_element_is_not_made(views: Any) -> None:
    """The sum stays out of the input: as int64, a scatter would copy four and a half elements."""

    def program(x: Tensor) -> Any:
        y = x.view(torch.int64)
        x.add_(1)
        ops.store_sum(y[:3], y[1:], y[1:])

    one, other = torch.arange(9.0), torch.arange(9.0)
    program(one[:8])
    pipeline(program, other[:8], views=views)(other[:8])
    assert torch.equal(one, other)
