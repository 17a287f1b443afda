"""Programs that write through views of their inputs and of intermediates."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.sharing.shared_arguments import (
    complexes,
    custom,
    floats,
    group,
    layouts,
    positives,
    program,
    separate,
)


@program(layouts(floats(4, 6)), "x")
def scale_first_rows(x: Tensor) -> Tensor:
    x[:2].mul_(0.5)
    return x.sum(0)


@program(group(floats(6)), "xx")
def add_shifted_then_read(x: Tensor, y: Tensor) -> Tensor:
    x[1:3] += 1.0
    return x * 2 + y


@program(group(floats(6), kinds="separate overlap shifted disjoint"), "xx")
def write_both_slices(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x[2:].mul_(2)
    y[:3].add_(x[0])
    return x + 1, y + 1


@program(group(floats(5, 4), kinds="separate same overlap apart"), "xn")
def write_column_read_other(x: Tensor, y: Tensor) -> Tensor:
    x[:, 1] = x[:, 0] * 3
    return (x * y).sum()


@program(layouts(floats(4, 4)), "x")
def zero_diagonal(x: Tensor) -> Tensor:
    x.diagonal().zero_()
    return x @ x


@program(layouts(floats(4, 4), floats(4)), "xx")
def set_diagonal_and_trace(x: Tensor, d: Tensor) -> Tensor:
    torch.diagonal(x).copy_(d)
    x.t()[0].add_(1)
    return x.trace() + x[0].sum()


@program(layouts(floats(3, 5)), "x")
def normalize_transposed_in_place(x: Tensor) -> Tensor:
    columns = x.transpose(0, 1)
    columns.sub_(columns.mean(0, keepdim=True))
    return columns.contiguous()


@program(layouts(floats(2, 6)), "x")
def chunk_swap_halves(x: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=1)
    saved = left.clone()
    x[:, :3] = right
    x[:, 3:] = saved
    return x


@program(layouts(floats(2, 6)), "n")
def split_scale_parts(x: Tensor) -> Tensor:
    a, b, c = x.split(2, dim=1)
    a.mul_(2)
    b.add_(a)
    c.copy_(b)
    return x


@program(layouts(floats(3, 4)), "n")
def unbind_accumulate(x: Tensor) -> Tensor:
    rows = x.unbind(0)
    for k in range(1, len(rows)):
        rows[k].add_(rows[k - 1])
    return rows[-1]


@program(layouts(floats(3, 4), floats(3, 4)), "xx")
def running_sum_by_select(x: Tensor, y: Tensor) -> Tensor:
    for k in range(1, 3):
        x.select(0, k).add_(x.select(0, k - 1) + y.select(0, k))
    return x


@program(layouts(floats(8), kinds="whole offset strided"), "x")
def narrow_fill_middle(x: Tensor) -> Tensor:
    middle = x.narrow(0, 2, 4)
    middle.fill_(1.5)
    return middle + x[:4]


@program(layouts(floats(1, 5)), "x")
def squeeze_then_add(x: Tensor) -> tuple[Tensor, Tensor]:
    flat = x.squeeze(0)
    flat += 1
    return flat, x * 2


@program(layouts(floats(8), kinds="whole offset"), "x")
def unfold_windows_after_write(x: Tensor) -> Tensor:
    windows = x.unfold(0, 3, 2)
    x[2] = 10.0
    return windows.max(dim=1).values


@program(layouts(floats(8), kinds="whole offset"), "x")
def unfold_disjoint_windows_scaled(x: Tensor) -> Tensor:
    windows = x.unfold(0, 2, 2)
    windows.mul_(torch.tensor([1.0, -1.0]))
    return x.cumsum(0)


@program(layouts(floats(12), kinds="whole"), "x")
def as_strided_blocks(x: Tensor) -> Tensor:
    blocks = x.as_strided((3, 2), (4, 1), 1)
    blocks.mul_(3)
    return x.view(3, 4) + 1


@program(layouts(floats(12), kinds="whole offset"), "n")
def as_strided_past_argument(x: Tensor) -> Tensor:
    first = torch.as_strided(x, (4,), (2,))
    first.neg_()
    return first + x[:4]


@program(layouts(floats(3, 1)), "x")
def expand_reads_after_write(x: Tensor) -> Tensor:
    wide = x.expand(3, 4)
    x.add_(1)
    return wide.sum(1) + wide[0, 0]


@program(layouts(complexes(4, 2)), "x")
def real_part_in_place(z: Tensor) -> Tensor:
    z.real.mul_(2)
    z.imag.zero_()
    return z.abs()


@program(layouts(complexes(3, 2)), "x")
def view_as_real_rotate(z: Tensor) -> Tensor:
    parts = torch.view_as_real(z)
    parts[..., 0].add_(parts[..., 1])
    return z * 1j


@program(layouts(complexes(4), kinds="whole offset strided"), "x")
def conj_view_after_write(z: Tensor) -> tuple[Tensor, Tensor]:
    c = z.conj()
    z.mul_(2)
    return c + 1, c.imag


@program(separate(complexes(4)), "x")
def write_through_conj(z: Tensor) -> Tensor:
    z.conj().add_(1j)
    return z


@program(layouts(floats(2, 4), kinds="whole offset"), "n")
def bits_view_absolute(x: Tensor) -> Tensor:
    bits = x.view(torch.int32)
    bits.bitwise_and_(0x7FFFFFFF)
    return x.sqrt()


@program(layouts(floats(2, 4), kinds="whole offset"), "n")
def bytes_view_clears_low_byte(x: Tensor) -> tuple[Tensor, Tensor]:
    raw = x.view(torch.uint8)
    raw[:, ::4] = 0
    return x + 0, raw[0]


@program(layouts(floats(4, 4), kinds="whole offset"), "x")
def view_then_view_again(x: Tensor) -> Tensor:
    y = x.view(2, 8)
    z = y.view(-1)
    z[3:7].mul_(2)
    y[1].add_(z[:8])
    return x.mean()


@program(layouts(floats(2, 3, 4)), "x")
def permute_write_flatten(x: Tensor) -> Tensor:
    p = x.permute(2, 0, 1)
    p[0].mul_(0.1)
    p[-1] = p[0] + p[1]
    return p.flatten(1)


@program(layouts(floats(2, 6)), "x")
def reshape_maybe_copy(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.reshape(-1)
    y[0] = 7.0
    return y * 1, x * 1


@program(layouts(floats(3, 4)), "x")
def contiguous_maybe_copy(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.contiguous()
    y.add_(1)
    return y.sum(0), x.sum(0)


@program(layouts(floats(3, 4)), "x")
def to_same_dtype_is_alias(x: Tensor) -> Tensor:
    y = x.to(torch.float32)
    y[0].zero_()
    return x + y


@program(layouts(floats(6), kinds="whole offset strided"), "x")
def detach_in_place_seen(x: Tensor) -> Tensor:
    x.detach().mul_(2)
    return x + 1


@program(layouts(floats(6), kinds="whole offset strided"), "x")
def data_attribute_write(x: Tensor) -> Tensor:
    x.data.add_(1)
    x.data[0] = 5.0
    return x * x


@program(group(positives(6)), "xn")
def detach_scaled_by_other(x: Tensor, y: Tensor) -> Tensor:
    x.detach().mul_(y)
    return x.log() + y


@program(
    custom(
        floats(4, 4),
        (None, lambda b: b.t()),
        (lambda b: b[:3, :3], lambda b: b[1:, 1:]),
        (lambda b: b[::2], lambda b: b[1::2]),
        (lambda b: b, lambda b: b[0]),
    ),
    "xx",
)
def write_one_read_transposed(x: Tensor, y: Tensor) -> Tensor:
    x[0].add_(1)
    return y * 2


@program(
    custom(
        floats(4, 4),
        (lambda b: b[:, :2], lambda b: b[:, 2:]),
        (lambda b: b[:, :2], lambda b: b[:, 1:3]),
        (lambda b: b[:2].t(), lambda b: b[2:].t()),
        (lambda b: b[:, ::2], lambda b: b[:, 1::2]),
    ),
    "xx",
)
def interleaved_columns(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    y[1:].add_(1)
    return x.sum() * y.sum()


@program(
    custom(
        floats(6, 4),
        (lambda b: b[0], lambda b: b[:, 0].narrow(0, 0, 4)),
        (lambda b: b[1], lambda b: b[2]),
        (lambda b: b.diagonal(), lambda b: b[3]),
        (lambda b: b[5], lambda b: b[5]),
    ),
    "xx",
)
def row_and_column_cross(row: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    row.mul_(2)
    mean = other.mean()
    other.sub_(mean)
    return row, mean


@program(layouts(floats(4, 4)), "x")
def triu_tril_in_place(x: Tensor) -> Tensor:
    upper = x.triu()
    x.tril_(-1)
    return upper + x.mT


@program(layouts(floats(2, 3, 2), kinds="whole offset strided"), "x")
def movedim_swapaxes_write(x: Tensor) -> Tensor:
    y = x.movedim(0, -1)
    y[0, :, 1] += 2
    return y.swapaxes(0, 2).sum(1)


@program(layouts(floats(2, 2, 3), kinds="whole offset strided"), "x")
def unflatten_heads_scale(x: Tensor) -> Tensor:
    heads = x.flatten(0, 1).unflatten(0, (2, 2))
    heads[:, 0] *= 10
    return x


@program(group(floats(6), kinds="separate overlap reverse same"), "xx")
def copy_between_windows(x: Tensor, y: Tensor) -> Tensor:
    tmp = x.clone()
    y.copy_(tmp * 2)
    return x + y


@program(group(floats(6), count=3, kinds="separate overlap same apart"), "xxx")
def three_windows(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    a.add_(1)
    b[::2].mul_(2)
    return a + b + c


@program(group(floats(2, 6), kinds="separate overlap disjoint apart"), "xx")
def tensor_split_and_cat(x: Tensor, y: Tensor) -> Tensor:
    parts = torch.tensor_split(x, 3, dim=1)
    y[:, 2:4] = 0
    return torch.cat([parts[1], y, parts[0]], dim=1)
