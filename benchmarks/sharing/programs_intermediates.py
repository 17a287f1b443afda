"""In-place operations on intermediates, and hooks on them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.sharing.shared_arguments import floats, group, layouts, positives, program, separate


@program(layouts(floats(3, 4), floats(4, 2)), "xl")
def relu_in_place(x: Tensor, w: Tensor) -> Tensor:
    h = x @ w
    h.relu_()
    return h.sum(1)


@program(separate(floats(3, 4), floats(4, 4), floats(4)), "lll")
def bias_and_activation_in_place(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    h = x.mm(w)
    h += b
    F.relu(h, inplace=True)
    h = F.dropout(h, p=0.0, training=True, inplace=True)
    return h * 2


@program(layouts(floats(3, 4)), "x")
def scale_columns_of_clone(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 0].mul_(2)
    y[:, 1].add_(y[:, 0])
    y.t()[2].zero_()
    return y * x


@program(layouts(floats(3, 4)), "x")
def assign_into_zeros(x: Tensor) -> Tensor:
    out = torch.zeros(3, 8)
    out[:, :4] = x
    out[:, 4:] = x.sin()
    return out


@program(layouts(floats(3, 4), floats(3, 4)), "xx")
def interleave_into_empty(x: Tensor, y: Tensor) -> Tensor:
    out = x.new_empty(3, 8)
    out[:, 0::2] = x
    out[:, 1::2] = y
    return out.view(3, 4, 2).flip(-1)


@program(layouts(positives(5), kinds="whole offset strided"), "x")
def fill_loop_recurrence(x: Tensor) -> Tensor:
    out = torch.zeros(5)
    out[0] = x[0]
    for k in range(1, 5):
        out[k] = out[k - 1].clone() * 0.5 + x[k]
    return out


@program(layouts(floats(4), kinds="whole offset strided"), "x")
def chain_of_in_place(x: Tensor) -> Tensor:
    return x.clone().mul_(2).add_(1).neg_().sigmoid_()


@program(layouts(floats(4, 4)), "x")
def exp_saved_output_then_view(x: Tensor) -> Tensor:
    y = x.exp()
    z = y.clone()
    z[0] = y[1]
    z.diagonal().mul_(y.diagonal())
    return z + y


@program(layouts(floats(3, 4)), "x")
def row_gets_sum_of_others(x: Tensor) -> Tensor:
    y = x * 1
    y[0] = y[1:].sum(0)
    y[1:] -= y[0]
    return y


@program(separate(floats(2, 3, 4)), "x")
def residual_accumulated_in_place(x: Tensor) -> Tensor:
    total = torch.zeros_like(x)
    for k in range(3):
        total += (x * k).tanh()
        total[:, k] += 1
    return total


@program(layouts(floats(4), kinds="whole offset strided"), "x")
def two_views_of_intermediate(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    a, b = y[:3], y[1:]
    a.mul_(3)
    b += 1
    return a * 1, b * 1


@program(layouts(floats(4, 2)), "x")
def detached_view_of_intermediate(x: Tensor) -> Tensor:
    y = x * 2
    y.detach()[0] = 1.0
    return y + x


@program(layouts(floats(4), kinds="whole offset strided"), "x")
def hook_doubles_gradient(x: Tensor) -> Tensor:
    y = x * 3
    if y.requires_grad:
        y.register_hook(lambda g: g * 2)
    return y.sin()


@program(layouts(floats(4), kinds="whole offset strided"), "x")
def hook_clamps_then_in_place(x: Tensor) -> Tensor:
    y = x * 3
    if y.requires_grad:
        y.register_hook(lambda g: g.clamp(-0.1, 0.1))
    y.add_(1)
    return y * 2


@program(layouts(floats(4), kinds="whole offset strided"), "x")
def hook_writes_gradient_copy(x: Tensor) -> Tensor:
    def halve_first(grad: Tensor) -> Tensor:
        grad = grad.clone()
        grad[0] *= 0.5
        return grad

    y = x.sin()
    if y.requires_grad:
        y.register_hook(halve_first)
    return y * y


@program(separate(floats(2, 6), floats(6)), "xl")
def layer_norm_by_hand(x: Tensor, w: Tensor) -> Tensor:
    y = x - x.mean(-1, keepdim=True)
    y = y / (y.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
    y[:, 0] += 1
    return y * w


@program(separate(floats(3, 4), floats(4, 4)), "xl")
def gated_unit_in_place(x: Tensor, w: Tensor) -> Tensor:
    value, gate = (x @ w).chunk(2, dim=-1)
    out = value.clone()
    out *= gate.sigmoid()
    return out


@program(separate(floats(2, 4, 4)), "x")
def causal_mask_on_scores(scores: Tensor) -> Tensor:
    s = scores / 2.0
    mask = torch.ones(4, 4, dtype=torch.bool).triu_(1)
    s.masked_fill_(mask, float("-inf"))
    p = s.softmax(-1)
    return p.clone().mul_(0.5)


@program(group(floats(4), kinds="separate same overlap disjoint"), "xx")
def sum_into_shared_buffer(x: Tensor, y: Tensor) -> Tensor:
    buffer = torch.zeros(2, 4)
    buffer[0].add_(x)
    buffer[1].add_(y)
    buffer[0] += buffer[1]
    return buffer


@program(separate(floats(2, 3, 4, 4)), "x")
def pad_border_by_assignment(x: Tensor) -> Tensor:
    out = x.new_zeros(2, 3, 6, 6)
    out[..., 1:-1, 1:-1] = x
    out[..., 0, :] = out[..., 1, :]
    out[..., -1] = out[..., -2]
    return out


@program(layouts(floats(4, 4)), "x")
def symmetrize_in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y.add_(y.t().clone())
    y.diagonal().div_(2)
    return y.tril()


@program(separate(floats(2, 3, 3)), "x")
def eye_added_to_batch(x: Tensor) -> Tensor:
    y = x @ x.mT
    y.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return torch.linalg.cholesky(y)


@program(separate(floats(8)), "x")
def haar_transform_levels(x: Tensor) -> Tensor:
    out = x.clone()
    size = 8
    while size > 1:
        head = out[:size].clone()
        out[: size // 2] = (head[0::2] + head[1::2]) / 2
        out[size // 2 : size] = (head[0::2] - head[1::2]) / 2
        size //= 2
    return out


@program(layouts(floats(3, 4)), "x")
def expanded_then_cloned_write(x: Tensor) -> Tensor:
    y = x[:1].expand(3, 4).clone()
    y[1] = x[1]
    y[2, 2:] *= 2
    return y
