"""Programs that write: each must end as in eager after functionalization.

`test_functionalize.py` runs them.
"""

from __future__ import annotations

import torch
from torch import nn

from tests.reference_pass.scene import Example, adds_to, counted

PROGRAMS: list[Example] = []
on = adds_to(PROGRAMS)

BUFFER = counted(16)


# --- outputs --------------------------------------------------------------------------------------


@on(counted(4))
def outputs_that_are_inputs(x):
    x.add_(1)
    return x, x, x[:2], x.view(4), {"again": [x, None, 3]}


@on(counted(4))
def outputs_that_are_views_of_each_other(x):
    fresh = x * 2
    fresh[1:].zero_()
    return fresh, fresh[1:], fresh.view(2, 2)


@on(counted(4), counted(4) + 4)
def swap(x, y):
    saved = x.clone()
    x.copy_(y)
    y.copy_(saved)


@on(counted(4))
def the_old_contents_of_an_input(x):
    saved = x.clone()
    x.copy_(saved.flip(0))
    return saved, x


@on(counted(0, 3), counted(2))
def tensors_without_elements(x, y):
    x.add_(1)
    y[2:].zero_()
    return x, y


@on(torch.tensor(3.0))
def tensor_without_dimensions(x):
    x.add_(1)
    x.view(1).mul_(2)
    return x


# --- ops that write -------------------------------------------------------------------------------


@on(counted(4), counted(4))
def out_into_an_operand(x, y):
    torch.add(x, y, out=x)
    return x


@on(counted(4), counted(4))
def out_that_is_resized(x, y):
    out = torch.empty(0)
    torch.add(x, y, out=out)
    out.mul_(2)
    return out


@on(counted(6), counted(12), torch.arange(6))
def strided_out_of_the_right_size(x, out, indices):
    torch.sort(x, 0, True, out=(out[::2], indices))
    return out


@on(counted(3, 4))
def out_that_is_resized_to_a_permuted_layout(x):
    out = torch.empty(0)
    torch.add(x.t(), 1, out=out)
    return out.as_strided((12,), (1,)).clone(), out


@on(counted(3, 3) + torch.eye(3), counted(3, 2))
def out_that_is_resized_to_columns(x, y):
    out = torch.empty(0)
    torch.linalg.solve(x, y, out=out)
    return out


@on(counted(4, 4))
def several_outs(x):
    values, indices = torch.empty(4, 4), torch.empty(4, 4, dtype=torch.long)
    torch.sort(x, 0, True, out=(values, indices))
    values.add_(1)
    return values, indices


@on(counted(4), counted(4), counted(4))
def foreach_over_views(x, y, z):
    torch._foreach_mul_([x[:2], x[2:]], 2.0)
    torch._foreach_copy_([y, z], [x, y.clone()])
    local = [x + 1, y + 1]
    torch._foreach_addcdiv_(local, [x, y], [z + 1, z + 2], 0.5)
    return local, y[1:]


@on(counted(4))
def operand_that_is_returned(x):
    x.add_(1)
    return torch.atleast_1d(x), x.contiguous(), x.to(x.dtype)


@on(counted(4), counted(4) + 4)
def foreach_items_that_overlap(x, y):
    torch._foreach_copy_([x, y], [y, x])
    torch._foreach_add_([x, x], [y, x])
    torch._foreach_mul_([x[1:], x[:-1]], [3.0, 2.0])


@on(counted(4, 4), torch.ones(4), torch.zeros(4), torch.zeros(4), torch.ones(4))
def several_arguments_written(x, weight, bias, mean, var):
    return nn.functional.batch_norm(x, mean, var, weight, bias, training=True)


@on(counted(4).double(), counted(4))
def store_into_a_narrower_dtype(x, y):
    y.add_(x)
    y.ge_(x)
    return y


@on(torch.tensor([100, 100], dtype=torch.int8))
def sum_in_the_dtype_of_its_destination(x):
    x.cumsum_(0)
    return x


@on(counted(3, 3), torch.tensor([0, 2]))
def stores_by_index(x, index):
    x[index] = 7
    x[:, index] += 1
    x[x > 9] = 5
    x.index_add_(0, index, torch.ones(2, 3))
    return x


@on(counted(4))
def op_without_a_functional_form(x):
    return x.square_().relu_()


@on(counted(3, 3))
def products_into_a_view(x):
    out = x.clone()
    out.addmm_(x, x)
    torch.mm(x, x, out=out[:])
    return out


