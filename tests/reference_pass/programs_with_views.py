"""Programs with views: each must end as in eager after functionalization.

`test_functionalize.py` runs them.
"""

from __future__ import annotations

import torch

from tests.reference_pass.scene import Example, adds_to, complex_counted, counted

aten = torch.ops.aten

PROGRAMS: list[Example] = []
on = adds_to(PROGRAMS)

BUFFER = counted(16)
BYTES = torch.arange(7, dtype=torch.uint8)
COMPLEX = complex_counted(8)


# --- views ----------------------------------------------------------------------------------------


@on(counted(4, 4))
def chain_of_views_written_at_its_end(x):
    view = x.view(2, 8).t()[1:3].diagonal()
    view.add_(1)
    return view, x


@on(counted(4, 4))
def chain_of_views_written_at_its_base(x):
    base = x + 1
    view = base.view(16)[::3]
    base.mul_(2)
    return view, base


@on(BUFFER[:0], BUFFER[4:6])
def copy_of_a_storage_by_a_scatter_without_elements(x, y):
    copy = aten.slice_scatter.default(x, x)
    around = copy.as_strided([16], [1], 0)
    y.add_(1)
    return around


@on(counted(4, 4), torch.tensor([2, 1, 0, 3]))
def strides_of_an_index_that_is_strided(x, i):
    picked = aten.index.Tensor(x, [i.as_strided((2, 2), (1, 2))])
    i.add_(0)
    return picked, picked + 1


@on(BUFFER[1:5].view(2, 2), counted(2))
def as_strided_of_a_scatter_into_a_written_input(x, y):
    x.add_(0)
    return aten.diagonal_scatter.default(x, y).as_strided([1], [0])


@on(BUFFER[2:6])
def as_strided_around_a_scatter_into_a_written_input(x):
    x.add_(1)
    return aten.slice_scatter.default(x, x[:1], 0, 0, 1).as_strided([8], [1], 0) + 0


@on(counted(3, 4), torch.tensor([1]))
def strides_of_an_index_fill_of_a_strided_tensor(x, i):
    return aten.index_fill.int_Scalar(x[:, ::2].t(), 0, i, 7)


@on(counted(4, 2))
def multi_output_views(x):
    first, _second = x.split(2)
    first.add_(1)
    _row, other = first.unbind()
    other.zero_()
    return x, first


@on(counted(6))
def tensor_split(x):
    first, second, third = torch.tensor_split(x, 3)
    second.zero_()
    return first, third, x


@on(counted(5))
def tensor_split_at_indices_that_decrease(x):
    first, second, third = torch.tensor_split(x, [3, 1])
    first.add_(10)
    third.mul_(2)
    return second, third, x


@on(counted(1, 2, 1, 2).as_strided((1, 2, 1, 2), (4, 1, 4, 2)))
def strides_of_a_stack_that_resizes_its_out_tensor(x):
    stacked = x.new_empty(0)
    torch.stack([x, x, x], out=stacked)
    return stacked


@on(counted(3))
def store_through_expand(x):
    x.expand(2, 3).fill_(5)
    return x + 1


@on(counted(3))
def slice_of_an_expanded_view(x):
    view = x.expand(2, 3)[1]
    view.add_(1)
    return x


@on(torch.tensor(3.0).expand(4))
def slice_of_an_input_that_repeats_an_element(x):
    x[1:2].mul_(3)
    return x


@on(counted(8))
def store_through_overlapping_windows(x):
    x.unfold(0, 3, 1).fill_(2)
    return x


@on(counted(2, 8))
def few_wide_windows(x):
    x.unfold(1, 6, 2).zero_()
    return x


@on(counted(9))
def windows_with_gaps_between(x):
    x.unfold(0, 2, 3).mul_(3)
    return x


@on(counted(16))
def as_strided_with_overlap(x):
    x.as_strided((3, 3), (1, 1), 2).fill_(7)
    return x


@on(BUFFER[4:8].detach())
def as_strided_beyond_the_input(x):
    x.as_strided((3,), (2,), 0).add_(1)
    return x


@on(counted(4, 4)[:, ::2].detach())
def input_with_gaps(x):
    x.add_(1)
    return x.contiguous().view(8)


@on(counted(6))
def as_strided_copy_of_a_written_view(x):
    view = x[2:5]
    view.add_(1)
    return torch.as_strided_copy(view, (2,), (1,), 0), torch.as_strided_copy(view, (5,), (1,), 1)


@on(counted(6))
def as_strided_copy_of_a_view(x):
    return torch.as_strided_copy(x[2:5], (2,), (1,), 0), torch.as_strided_copy(x, (6,), (1,))


