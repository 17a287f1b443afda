"""Programs that change sizes, strides or the identity of tensors in place."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.sharing.shared_arguments import floats, group, layouts, program, separate


@program(layouts(floats(3, 4)), "x")
def transpose_input_in_place(x: Tensor) -> Tensor:
    x.t_()
    return x + 1


@program(layouts(floats(3, 4)), "x")
def transpose_then_write(x: Tensor) -> Tensor:
    x.transpose_(0, 1)
    x[0].mul_(2)
    return x


@program(layouts(floats(3, 4)), "n")
def unsqueeze_input_in_place(x: Tensor) -> Tensor:
    x.unsqueeze_(1)
    return x * 2


@program(layouts(floats(3, 1, 2)), "x")
def squeeze_input_in_place(x: Tensor) -> Tensor:
    x.squeeze_(1)
    x.add_(1)
    return x.sum(0)


@program(layouts(floats(3, 4), floats(4, 3)), "xx")
def transpose_intermediate_in_place(x: Tensor, w: Tensor) -> Tensor:
    h = x @ w
    h.t_()
    h.relu_()
    return h


@program(group(floats(3, 3), kinds="separate overlap disjoint apart"), "nn")
def transpose_one_write_other(x: Tensor, y: Tensor) -> Tensor:
    x.t_()
    y.add_(1)
    return x * y


@program(group(floats(3, 3), kinds="separate overlap disjoint apart"), "xx")
def transpose_one_write_it(x: Tensor, y: Tensor) -> Tensor:
    x.t_()
    x[0] = 0
    return x + y


@program(layouts(floats(2, 3)), "n")
def swapdims_twice(x: Tensor) -> Tensor:
    x.swapdims_(0, 1)
    x.mul_(2)
    x.swapdims_(0, 1)
    return x


@program(separate(floats(6)), "n")
def resize_smaller_keeps_prefix(x: Tensor) -> Tensor:
    y = x.clone()
    y.resize_(4)
    y.add_(1)
    return y


@program(separate(floats(6)), "n")
def resize_to_matrix(x: Tensor) -> Tensor:
    y = x * 2
    y.resize_(2, 3)
    return y.sum(0)


@program(separate(floats(4)), "n")
def resize_output_buffer(x: Tensor) -> Tensor:
    out = torch.empty(0)
    torch.mul(x, 3, out=out)
    return out + x


@program(separate(floats(4), floats(4)), "n")
def out_argument_is_input(x: Tensor, out: Tensor) -> Tensor:
    torch.add(x, 1, out=out)
    return out * x


@program(group(floats(3, 4), kinds="separate disjoint apart"), "n")
def out_argument_row_of_input(x: Tensor, y: Tensor) -> Tensor:
    torch.sum(x, dim=0, out=y[1])
    return y + x


@program(separate(floats(4)), "n")
def set_data_of_intermediate(x: Tensor) -> Tensor:
    y = x + 1
    y.data = x * 3
    return y + x


@program(separate(floats(4), floats(4)), "n")
def set_storage_to_other(x: Tensor, y: Tensor) -> Tensor:
    z = torch.zeros(4)
    z.set_(y)  # type: ignore[call-overload]
    z.add_(1)
    return z + x


@program(layouts(floats(2, 3)), "n")
def resize_as_same_shape(x: Tensor) -> Tensor:
    y = x.clone()
    y.resize_as_(x)
    y[0].zero_()
    return y * x


@program(separate(floats(2, 3)), "x")
def requires_grad_on_intermediate(x: Tensor) -> Tensor:
    y = x.detach().clone()
    y.mul_(2)
    return y @ x.t()


@program(separate(floats(2, 3, 4, 4)), "x")
def channels_last_written(x: Tensor) -> Tensor:
    y = x.contiguous(memory_format=torch.channels_last)
    y[:, 0].add_(1)
    return y


@program(layouts(floats(3, 4)), "x")
def squeeze_absent_dim_and_return(x: Tensor) -> Tensor:
    x.squeeze_(0)
    return x


@program(separate(floats(2, 3)), "n")
def transpose_then_view_of_old(x: Tensor) -> tuple[Tensor, Tensor]:
    row = x[0]
    x.t_()
    row.add_(10)
    return x * 1, row


@program(layouts(floats(4), kinds="whole offset strided"), "n")
def unsqueeze_then_broadcast_write(x: Tensor) -> Tensor:
    col = x[:, None]
    x.unsqueeze_(0)
    col.mul_(2)
    return x * col
