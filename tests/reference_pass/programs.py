"""Programs with views and writes: functionalization must preserve their results in eager.

`test_functionalize.py` runs them. A head has the name of a program, its arguments, and the inputs.
"""

import torch
from torch import nn  # noqa: F401 - the programs call it

from tests.reference_pass.scene import complex_counted, counted, programs_of

aten = torch.ops.aten

BUFFER = counted(16)
BYTES = torch.arange(7, dtype=torch.uint8)
COMPLEX = complex_counted(8)
FLAGS = torch.tensor([True, False, True, True])
STACKED = counted(1, 2, 1, 2).as_strided((1, 2, 1, 2), (4, 1, 4, 2))
STATISTICS = torch.ones(4), torch.zeros(4), torch.zeros(4), torch.ones(4)

PROGRAMS = programs_of(
    """
# --- views ----------------------------------------------------------------------------------------

chain_of_views_written_at_its_end(x): counted(4, 4)
    view = x.view(2, 8).t()[1:3].diagonal()
    view.add_(1)
    return view, x

chain_of_views_written_at_its_base(x): counted(4, 4)
    base = x + 1
    view = base.view(16)[::3]
    base.mul_(2)
    return view, base

copy_of_a_storage_by_a_scatter_without_elements(x, y): BUFFER[:0], BUFFER[4:6]
    copy = aten.slice_scatter.default(x, x)
    around = copy.as_strided([16], [1], 0)
    y.add_(1)
    return around

strides_of_an_index_that_is_strided(x, i): counted(4, 4), torch.tensor([2, 1, 0, 3])
    picked = aten.index.Tensor(x, [i.as_strided((2, 2), (1, 2))])
    i.add_(0)
    return picked, picked + 1

as_strided_of_a_scatter_into_a_written_input(x, y): BUFFER[1:5].view(2, 2), counted(2)
    x.add_(0)
    return aten.diagonal_scatter.default(x, y).as_strided([1], [0])

as_strided_around_a_scatter_into_a_written_input(x): BUFFER[2:6]
    x.add_(1)
    return aten.slice_scatter.default(x, x[:1], 0, 0, 1).as_strided([8], [1], 0) + 0

strides_of_an_index_fill_of_a_strided_tensor(x, i): counted(3, 4), torch.tensor([1])
    return aten.index_fill.int_Scalar(x[:, ::2].t(), 0, i, 7)

multi_output_views(x): counted(4, 2)
    first, _second = x.split(2)
    first.add_(1)
    _row, other = first.unbind()
    other.zero_()
    return x, first

tensor_split(x): counted(6)
    first, second, third = torch.tensor_split(x, 3)
    second.zero_()
    return first, third, x

tensor_split_at_indices_that_decrease(x): counted(5)
    first, second, third = torch.tensor_split(x, [3, 1])
    first.add_(10)
    third.mul_(2)
    return second, third, x

strides_of_a_stack_that_resizes_its_out_tensor(x): STACKED
    stacked = x.new_empty(0)
    torch.stack([x, x, x], out=stacked)
    return stacked

store_through_expand(x): counted(3)
    x.expand(2, 3).fill_(5)
    return x + 1

slice_of_an_expanded_view(x): counted(3)
    view = x.expand(2, 3)[1]
    view.add_(1)
    return x

slice_of_an_input_that_repeats_an_element(x): torch.tensor(3.0).expand(4)
    x[1:2].mul_(3)
    return x

store_through_overlapping_windows(x): counted(8)
    x.unfold(0, 3, 1).fill_(2)
    return x

few_wide_windows(x): counted(2, 8)
    x.unfold(1, 6, 2).zero_()
    return x

windows_with_gaps_between(x): counted(9)
    x.unfold(0, 2, 3).mul_(3)
    return x

as_strided_with_overlap(x): counted(16)
    x.as_strided((3, 3), (1, 1), 2).fill_(7)
    return x

as_strided_beyond_the_input(x): BUFFER[4:8].detach()
    x.as_strided((3,), (2,), 0).add_(1)
    return x

input_with_gaps(x): counted(4, 4)[:, ::2].detach()
    x.add_(1)
    return x.contiguous().view(8)

as_strided_copy_of_a_written_view(x): counted(6)
    view = x[2:5]
    view.add_(1)
    return torch.as_strided_copy(view, (2,), (1,), 0), torch.as_strided_copy(view, (5,), (1,), 1)

as_strided_copy_of_a_view(x): counted(6)
    return torch.as_strided_copy(x[2:5], (2,), (1,), 0), torch.as_strided_copy(x, (6,), (1,))

as_strided_copy_of_bools(x): counted(6)
    view = (x > 3)[2:5]
    view.logical_not_()
    return torch.as_strided_copy(view, (5,), (1,), 1)

storage_that_is_not_a_whole_number_of_elements(x): BYTES[:6].view(torch.int16)
    x.add_(1)
    return x.view(torch.uint8).as_strided((7,), (1,), 0) * 1

bytes_around_an_input_are_written(x): BYTES[2:6].view(torch.int16)
    x.view(torch.uint8).as_strided((7,), (1,), 0)[1:].add_(1)
    return x

view_of_other_item_size(x): counted(4)
    x.view(torch.int32)[1:3].fill_(0)
    return x

real_and_imaginary_parts(x): counted(4) + 1j
    x.real.mul_(2)
    x.imag[1:].zero_()
    return x

lazily_conjugated_view(x): counted(4) + 1j
    view = x.conj()
    view.add_(1j)
    view.imag.add_(1)
    return view, x

# --- inputs that share storage --------------------------------------------------------------------

overlapping_inputs(x, y): BUFFER[2:10], BUFFER[6:14]
    x.add_(1)
    y.mul_(2)
    return x, y, x + y

disjoint_inputs_of_one_storage(x, y): BUFFER[:8], BUFFER[8:]
    x.add_(1)
    y.mul_(x)
    return x

one_tensor_that_is_passed_twice_is_written(x, y): *[counted(2, 3)] * 2
    x.add_(1)
    return x * y

inputs_of_other_dtype(x, y): BUFFER[2:10], BUFFER.view(torch.int32)[6:12]
    y.fill_(0)
    x.add_(1)
    return x, y

bools_beside_bytes(x, y): FLAGS, torch.tensor([1, 2]).short()
    bools = x.view(torch.int8).view(torch.int16)
    bools.copy_(y)
    return y, x.view(torch.int8) + 1

as_strided_copies_of_overlapping_inputs(x, y): BUFFER[2:10], BUFFER[6:14]
    before = torch.as_strided_copy(x, (4,), (2,), 1)
    y.add_(1)
    return before, torch.as_strided_copy(x, (4,), (2,), 1)

# --- lazy conjugate and negative bits -------------------------------------------------------------

conjugated_input_is_written(x): complex_counted(4).conj()
    x.mul_(2j)
    return x

conjugated_input_with_gaps_is_written(x): complex_counted(9).conj()[::4]
    x.mul_(2j)
    return x, x[1:]

negated_input_is_written(x): complex_counted(4).conj().imag
    x.mul_(2)
    return x

conjugated_and_negated_input_is_written(x): torch._neg_view(complex_counted(4).conj())
    x.mul_(2j)
    return x, x.real

out_into_a_conjugated_input(x, y): complex_counted(4), complex_counted(4).conj()
    torch.add(x, 1, out=y)
    return y

input_and_its_conjugate(x, y): COMPLEX, COMPLEX.conj()
    x.mul_(2j)
    y[1:].add_(1j)
    return x, y, x + y

conjugate_of_an_input_and_the_input(x, y): COMPLEX.conj(), COMPLEX
    x.mul_(2j)
    y[1:].add_(1j)
    return x, y, x + y

conjugated_inputs_that_overlap(x, y): COMPLEX.conj()[:5], COMPLEX.conj()[3:]
    x.mul_(2j)
    return x, y + 1

memory_around_a_conjugated_input_is_written(x): complex_counted(8).conj()[2:4]
    x.as_strided((3,), (1,), 0).mul_(2j)
    return x

conjugated_input_is_transposed_and_set(x, y): complex_counted(4, 2).conj(), complex_counted(2)
    x.t_()
    y.set_(x[1:])
    return x * 1, y * 1

conjugated_input_is_resized_to_more(x): complex_counted(4).conj()[1:]
    x.resize_(8)
    x.fill_(2j)
    return x[1]

as_strided_of_a_conjugated_view(x): complex_counted(4)
    part = x.conj().as_strided((2,), (1,), 1)
    return part, part * 1

as_strided_of_a_conjugated_input(x): complex_counted(4).conj()
    part = x.as_strided((2,), (1,))
    return part, part * 1, x

as_strided_of_a_negated_view(x): complex_counted(4)
    part = x.conj().imag.as_strided((2,), (2,), 3)
    return part, part * 1

# --- outputs --------------------------------------------------------------------------------------

outputs_that_are_inputs(x): counted(4)
    x.add_(1)
    return x, x, x[:2], x.view(4), {"again": [x, None, 3]}

outputs_that_are_views_of_each_other(x): counted(4)
    fresh = x * 2
    fresh[1:].zero_()
    return fresh, fresh[1:], fresh.view(2, 2)

swap(x, y): counted(4), counted(4) + 4
    saved = x.clone()
    x.copy_(y)
    y.copy_(saved)

the_old_contents_of_an_input(x): counted(4)
    saved = x.clone()
    x.copy_(saved.flip(0))
    return saved, x

tensors_without_elements(x, y): counted(0, 3), counted(2)
    x.add_(1)
    y[2:].zero_()
    return x, y

tensor_without_dimensions(x): torch.tensor(3.0)
    x.add_(1)
    x.view(1).mul_(2)
    return x

# --- ops that write -------------------------------------------------------------------------------

out_into_an_operand(x, y): counted(4), counted(4)
    torch.add(x, y, out=x)
    return x

out_that_is_resized(x, y): counted(4), counted(4)
    out = torch.empty(0)
    torch.add(x, y, out=out)
    out.mul_(2)
    return out

strided_out_of_the_right_size(x, out, indices): counted(6), counted(12), torch.arange(6)
    torch.sort(x, 0, True, out=(out[::2], indices))
    return out

out_that_is_resized_to_a_permuted_layout(x): counted(3, 4)
    out = torch.empty(0)
    torch.add(x.t(), 1, out=out)
    return out.as_strided((12,), (1,)).clone(), out

out_that_is_resized_to_columns(x, y): counted(3, 3) + torch.eye(3), counted(3, 2)
    out = torch.empty(0)
    torch.linalg.solve(x, y, out=out)
    return out

several_outs(x): counted(4, 4)
    values, indices = torch.empty(4, 4), torch.empty(4, 4, dtype=torch.long)
    torch.sort(x, 0, True, out=(values, indices))
    values.add_(1)
    return values, indices

foreach_over_views(x, y, z): counted(4), counted(4), counted(4)
    torch._foreach_mul_([x[:2], x[2:]], 2.0)
    torch._foreach_copy_([y, z], [x, y.clone()])
    local = [x + 1, y + 1]
    torch._foreach_addcdiv_(local, [x, y], [z + 1, z + 2], 0.5)
    return local, y[1:]

operand_that_is_returned(x): counted(4)
    x.add_(1)
    return torch.atleast_1d(x), x.contiguous(), x.to(x.dtype)

foreach_items_that_overlap(x, y): counted(4), counted(4) + 4
    torch._foreach_copy_([x, y], [y, x])
    torch._foreach_add_([x, x], [y, x])
    torch._foreach_mul_([x[1:], x[:-1]], [3.0, 2.0])

several_arguments_written(x, weight, bias, mean, var): counted(4, 4), *STATISTICS
    return nn.functional.batch_norm(x, mean, var, weight, bias, training=True)

store_into_a_narrower_dtype(x, y): counted(4).double(), counted(4)
    y.add_(x)
    y.ge_(x)
    return y

sum_in_the_dtype_of_its_destination(x): torch.tensor([100, 100], dtype=torch.int8)
    x.cumsum_(0)
    return x

stores_by_index(x, index): counted(3, 3), torch.tensor([0, 2])
    x[index] = 7
    x[:, index] += 1
    x[x > 9] = 5
    x.index_add_(0, index, torch.ones(2, 3))
    return x

op_without_a_functional_form(x): counted(4)
    return x.square_().relu_()

products_into_a_view(x): counted(3, 3)
    out = x.clone()
    out.addmm_(x, x)
    torch.mm(x, x, out=out[:])
    return out

# --- metadata -------------------------------------------------------------------------------------

input_is_transposed(x): counted(2, 3)
    x.t_()
    x.add_(1)
    return x, x[0]

input_is_squeezed_and_unsqueezed(x): counted(1, 3)
    x.squeeze_().mul_(2)
    x.unsqueeze_(1)
    return x + 1

input_becomes_another_view_of_its_storage(x): counted(4, 4)
    x.as_strided_((2, 2), (5, 1), 1)
    x.zero_()
    return x

local_tensor_is_transposed(x): counted(2, 3)
    local = x + 1
    row = local[0]
    local.transpose_(0, 1)
    local[0].zero_()
    return local, row

input_is_set_to_another(x, y): counted(4), counted(3)
    x.set_(y)
    x.add_(1)
    return x, y

input_is_set_to_a_result(x): counted(4)
    result = x * 2
    x.set_(result)
    x.add_(1)
    return result

input_is_set_to_a_result_that_is_not_returned(x): counted(4)
    x.set_(x * 2)
    x.add_(1)

input_is_set_to_nothing_after_its_storage_was_copied(x): counted(7)[:4].view(2, 2)
    copy = x.as_strided_scatter(x, [2, 2], [1, 2])
    x.set_()
    return copy.as_strided([5], [1])

local_tensor_is_set_to_a_view(x): counted(4)
    local = torch.zeros(5)
    local.set_(x[1:3])
    local.zero_()
    return local

input_is_resized_to_fewer(x): counted(4)
    x.resize_(2)
    x.add_(1)
    return x

input_is_resized_to_more(x): counted(4)
    view = x[1:]
    x.resize_(8)
    x.fill_(3)
    return view

input_at_an_offset_is_resized_to_more(x): counted(4)[1:].detach()
    x.resize_(8)
    x.fill_(3)
    return x[1]

local_tensor_is_resized_to_more(x): counted(4)
    local = x + 1
    local.resize_(8)
    local[:].fill_(2)
    return local

# --- random numbers -------------------------------------------------------------------------------

out_is_resized_and_then_resized_again(x): counted(2)
    new = x.new_empty(0)
    torch.sum(x, 0, out=new)
    new.resize_(4)[1:].copy_(x[0])
    return new

random_numbers_in_place(x): counted(40)
    x.uniform_()
    return x + 1, torch.rand(2)

random_numbers_through_a_strided_view(x): counted(40)
    x[::2].normal_()
    return torch.rand(2)

random_numbers_in_the_order_of_memory(x): counted(4, 40)
    x.t().normal_()
    x[0].bernoulli_(0.5)
    x[1].exponential_()
    x[2].random_(5)
    return torch.randn(3)

dropout_in_place(x): counted(5, 40)
    return nn.functional.dropout(x.t(), 0.5, training=True, inplace=True)

parts_of_a_second_result_are_joined(x): counted(6)
    indices = torch.sort(x)[1]
    first, second = indices.split([2, 4])
    return torch.cat([first, second])

piece_whose_metadata_change_after_it_was_cut(x): torch.arange(12.0).view(2, 6)
    low, high = x.split([5, 1], 1)
    high.squeeze_(1)
    low.add_(1)
    return low, high, x

# --- data-dependent sizes -------------------------------------------------------------------------

elements_chosen_by_a_mask(x): counted(4)
    chosen = x[x > 1]
    chosen.add_(1)
    return chosen, x.nonzero()

# --- strides of dimensions of size one or less: views as another dtype depend on them -------------

result_of_one_element(x): torch.ones(2, 1, dtype=torch.int64)
    local = x + 3
    negative = local.diagonal().neg()
    return negative.view(torch.float32), torch.diagonal_scatter(local, negative)

result_of_a_result_of_one_element(x): torch.ones(2, 1, dtype=torch.int64)
    local = x + 3
    twice = local.diagonal().neg().neg()
    return twice.view(torch.float32)

no_elements_as_another_dtype(x): torch.ones(0)
    view = (x - x).unsqueeze(0)
    other = view.view(torch.complex64)
    other.zero_()
    return view, torch.view_as_real(other)

inputs_that_differ_in_the_stride_of_one_element(x, y): BUFFER[:1:2], BUFFER[:1]
    view = y.view(torch.float16)
    view.add_(1)
    return view, x
""",
    globals(),
    lambda *inputs: inputs,
)