@on(counted(6))
def as_strided_copy_of_bools(x):
    view = (x > 3)[2:5]
    view.logical_not_()
    return torch.as_strided_copy(view, (5,), (1,), 1)


@on(BYTES[:6].view(torch.int16))
def storage_that_is_not_a_whole_number_of_elements(x):
    x.add_(1)
    return x.view(torch.uint8).as_strided((7,), (1,), 0) * 1


@on(BYTES[2:6].view(torch.int16))
def bytes_around_an_input_are_written(x):
    x.view(torch.uint8).as_strided((7,), (1,), 0)[1:].add_(1)
    return x


@on(counted(4))
def view_of_other_item_size(x):
    x.view(torch.int32)[1:3].fill_(0)
    return x


@on(counted(4) + 1j)
def real_and_imaginary_parts(x):
    x.real.mul_(2)
    x.imag[1:].zero_()
    return x


@on(counted(4) + 1j)
def lazily_conjugated_view(x):
    view = x.conj()
    view.add_(1j)
    view.imag.add_(1)
    return view, x


# --- inputs that share storage --------------------------------------------------------------------


@on(BUFFER[2:10], BUFFER[6:14])
def overlapping_inputs(x, y):
    x.add_(1)
    y.mul_(2)
    return x, y, x + y


@on(BUFFER[:8], BUFFER[8:])
def disjoint_inputs_of_one_storage(x, y):
    x.add_(1)
    y.mul_(x)
    return x


@on(BUFFER[2:10], BUFFER.view(torch.int32)[6:12])
def inputs_of_other_dtype(x, y):
    y.fill_(0)
    x.add_(1)
    return x, y


@on(torch.tensor([True, False, True, True]), torch.tensor([1, 2], dtype=torch.int16))
def bools_beside_bytes(x, y):
    bools = x.view(torch.int8).view(torch.int16)
    bools.copy_(y)
    return y, x.view(torch.int8) + 1


@on(BUFFER[2:10], BUFFER[6:14])
def as_strided_copies_of_overlapping_inputs(x, y):
    before = torch.as_strided_copy(x, (4,), (2,), 1)
    y.add_(1)
    return before, torch.as_strided_copy(x, (4,), (2,), 1)


# --- lazy conjugate and negative bits -------------------------------------------------------------


@on(complex_counted(4).conj())
def conjugated_input_is_written(x):
    x.mul_(2j)
    return x


@on(complex_counted(9).conj()[::4])
def conjugated_input_with_gaps_is_written(x):
    x.mul_(2j)
    return x, x[1:]


@on(complex_counted(4).conj().imag)
def negated_input_is_written(x):
    x.mul_(2)
    return x


@on(torch._neg_view(complex_counted(4).conj()))
def conjugated_and_negated_input_is_written(x):
    x.mul_(2j)
    return x, x.real


@on(complex_counted(4), complex_counted(4).conj())
def out_into_a_conjugated_input(x, y):
    torch.add(x, 1, out=y)
    return y


@on(COMPLEX, COMPLEX.conj())
def input_and_its_conjugate(x, y):
    x.mul_(2j)
    y[1:].add_(1j)
    return x, y, x + y


@on(COMPLEX.conj(), COMPLEX)
def conjugate_of_an_input_and_the_input(x, y):
    x.mul_(2j)
    y[1:].add_(1j)
    return x, y, x + y


@on(COMPLEX.conj()[:5], COMPLEX.conj()[3:])
def conjugated_inputs_that_overlap(x, y):
    x.mul_(2j)
    return x, y + 1


@on(complex_counted(8).conj()[2:4])
def memory_around_a_conjugated_input_is_written(x):
    x.as_strided((3,), (1,), 0).mul_(2j)
    return x


@on(complex_counted(4, 2).conj(), complex_counted(2))
def conjugated_input_is_transposed_and_another_set_to_it(x, y):
    x.t_()
    y.set_(x[1:])
    return x * 1, y * 1


@on(complex_counted(4).conj()[1:])
def conjugated_input_is_resized_to_more(x):
    x.resize_(8)
    x.fill_(2j)
    return x[1]


@on(complex_counted(4))
def as_strided_of_a_conjugated_view(x):
    part = x.conj().as_strided((2,), (1,), 1)
    return part, part * 1


@on(complex_counted(4).conj())
def as_strided_of_a_conjugated_input(x):
    part = x.as_strided((2,), (1,))
    return part, part * 1, x


@on(complex_counted(4))
def as_strided_of_a_negated_view(x):
    part = x.conj().imag.as_strided((2,), (2,), 3)
    return part, part * 1
