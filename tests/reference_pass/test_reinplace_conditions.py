"""Reinplacing step by step: the conditions, each with the example that torch gives for it.

The steps (1) and (2) are those of the docstring of `torch.fx.passes.reinplace.reinplace`. Each
program is compared with eager by the fixture, and its metadata must be true (step 4).
"""

from __future__ import annotations

import pytest
import torch
from torch import fx

from aliasproof.reference_pass.candidates import How

aten = torch.ops.aten


# --- (1a) what the operand is like ----------------------------------------------------------------


def test_1a_an_operand_of_another_size_is_not_written(reinplaced):
    def program():
        a = torch.ones(1)
        b = torch.ones(10)
        return torch.add(a, b)

    done = reinplaced(program)
    assert done.refused("add") == "same_size_and_dtype"
    assert done.how == {"add": How.OUT}


def test_1a_an_operand_of_another_dtype_is_not_written(reinplaced, vector):
    def program(b):
        a = torch.ones(8)
        return torch.ge(a, b)

    done = reinplaced(program, vector)
    assert done.how == {"ge": None}
    assert done.refused("ge") == "same_size_and_dtype"


def test_1a_an_operand_of_other_strides_is_not_written_if_the_result_is_returned(
    reinplaced, square
):
    done = reinplaced(lambda x: (x + 1)[:, ::2].mul(2), square)
    assert done.how["mul"] is None
    assert done.refused("mul") == "same_stride"


def test_1a_an_operand_of_other_strides_is_written_if_nothing_can_tell(reinplaced, square):
    done = reinplaced(lambda x: (x + 1)[:, ::2].mul(2).amax(), square)
    assert done.how["mul"] is How.IN_PLACE


def test_1a_an_operand_that_overlaps_itself_is_not_written(reinplaced):
    done = reinplaced(lambda: torch.ones(1).expand(4, 4).add(1).amax())
    assert done.how == {"add": None}
    assert done.refused("add") == "no_self_overlap"


@pytest.mark.parametrize("stated", [{}, {"layout": torch.strided}])  # as torch emits it
def test_1a_a_comparison_followed_by_a_cast_back_is_in_place_with_it(reinplaced, vector, stated):
    def program(b):
        a = torch.ones(8)
        a_1 = a.ge(b)
        return aten._to_copy(a_1, dtype=a.dtype, **stated)

    done = reinplaced(program, vector)
    assert done.how["ge"] is How.CAST_BACK
    assert done.calls == ["ones.default", "ge_.Tensor"]


def test_1a_what_functionalization_emits_for_ge__is_ge__again(reinplaced, vector):
    def program(b):
        return torch.ones(8).ge_(b)

    done = reinplaced(program, vector)
    assert done.how["ge"] is How.CAST_BACK
    assert done.calls == ["ones.default", "ge_.Tensor"]


def test_1a_a_cast_to_another_dtype_does_not_help(reinplaced, vector):
    done = reinplaced(lambda b: torch.ones(8).ge(b).to(torch.float64), vector)
    assert done.how["ge"] is None
    assert done.refused("ge") == "same_size_and_dtype"


# --- (1b) inputs ----------------------------------------------------------------------------------


def test_1b_an_input_is_not_written(reinplaced, vector):
    done = reinplaced(lambda x: x.add(1), vector)
    assert done.how == {"add": None}
    assert done.refused("add") == "not_an_input"


def test_1b_a_view_of_an_input_is_not_written(reinplaced, square):
    done = reinplaced(lambda x: x.view(16)[4:].add(1).sum(), square)
    assert done.how["add"] is None
    assert done.refused("add") == "not_an_input"


def test_1b_an_input_is_written_if_a_later_copy__overwrites_it(reinplaced, vector):
    done = reinplaced(lambda x: x.mul_(2).add_(1), vector)
    assert done.how == {"mul": How.IN_PLACE, "add": How.IN_PLACE}
    assert done.calls == ["mul_.Tensor", "add_.Tensor"]


