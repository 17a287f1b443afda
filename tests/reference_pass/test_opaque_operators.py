"""Operators of other libraries: their operands have the layouts and the sharing of eager."""

from typing import Any

import pytest
import torch
from torch import Tensor, fx

import aliasproof.ir.custom_operators  # noqa: F401 - it registers them
from aliasproof.reference_pass import (
    Broken,
    Refused,
    functionalize,
    pipeline,
    plan_memory,
)
from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.nested import tensors_in
from tests.reference_pass.conftest import KEPT
from tests.reference_pass.graphs import X, Y, graph_of
from tests.reference_pass.scene import assert_alike, counted, names, programs_of

ops = torch.ops.aliasproof


def line() -> Tensor:
    return torch.arange(1.0, 9)


PROGRAMS = programs_of(
    """
# --- operands that share memory -------------------------------------------------------------------

written_twice(x): line
    ops.add_both(x[:-2], x[2:])
    return x + 1

read_again(x): line
    ops.add_twice(x[:6], x[2:])
    return x + 1

one_tensor_three_times(x): line
    y = x * 2
    ops.running_sum([y, y, y[:]])
    return y

of_two_dtypes(x): line
    ops.double(x.view(torch.int32)[2:])
    return x[:1] * 2

through_the_composite(x): line
    ops.add_composite(x[1:], x[:-1])
    return x

buffer_beside_an_operand(x): line
    ops.add_out(x[:4], x[1:5], out=x[2:6])
    return x * 2

# --- layouts --------------------------------------------------------------------------------------

of_a_write_through_a_view(x): line
    y = x.view(2, 4).t() + 0
    y[1].zero_()  # the new value of y has the strides of a scatter
    return ops.strides(y)

of_a_slice_that_was_written(x): line
    y = x + 1
    y[2:].mul_(2)
    return ops.location(y[2:])

of_an_operand_beside_spare_bytes(x): line
    return ops.location(x.view(torch.uint8)[:11].clone().view(-1)[:8].view(torch.int32))

of_an_expanded_input(x): line
    y = x[:1].expand(2, 3, 1)
    x.add_(1)
    return ops.strides(y)

without_its_optional_argument(x): line
    y = x[2:]
    y.add_(1)
    return ops.add_into(y, None)

of_a_fill_of_size_one(x): line
    return ops.strides(torch.fill(x[:1:2].as_strided((1,), (2,)).tensor_split([0])[1], 0))

clone_of_a_slice(x): line
    return ops.location(x[2:].clone())

clone_whose_original_an_operator_writes(x): line
    y = x.clone()
    ops.add_twice(x, y)  # it reads y again after it wrote x
    return x * 2
""",
    globals(),
    lambda inputs: inputs,
)
BY_NAME: dict[str, Any] = {program.__name__: program for program, _ in PROGRAMS}


@pytest.mark.parametrize(("program", "inputs"), PROGRAMS, ids=names(PROGRAMS))
def test_operands_share_memory_and_are_laid_out_as_in_eager(program: Any, inputs: Any) -> None:
    assert_alike(pipeline(program, inputs()), program, inputs())


def test_an_operand_with_the_lazy_negative_bit_shares_no_memory() -> None:
    # A trace would contain a call of `neg` instead.
    program = graph_of(
        (torch.ops.aten._neg_view.default, X), (ops.add_out.default, Y, X, {"out": X})
    )
    x = line()
    assert torch.equal(functionalize(program, line())(x)[0], torch.zeros(8))
    assert torch.equal(x, torch.zeros(8))


def test_an_operator_on_copies_is_in_place_again_where_nothing_reads_its_operand() -> None:
    def program(x: Tensor) -> Any:
        y = x + 1
        ops.add_both(y, x * 3)
        return y

    compiled = pipeline(program, line())
    assert_alike(compiled, program, line())
    assert ops.add_both.default in [node.target for node in compiled.graph.nodes]


@pytest.mark.parametrize("name", ["written_twice", "of_a_slice_that_was_written"])
def test_layouts_may_be_symbols(name: str) -> None:
    program = BY_NAME[name]
    graph = functionalize(program, line(), sizes="symbolic")
    assert_alike(graph, program, torch.arange(1.0, 12))


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
    """So if an operator gets that copy, the result may not be put at another offset."""

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
    """The sum is not put into the input: an int64 scatter would copy four and a half elements."""

    def program(x: Tensor) -> Any:
        y = x.view(torch.int64)
        x.add_(1)
        ops.store_sum(y[:3], y[1:], y[1:])

    one, other = torch.arange(9.0), torch.arange(9.0)
    program(one[:8])
    pipeline(program, other[:8], views=views)(other[:8])
    assert torch.equal(one, other)


# --- opaque calls may keep their arguments, and return them later ---------------------------------


def remembers(x):
    """A Python function that returns the operand of its first call."""
    KEPT.append(x)
    return KEPT[0]


@pytest.fixture(scope="module", autouse=True)
def library():
    """An operator that returns the operand of its first call, against its schema."""
    with torch.library._scoped_library("aliasproof_opaque_calls", "DEF") as library:
        library.define("cached(Tensor x) -> Tensor")
        library.impl("cached", remembers, "CPU")
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


def stated():
    return [torch.ops.aliasproof_opaque_calls.cached.default]


def test_a_wrong_statement_is_found_when_the_graph_runs():
    made = planned(non_aliasing=stated(), check_non_aliasing=True)
    with pytest.raises(Broken, match="returns memory that it had before"):
        made(torch.ones(3))


def test_an_operator_that_keeps_what_it_was_given_is_found_at_once(keeping):
    program = functionalize(lambda x: keeping.store(x * 2) + 1, torch.ones(3))
    stated = [keeping.store.default]
    made = plan_memory(program, non_aliasing=stated, check_non_aliasing=True)
    with pytest.raises(Broken, match="keeps what it was given"):
        made(torch.ones(3))


@pytest.mark.parametrize("wrong", [["aten.mul"], ops.add_both.default, [torch.ops.aten.mul], None])
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


# --- functional collectives use memory after their call -------------------------------------------


aten = torch.ops.aten


@pytest.mark.parametrize("views", ["alias", "copy"])
def test_what_is_waited_for_is_not_overwritten_while_its_operand_lives(group, views):
    def doubled(x):
        return aten.mul.Tensor(group.wait_tensor.default(x), 2)

    def both(x):
        made = aten.add.Tensor(x, 1)
        sine = aten.sin.default(group.wait_tensor.default(made))
        return aten.add.Tensor(sine, made)

    for program in (doubled, both):
        compiled = pipeline(fx.symbolic_trace(program), counted(3), views=views)
        assert_alike(compiled, program, counted(3))


@pytest.mark.parametrize("views", ["alias", "copy"])
def test_a_result_that_only_the_wait_has_is_overwritten(group, views):
    def mean(x):
        made = aten.add.Tensor(x, 1)
        total = group.all_reduce.default(made, "sum", "0")
        sine = aten.sin.default(made)  # not in place: the collective may still read its operand
        return aten.mul.Tensor(group.wait_tensor.default(total), 0.5), sine

    done = pipeline(fx.symbolic_trace(mean), counted(3), views=views)
    found = [node.target for node in done.graph.nodes]
    assert aten.mul_.Tensor in found
    assert aten.sin.default in found
    assert_alike(done, mean, counted(3))
