"""Outputs that are inputs, views of inputs, or views of each other."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.sharing.shared_arguments import (
    complexes,
    custom,
    floats,
    group,
    ints,
    layouts,
    program,
    separate,
)


@program(layouts(floats(4), kinds="whole offset strided"), "x")
def returns_its_argument(x: Tensor) -> Tensor:
    x.add_(1)
    return x


@program(layouts(floats(4), kinds="whole offset strided"), "x")
def returns_argument_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return x, x


@program(layouts(floats(3, 4)), "x")
def returns_views_of_argument(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x[0].add_(1)
    return x[0], x.t(), x[1:, 1:]


@program(layouts(floats(3, 4)), "x")
def returns_views_of_intermediate(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    y[1].zero_()
    return y[:2], y.t()


@program(layouts(floats(3, 4)), "x")
def returns_intermediate_and_view(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = x.sin()
    z = y.view(-1)
    return y, z, z[3:6]


@program(layouts(floats(3, 4)), "x")
def returns_detached(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    return y, y.detach()


@program(layouts(floats(3, 4)), "x")
def returns_detached_argument(x: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return x.detach(), x.detach()[0]


@program(group(floats(3, 4), kinds="separate overlap same disjoint"), "xx")
def returns_both_swapped(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return y, x


@program(group(floats(3, 4), kinds="separate overlap same disjoint"), "xx")
def returns_view_of_each(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return y[0], x[1:]


@program(group(floats(4), kinds="separate same overlap disjoint"), "xn")
def writes_first_returns_second(x: Tensor, y: Tensor) -> Tensor:
    x.fill_(1.0)
    return y


@program(layouts(floats(2, 6)), "x")
def returns_chunks(x: Tensor) -> list[Tensor]:
    return list((x + 1).chunk(3, dim=1))


@program(layouts(floats(2, 6)), "x")
def returns_split_of_argument(x: Tensor) -> list[Tensor]:
    return list(x.split([2, 4], dim=1))


@program(layouts(floats(3, 4)), "x")
def returns_unbound_rows(x: Tensor) -> tuple[Tensor, ...]:
    x.mul_(3)
    return x.unbind(0)


@program(layouts(floats(3, 1)), "x")
def returns_expanded_argument(x: Tensor) -> Tensor:
    x.neg_()
    return x.expand(3, 5)


@program(layouts(floats(3, 4)), "x")
def returns_dict_with_shared(x: Tensor) -> dict[str, Tensor]:
    hidden = x.cos()
    return {"hidden": hidden, "last": hidden[-1], "input": x, "sum": hidden.sum()}


@program(layouts(complexes(3), kinds="whole offset strided"), "x")
def returns_real_and_imag(z: Tensor) -> tuple[Tensor, Tensor]:
    z.mul_(1j)
    return z.real, z.imag


@program(layouts(complexes(3), kinds="whole offset strided"), "x")
def returns_conj(z: Tensor) -> Tensor:
    return z.conj()


@program(separate(ints(3, 4)), "")
def returns_integer_views(x: Tensor) -> tuple[Tensor, Tensor]:
    x[0] += 1
    return x[0], x.view(torch.int32)


@program(layouts(floats(3, 4)), "x")
def returns_reshaped_or_same(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.reshape(-1), x.contiguous()


@program(layouts(floats(3, 4)), "x")
def returns_no_op_conversions(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.float(), x.to("cpu"), x.view_as(x)


@program(layouts(floats(3, 4)), "x")
def view_made_before_write(x: Tensor) -> tuple[Tensor, Tensor]:
    row = x[1]
    x.mul_(2)
    row.add_(1)
    return row, x


@program(separate(floats(4), floats(4)), "nx")
def buffer_view_after_differentiable_write(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    state.copy_(x * 2)
    return state[:2], state


@program(layouts(floats(3, 4)), "x")
def returns_no_grad_copy(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        y = x[0].clone().mul_(2)
    return y, x[0] * y


@program(layouts(floats(3, 4)), "x")
def returns_view_and_none(x: Tensor) -> tuple[Tensor, None, int]:
    x.sub_(1)
    return x[:, 0], None, 3


@program(
    custom(
        floats(4, 4),
        (lambda b: b, lambda b: b[1]),
        (lambda b: b.t(), lambda b: b[:, 1]),
        (lambda b: b[:2], lambda b: b[3]),
    ),
    "xx",
)
def view_argument_of_other_returned(x: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return row, row + 1


@program(separate(floats(2, 0), floats(3)), "x")
def empty_and_scalar_outputs(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y[0] = 5
    return x, y[0], x.sum()


@program(layouts(floats(3, 4)), "x")
def output_list_of_loop_states(x: Tensor) -> list[Tensor]:
    state = torch.zeros(4)
    kept = []
    for row in x:
        state = state * 0.5 + row
        kept.append(state)
        state[0].detach()
    return kept
