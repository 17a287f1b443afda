"""What the calls of a graph allow to share: graphs whose smallest peak is known.

All tensors are 4 by 4 of float32, so a value has 64 bytes.
"""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.oracles.proofs.memory_problem import allocated, needed
from aliasproof.oracles.proofs.sharing_rules import problem_of
from aliasproof.oracles.proofs.smallest_peak import smallest_peak

aten = torch.ops.aten


def graph_of(function, mode="fake"):
    """The calls of a function of two tensors, with metadata."""
    return make_fx(function, tracing_mode=mode)(torch.ones(4, 4), torch.ones(4, 4)).graph


def peaks(function):
    """The peak as it is, and the smallest one."""
    problem = problem_of(graph_of(function))
    smallest = smallest_peak(problem)
    assert smallest is not None
    assert needed(problem) <= smallest <= allocated(problem)
    return allocated(problem), smallest


def test_a_pointwise_result_is_over_an_operand_that_dies():
    assert peaks(lambda x, y: (x + 1) * y) == (128, 64)
    assert peaks(lambda x, y: y - (x + 1)) == (128, 64)


def test_an_operand_that_is_read_later_is_not_overwritten():
    def program(x, y):
        a = x + 1
        return a * y, a

    assert peaks(program) == (128, 128)


def test_a_view_that_is_read_later_keeps_its_base():
    def program(x, y):
        a = x + 1
        b = a.t()
        return (a * y).sum(), b.cos()

    assert peaks(program) == (132, 132)


def test_a_product_is_not_over_its_factors():
    assert peaks(lambda x, y: (x + 1) @ y) == (128, 128)


def test_an_operand_that_another_one_overlaps_is_not_overwritten():
    def program(x, y):
        a = x + 1
        return a * a.t()

    assert peaks(program) == (128, 128)


def test_parts_are_computed_in_what_joins_them():
    assert peaks(lambda x, y: torch.cat([x + 1, y * 2])) == (256, 128)
    assert peaks(lambda x, y: torch.stack([x + 1, y * 2])) == (256, 128)
    assert peaks(lambda x, y: aten.constant_pad_nd(x + 1, [0, 0, 0, 4])) == (192, 128)


def test_a_part_of_another_dtype_is_beside_its_concatenation():
    assert peaks(lambda x, y: torch.cat([x.int(), y])) == (192, 192)


def test_a_scatter_writes_to_its_base():
    def program(x, y):
        base = x + 1
        return aten.slice_scatter(base, base[:2] * 2, 0, 0, 2)

    assert peaks(program) == (160, 64)


def test_a_scatter_does_not_read_what_it_stores_over():
    def program(x, y):
        base = x + 1
        rows = base[:2] * 2  # the last read of these rows
        return aten.slice_scatter(base, rows.cos(), 0, 0, 2)

    assert peaks(program)[1] == 64


def test_a_scatter_of_what_is_there_already_stores_nothing():
    def program(x, y):
        base = x + 1
        return aten.select_scatter(base, base[1], 0, 1)

    assert peaks(program) == (128, 64)


def test_results_are_in_the_input_that_the_epilogue_overwrites():
    def program(x, y):
        x.copy_(((x + 1) @ y).cos())

    # The sum is beside the product, since one of them is in `x`.
    assert peaks(program) == (128, 64)


def test_an_input_that_is_read_until_the_end_holds_nothing():
    def program(x, y):
        a = x + 1
        b = x * y
        x.copy_(a)
        return b

    assert peaks(program) == (128, 128)


def test_two_inputs_change_places():
    def program(x, y):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)

    assert peaks(program) == (64, 64)


def test_a_copy_of_an_input_is_that_input():
    assert peaks(lambda x, y: (x.clone() @ y).sum()) == (68, 68)
    assert peaks(lambda x, y: x.clone()) == (64, 64)  # but not if it is returned


def test_an_operation_gives_the_dtype_of_its_cast():
    assert peaks(lambda x, y: (x > 1).to(torch.float32)) == (80, 64)


def test_contents_that_are_not_read_keep_the_storage():
    assert peaks(lambda x, y: torch.zeros_like(x + 1)) == (128, 128)


def test_a_returned_value_gets_no_larger_storage():
    def program(x, y):
        a = torch.cat([x, y])
        return a[:4] * 2

    assert peaks(program) == (192, 192)


def test_the_dead_half_of_a_storage_holds_results():
    def program(x, y):
        both = torch.cat([x, y])
        kept, free = both[:4], both[4:]
        return (free * 2).sum() + kept.sum()

    assert peaks(program) == (196, 132)


def test_symbolic_sizes_are_refused():
    with pytest.raises(ValueError, match="fixed sizes"):
        problem_of(graph_of(lambda x, y: x + y, "symbolic"))


def test_a_part_that_is_read_after_its_scatter_keeps_its_bytes():
    def program(x, y):
        a = x + 1
        base = aten.slice_scatter(y, a[:2], 0, 0, 2)
        return base.sum() + a.cos().sum()

    assert peaks(program)[1] == 132


def test_a_scatter_is_in_its_base_though_that_is_read_later_elsewhere():
    def program(x, y):
        base = x + 1
        row = base[0] * 2
        changed = aten.select_scatter(base, row, 0, 0)
        return changed.sum() + base[1:].sum()

    assert peaks(program)[1] == 68


def test_a_call_whose_result_nobody_reads_need_not_run():
    def program(x, y):
        a = (x + 1) @ y
        return a.new_ones(2)

    assert peaks(program) == (72, 72)


def test_a_copy_of_an_input_keeps_the_input_from_being_overwritten():
    def program(x, y):
        old = x[1:].clone()
        changed = aten.slice_scatter(x, old.cos() + old.sum(), 0, 0, 3)
        x.copy_(changed)

    assert peaks(program)[1] >= 48


def test_a_call_on_lists_writes_over_all_operands_or_none():
    def program(x, y):
        a, b = x + 1, y + 1
        c, d = torch._foreach_neg([a, b])
        return c + d + b

    assert peaks(program)[1] == 256


def test_a_cast_that_a_kernel_makes_in_memory_of_its_own_saves_nothing():
    assert peaks(lambda x, y: (x > 1).to(torch.float64)) == (144, 144)


def test_what_a_custom_operator_sees_is_not_in_a_larger_storage():
    def program(x, y):
        a = x + 1
        seen = torch.ops.aliasproof.location(a)
        return torch.cat([a, y * 2]), seen

    assert peaks(program)[1] == 128 + 64 + 16