# --- metadata -------------------------------------------------------------------------------------


@on(counted(2, 3))
def input_is_transposed(x):
    x.t_()
    x.add_(1)
    return x, x[0]


@on(counted(1, 3))
def input_is_squeezed_and_unsqueezed(x):
    x.squeeze_().mul_(2)
    x.unsqueeze_(1)
    return x + 1


@on(counted(4, 4))
def input_becomes_another_view_of_its_storage(x):
    x.as_strided_((2, 2), (5, 1), 1)
    x.zero_()
    return x


@on(counted(2, 3))
def local_tensor_is_transposed(x):
    local = x + 1
    row = local[0]
    local.transpose_(0, 1)
    local[0].zero_()
    return local, row


@on(counted(4), counted(3))
def input_is_set_to_another(x, y):
    x.set_(y)
    x.add_(1)
    return x, y


@on(counted(4))
def input_is_set_to_a_result(x):
    result = x * 2
    x.set_(result)
    x.add_(1)
    return result


@on(counted(4))
def input_is_set_to_a_result_that_is_not_returned(x):
    x.set_(x * 2)
    x.add_(1)


@on(counted(7)[:4].view(2, 2))
def input_is_set_to_nothing_after_its_storage_was_copied(x):
    copy = x.as_strided_scatter(x, [2, 2], [1, 2])
    x.set_()
    return copy.as_strided([5], [1])


@on(counted(4))
def local_tensor_is_set_to_a_view(x):
    local = torch.zeros(5)
    local.set_(x[1:3])
    local.zero_()
    return local


@on(counted(4))
def input_is_resized_to_fewer(x):
    x.resize_(2)
    x.add_(1)
    return x


@on(counted(4))
def input_is_resized_to_more(x):
    view = x[1:]
    x.resize_(8)
    x.fill_(3)
    return view


@on(counted(4)[1:].detach())
def input_at_an_offset_is_resized_to_more(x):
    x.resize_(8)
    x.fill_(3)
    return x[1]


@on(counted(4))
def local_tensor_is_resized_to_more(x):
    local = x + 1
    local.resize_(8)
    local[:].fill_(2)
    return local


# --- random numbers -------------------------------------------------------------------------------


@on(counted(2))
def out_is_resized_and_then_resized_again(x):
    new = x.new_empty(0)
    torch.sum(x, 0, out=new)
    new.resize_(4)[1:].copy_(x[0])
    return new


@on(counted(40))
def random_numbers_in_place(x):
    x.uniform_()
    return x + 1, torch.rand(2)


@on(counted(40))
def random_numbers_through_a_strided_view(x):
    x[::2].normal_()
    return torch.rand(2)


@on(counted(4, 40))
def random_numbers_in_the_order_of_memory(x):
    x.t().normal_()
    x[0].bernoulli_(0.5)
    x[1].exponential_()
    x[2].random_(5)
    return torch.randn(3)


@on(counted(5, 40))
def dropout_in_place(x):
    return nn.functional.dropout(x.t(), 0.5, training=True, inplace=True)


@on(torch.arange(12.0).view(2, 6))
def piece_whose_metadata_change_after_it_was_cut(x):
    low, high = x.split([5, 1], 1)
    high.squeeze_(1)
    low.add_(1)
    return low, high, x


# --- data-dependent sizes -------------------------------------------------------------------------


@on(counted(4))
def elements_chosen_by_a_mask(x):
    chosen = x[x > 1]
    chosen.add_(1)
    return chosen, x.nonzero()


# --- strides of dimensions of size one or less: views as another dtype depend on them -------------


@on(torch.ones(2, 1, dtype=torch.int64))
def result_of_one_element(x):
    local = x + 3
    negative = local.diagonal().neg()
    return negative.view(torch.float32), torch.diagonal_scatter(local, negative)


@on(torch.ones(2, 1, dtype=torch.int64))
def result_of_a_result_of_one_element(x):
    local = x + 3
    twice = local.diagonal().neg().neg()
    return twice.view(torch.float32)


@on(torch.ones(0))
def no_elements_as_another_dtype(x):
    view = (x - x).unsqueeze(0)
    other = view.view(torch.complex64)
    other.zero_()
    return view, torch.view_as_real(other)


@on(BUFFER[:2].as_strided((1,), (2,)), BUFFER[:2].as_strided((1,), (1,)))
def inputs_that_differ_in_the_stride_of_one_element(x, y):
    view = y.view(torch.float16)
    view.add_(1)
    return view, x