def test_1b_an_input_is_written_with_contents_that_a_later_copy__overwrites(
    reinplaced_as_written, vector
):
    def program(x, y):
        total = x.mul(2).sum()
        x.copy_(y)
        return total

    done = reinplaced_as_written(program, vector, vector.flip(0))
    assert done.how["mul"] is How.IN_PLACE
    assert done.calls == ["mul_.Tensor", "sum.default", "copy_.default"]


def test_1b_an_input_is_not_written_if_a_later_copy__overwrites_a_part_of_it(
    reinplaced_as_written, vector
):
    def program(x, front, y):
        total = x.mul(2).sum()
        front.copy_(y)
        return total

    done = reinplaced_as_written(program, vector, vector[:4], torch.ones(4))
    assert done.how["mul"] is None
    assert done.refused("mul") == "not_an_input"


def test_1b_a_result_that_is_read_after_the_copy__is_not_written_into_the_input(
    reinplaced_as_written, vector
):
    def program(x, y):
        twice = x.mul(2)
        x.copy_(y)
        return twice.sum()

    done = reinplaced_as_written(program, vector, vector.flip(0))
    assert done.how["mul"] is None
    assert done.refused("mul") == "dead_before_epilogue"


# --- (1c) operands that overlap -------------------------------------------------------------------


def test_1c_an_operand_that_overlaps_the_written_one_forbids_it(reinplaced, vector):
    def program(x):
        a = x + 1
        return a[1:3].sub(a[:2]).sum()

    done = reinplaced(program, vector)
    assert done.how["sub"] is None
    assert done.refused("sub") == done.refused("sub", How.OUT) == "no_overlapping_operand"


def test_1c_an_operand_beside_the_written_one_does_not(reinplaced, vector):
    def program(x):
        a = x + 1
        return a[2:4].sub(a[:2]).sum()

    assert reinplaced(program, vector).how["sub"] is How.IN_PLACE


def test_1c_an_overlapping_operand_in_a_nested_list_forbids_it(reinplaced_as_written):
    def program(x, values):
        a = x + 0
        return aten.index_put(a, [a[1:]], values).sum()

    done = reinplaced_as_written(program, torch.tensor([3, 2, 1, 0]), torch.tensor([5, 6, 7]))
    assert done.how["index_put"] is None
    assert done.refused("index_put") == "no_overlapping_operand"


def test_1c_an_overlapping_operand_in_kwargs_forbids_it(reinplaced_as_written, vector):
    graph = fx.Graph()
    a = graph.call_function(aten.neg.default, (graph.placeholder("x"),))
    halves = [graph.call_function(aten.slice.Tensor, (a, 0, start, start + 2)) for start in (1, 0)]
    difference = graph.call_function(aten.sub.Tensor, (halves[0],), {"other": halves[1]})
    graph.output(graph.call_function(aten.sum.default, (difference,)))

    done = reinplaced_as_written(fx.GraphModule({}, graph), vector)
    assert done.how[difference.name] is None
    assert done.refused(difference.name) == "no_overlapping_operand"


# --- (2) later uses -------------------------------------------------------------------------------


def test_2_an_operand_that_is_not_used_later_is_written(reinplaced, vector):
    done = reinplaced(lambda x: x.add(1).mul(2), vector)
    assert done.how["mul"] is How.IN_PLACE


def test_2_an_operand_that_is_used_later_is_not_written(reinplaced, vector):
    def program(x):
        a = x.add(1)
        return a.mul(2), a.sum()

    done = reinplaced(program, vector)
    assert done.how["mul"] is None
    assert done.refused("mul") == "no_later_use"


def test_2_an_operand_that_is_returned_is_not_written(reinplaced, vector):
    def program(x):
        a = x.add(1)
        return a, a.mul(2)

    assert reinplaced(program, vector).refused("mul") == "no_later_use"


def test_2_an_operand_with_a_view_that_is_used_later_is_not_written(reinplaced, vector):
    def program(x):
        a = x.add(1)
        view = a.view(2, 4)
        return a.mul(2), view.sum()

    assert reinplaced(program, vector).refused("mul") == "no_later_use"


