"""Arguments that share memory: windows, transposes and reinterpretations of one tensor."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def windows(size: int, *starts: int, rows: tuple[int, ...] = ()) -> tuple[Tensor, ...]:
    """Parts of one tensor that begin at these rows."""
    base = torch.randn(max(starts) + size + 1, *rows)
    return tuple(base[start : start + size] for start in starts)


# --- windows --------------------------------------------------------------------------------------


def write_both_slices(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x[2:].mul_(2)
    y[:3].add_(x[0])
    return x + 1, y + 1


def copy_between_windows(x: Tensor, y: Tensor) -> Tensor:
    kept = x.clone()
    y.copy_(kept * 2)
    return x + y


def split_and_join(x: Tensor, y: Tensor) -> Tensor:
    parts = torch.tensor_split(x, 3, dim=1)
    y[:, 2:4] = 0
    return torch.cat([parts[1], y, parts[0]], dim=1)


def predict_next(data: Tensor, target: Tensor, table: Tensor) -> Tensor:
    """Batches of a language model: tokens, and the same tokens one position later."""
    logits = table[data] @ table.t()
    target[0] = -100
    return F.cross_entropy(logits, target, ignore_index=-100)


def predict_next_inputs() -> tuple[Tensor, Tensor, Tensor]:
    tokens = torch.tensor([3, 1, 4, 1, 5, 2, 0, 5, 3])
    return tokens[:-1], tokens[1:], torch.randn(6, 4)


def overlap_add_frames(frame: Tensor, out: Tensor) -> Tensor:
    out.add_(frame * torch.hann_window(6))
    frame.zero_()
    return out.sum()


def gather_then_put_other(x: Tensor, y: Tensor, order: Tensor) -> Tensor:
    rows = y[order]
    x[order[:2]] = rows[:2] * 2
    return x + y


# --- views of other forms -------------------------------------------------------------------------


def transposed_and_whole(x: Tensor, y: Tensor) -> Tensor:
    x[0].add_(1)
    return y * 2


def interleaved_columns(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    y[1:].add_(1)
    return x.sum() * y.sum()


def whole_and_row(x: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return row, row + 1


def real_and_imaginary(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    b.mul_(2)
    return a.sum() + b.sum()


def bytes_cleared_floats_read(x: Tensor, raw: Tensor) -> Tensor:
    raw[3::8] = 0
    return x * 2


def expanded_is_read(wide: Tensor, x: Tensor) -> Tensor:
    x.mul_(3)
    return wide + x.sum()


def overlapping_windows_are_read(parts: Tensor, x: Tensor) -> Tensor:
    x.add_(10)
    return parts.mean(1)


# --- one argument and its views -------------------------------------------------------------------


def views_of_views(x: Tensor) -> Tensor:
    y = x.view(2, 8)
    z = y.view(-1)
    z[3:7].mul_(2)
    y[1].add_(z[:8])
    return x.mean()


def permuted_rows(x: Tensor) -> Tensor:
    p = x.permute(2, 0, 1)
    p[0].mul_(0.1)
    p[-1] = p[0] + p[1]
    return p.flatten(1)


def view_or_copy(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of a transpose, `reshape` and `contiguous` copy."""
    y, z = x.reshape(-1), x.contiguous()
    y[0] = 7.0
    z.add_(1)
    return y * 1, x * z


def conversion_is_no_copy(x: Tensor) -> Tensor:
    y = x.to(torch.float32)
    y[0].zero_()
    return x + y


def detached_write(x: Tensor) -> Tensor:
    x.detach().mul_(2)
    x.data[0] = 5.0
    return x * x


def strided_blocks(x: Tensor) -> Tensor:
    blocks = x.as_strided((3, 2), (4, 1), 1)
    blocks.mul_(3)
    return x.view(3, 4) + 1


def parts_of_complex(z: Tensor) -> tuple[Tensor, Tensor]:
    z.real.mul_(2)
    torch.view_as_real(z)[..., 0].add_(1)
    return z.abs(), z.conj()


def diagonal_and_trace(x: Tensor, d: Tensor) -> Tensor:
    torch.diagonal(x).copy_(d)
    x.t()[0].add_(1)
    return x.trace() + x[0].sum()


# --- masks and indices ----------------------------------------------------------------------------


def mask_of_itself(x: Tensor) -> Tensor:
    x[x < 0] *= -2
    return x.sqrt()


def rows_in_another_order(x: Tensor, order: Tensor, values: Tensor) -> Tensor:
    before = x[0].clone()
    x[order] = values
    x[:] = x[order]
    return x + before


def repeated_indices(x: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    x.index_add_(0, index, rows, alpha=0.5)
    x.index_put_((index,), rows, accumulate=True)
    return x.relu()


def largest_of_group(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    x.scatter_reduce_(0, index, src, reduce="amax")
    x.put_(torch.tensor([1, 7]), src[0, :2])
    return x


INPUTS = {
    "write_both_slices": lambda: windows(6, 0, 1),
    "copy_between_windows": lambda: windows(6, 1, 0),
    "split_and_join": lambda: windows(2, 0, 1, rows=(6,)),
    "predict_next": predict_next_inputs,
    "overlap_add_frames": lambda: windows(6, 3, 0),
    "gather_then_put_other": lambda: (
        *windows(6, 0, 1, rows=(2,)),
        torch.tensor([4, 0, 5, 2, 1, 3]),
    ),
    "transposed_and_whole": lambda: ((base := torch.randn(4, 4)), base.t()),
    "interleaved_columns": lambda: ((base := torch.randn(4, 4))[:, ::2], base[:, 1::2]),
    "whole_and_row": lambda: ((base := torch.randn(4, 4)), base[1]),
    "real_and_imaginary": lambda: (
        (z := torch.randn(6, dtype=torch.complex64)).real[1:],
        z.real[:-1],
    ),
    "bytes_cleared_floats_read": lambda: ((x := torch.randn(6)), x.view(torch.uint8)),
    "expanded_is_read": lambda: ((base := torch.randn(4))[:1].expand(3), base[:3]),
    "overlapping_windows_are_read": lambda: ((base := torch.randn(8)).unfold(0, 3, 1), base[2:5]),
    "views_of_views": lambda: torch.randn(4, 4),
    "permuted_rows": lambda: torch.randn(4, 3, 2).permute(2, 1, 0),
    "view_or_copy": lambda: torch.randn(6, 2).t(),
    "conversion_is_no_copy": lambda: torch.randn(3, 4),
    "detached_write": lambda: torch.randn(6),
    "strided_blocks": lambda: torch.randn(12),
    "parts_of_complex": lambda: torch.randn(4, 2, dtype=torch.complex64),
    "diagonal_and_trace": lambda: (torch.randn(4, 4), torch.randn(4)),
    "mask_of_itself": lambda: torch.randn(12)[::2],
    "rows_in_another_order": lambda: (
        torch.randn(6, 2),
        torch.tensor([4, 0, 5, 2, 1, 3]),
        torch.randn(6, 2),
    ),
    "repeated_indices": lambda: (torch.randn(5, 3), torch.tensor([3, 1, 3, 0]), torch.randn(4, 3)),
    "largest_of_group": lambda: (torch.randn(4, 5), torch.randint(0, 4, (4, 5)), torch.randn(4, 5)),
}
