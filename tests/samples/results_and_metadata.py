"""What is returned shares memory with what else there is; sizes and strides change in place."""

from __future__ import annotations

import torch
from torch import Tensor

# --- results --------------------------------------------------------------------------------------


def argument_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return x, x


def views_of_argument(x: Tensor) -> tuple[Tensor, ...]:
    row = x[1]
    x.mul_(2)
    row.add_(1)
    return row, x[0], x.t(), x[1:, 1:], x[:, :1].expand(3, 5)


def views_of_intermediate(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    y[1].zero_()
    z = y.view(-1)
    return y[:2], y.t(), z[3:6], y.detach()


def parts(x: Tensor) -> list[Tensor]:
    x.mul_(3)
    return [*(x + 1).chunk(3, dim=1), *x.split([2, 4], dim=1), *x.unbind(0)]


def dictionary_of_shared(x: Tensor) -> dict[str, Tensor]:
    hidden = x.cos()
    return {"hidden": hidden, "last": hidden[-1], "input": x, "sum": hidden.sum()}


def complex_parts(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    z.mul_(1j)
    return z.real, z.imag, z.conj()


def empty_and_scalar(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, None, int]:
    y[0] = 5
    return x, y[0], None, 3


# --- metadata -------------------------------------------------------------------------------------


def transposed_then_written(x: Tensor) -> Tensor:
    x.transpose_(0, 1)
    x[0].mul_(2)
    return x


def transposed_after_view(x: Tensor) -> tuple[Tensor, Tensor]:
    row = x[0]
    x.t_()
    row.add_(10)
    return x * 1, row


def squeezed_in_place(x: Tensor) -> Tensor:
    x.squeeze_(1)
    x.add_(1)
    x.unsqueeze_(0)
    return x.sum(1)


def transposed_intermediate(x: Tensor, w: Tensor) -> Tensor:
    h = x @ w
    h.t_()
    h.relu_()
    return h


def resized(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    y.resize_(4)
    y.add_(1)
    z = x * 2
    z.resize_(2, 3)
    return y, z.sum(0)


def storage_of_another(x: Tensor, y: Tensor) -> Tensor:
    z = torch.zeros(4)
    z.set_(y)  # type: ignore[call-overload]
    z.add_(1)
    return z + x


def written_to_row(x: Tensor, y: Tensor) -> Tensor:
    """`out=` is a row of an argument, an argument, and an empty tensor."""
    torch.sum(x, dim=0, out=y[1])
    torch.add(x, 1, out=x)
    out = torch.empty(0)
    torch.mul(x, 3, out=out)
    return y + x + out


def channels_last_written(x: Tensor) -> Tensor:
    y = x.contiguous(memory_format=torch.channels_last)
    y[:, 0].add_(1)
    return y


# --- tensors that are made ------------------------------------------------------------------------


def assembled(x: Tensor, y: Tensor) -> Tensor:
    out = x.new_empty(3, 8)
    out[:, 0::2] = x
    out[:, 1::2] = y
    return out.view(3, 4, 2).flip(-1)


def overlapping_views_written(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    a, b = y[:3], y[1:]
    a.mul_(3)
    b += 1
    return a * 1, b * 1


def view_across_graph_break(x: Tensor) -> Tensor:
    y = x[1:]
    torch._dynamo.graph_break()
    y.mul_(2)
    torch._dynamo.graph_break()
    x[0] = y[0]
    return x + 1


INPUTS = {
    "argument_twice": lambda: torch.randn(8)[::2],
    "views_of_argument": lambda: torch.randn(3, 4),
    "views_of_intermediate": lambda: torch.randn(3, 4),
    "parts": lambda: torch.randn(2, 6),
    "dictionary_of_shared": lambda: torch.randn(4, 3).t(),
    "complex_parts": lambda: torch.randn(3, dtype=torch.complex64),
    "empty_and_scalar": lambda: (torch.randn(2, 0), torch.randn(3)),
    "transposed_then_written": lambda: torch.randn(3, 4),
    "transposed_after_view": lambda: torch.randn(2, 3),
    "squeezed_in_place": lambda: torch.randn(3, 1, 2),
    "transposed_intermediate": lambda: (torch.randn(3, 4), torch.randn(4, 3)),
    "resized": lambda: torch.randn(6),
    "storage_of_another": lambda: (torch.randn(4), torch.randn(4)),
    "written_to_row": lambda: (torch.randn(3, 4), torch.randn(3, 4)),
    "channels_last_written": lambda: torch.randn(2, 3, 4, 4),
    "assembled": lambda: (torch.randn(3, 4), torch.randn(3, 4)),
    "overlapping_views_written": lambda: torch.randn(4),
    "view_across_graph_break": lambda: torch.randn(4, 4),
}