def test_2_a_view_of_other_bytes_that_is_used_later_does_not_matter(reinplaced, vector):
    def program(x):
        a = x.add(1)
        return a[:4].mul(2).sum(), a[4:].sum()

    assert reinplaced(program, vector).how["mul"] is How.IN_PLACE


def test_2a_an_operand_with_a_view_that_is_made_later_is_written(reinplaced, vector):
    def program(x):
        a = x.add(1)
        b = a.mul(2)
        return b, torch.zeros_like(a.view(2, 4))

    done = reinplaced(program, vector)
    assert done.how["mul"] is How.IN_PLACE
    assert done.calls.index("view.default") > done.calls.index("mul_.Tensor")


def test_2b_a_repeated_argument_is_not_written(reinplaced, square):
    def program(x):
        a = x + 1
        return torch.addmm(a, a, a)

    done = reinplaced(program, square)
    assert done.how["addmm"] is None
    assert done.refused("addmm") == "not_repeated"


def test_2b_a_repeated_argument_of_a_pointwise_op_is_written(reinplaced, vector):
    def program(x):
        a = x + 1
        return a.mul_(a)

    assert reinplaced(program, vector).how["mul"] is How.IN_PLACE


def test_2c_a_view_is_written_if_the_only_later_use_is_a_scatter_over_it_that_is_erased(
    reinplaced, square
):
    def program(x):
        a = aten.add(x, x)
        b = aten.diagonal(a)
        aten.fill_(b, 0)
        return a

    done = reinplaced(program, square)
    assert done.how == {"add": None, "fill": How.IN_PLACE, "diagonal_scatter": How.REDUNDANT}
    assert done.calls == ["add.Tensor", "diagonal.default", "fill_.Scalar"]


def test_2c_a_view_is_not_written_if_the_scatter_has_other_arguments(reinplaced_as_written, square):
    def program(x):
        a = aten.add(x, x)
        b_updated = aten.fill(aten.diagonal(a, 0), 0)[:3]
        return aten.diagonal_scatter(a, b_updated, 1)

    done = reinplaced_as_written(program, square)
    assert done.refused("fill") == "no_later_use"
    assert done.how["diagonal_scatter"] is How.SCATTER


def test_2c_a_scatter_into_another_base_stays(reinplaced_as_written, square):
    def program(x):
        a, other = aten.add(x, x), aten.mul(x, 3)
        b_updated = aten.fill(aten.diagonal(a), 0)
        return aten.diagonal_scatter(other, b_updated)

    done = reinplaced_as_written(program, square)
    assert (done.how["fill"], done.how["diagonal_scatter"]) == (How.IN_PLACE, How.SCATTER)
    assert done.calls[-1] == "copy_.default"


def test_2c_a_scatter_of_another_part_of_its_base_stays(reinplaced_as_written, vector):
    def program(x):
        a = aten.neg(x)
        return aten.slice_scatter(a, a[4:6], 0, 0, 2)

    done = reinplaced_as_written(program, vector)
    assert done.refused("slice_scatter", How.REDUNDANT) == "source_is_at_destination"
    assert done.how["slice_scatter"] is How.SCATTER


def test_2c_a_scatter_reads_its_base_where_the_base_was_written(reinplaced, vector):
    def program(x, part):
        y = -x
        shifted = -y[1:]  # into y: its elements 0 and 1 are elements 1 and 2 of y
        first = -shifted[:1]  # not over what the scatter reads
        second = -shifted[1:2]  # but over what it does not
        stored = torch.slice_scatter(shifted, part, 0, 1, 2)  # a copy of the storage of y
        most = (torch.ones(64) + x.sum()).sum()  # the peak, so that the rest does not raise it
        return stored.sum(), first.sum(), second.sum(), most

    done = reinplaced(program, vector, torch.ones(1))
    assert done.how["neg_1"] is How.IN_PLACE
    assert done.refused("neg_2") == "no_later_use"
    assert done.how["neg_3"] is How.IN_PLACE
