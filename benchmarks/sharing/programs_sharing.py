"""Arguments, buffers and locals whose shared storage, size, layout or kind of view changes."""

from __future__ import annotations

import torch
import torch._dynamo
from torch import Tensor, nn

from benchmarks.sharing.shared_arguments import (
    CallBuilder,
    SharedCall,
    Spec,
    View,
    complexes,
    custom,
    cut,
    floats,
    group,
    ints,
    layouts,
    program,
    rotated,
    seeded,
    separate,
)


def pairs(spec: Spec, *cases: tuple[int, int, int]) -> CallBuilder:
    """Two windows of one base; a case is (size, first start, second start)."""

    def build(seed: int) -> list[SharedCall]:
        gen = seeded(seed)
        made = []
        for size, one, two in rotated(cases, seed):
            views = [View(0, cut(one, size)), View(0, cut(two, size))]
            made.append(SharedCall(f"{size}@{one},{two}", [spec.fill(gen)], list(views)))
        return made

    return build


@program(pairs(floats(32), (6, 0, 16), (8, 0, 16), (7, 0, 1), (9, 4, 1), (6, 3, 3)), "xx")
def sizes_and_overlap_change(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return y + 1


@program(pairs(floats(32), *((8, 0, d) for d in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))), "nn")
def twelve_distances(x: Tensor, y: Tensor) -> Tensor:
    x[1:] += 1
    y[:-1] *= 2
    return x - y


@program(pairs(floats(32), (4, 0, 8), (4, 8, 0), (6, 1, 2), (6, 2, 1), (12, 0, 4)), "nn")
def dynamic_size_window_update(x: Tensor, y: Tensor) -> Tensor:
    n = x.shape[0]
    x[: n // 2].add_(1)
    return y[: n // 2] * x[n // 2 :]


@program(
    custom(
        complexes(6),
        (lambda z: z.real, lambda z: z.imag),
        (lambda z: z.real, lambda z: z.real),
        (lambda z: z.real[1:], lambda z: z.real[:-1]),
        (lambda z: z.imag[:4], lambda z: z.real[2:]),
    ),
    "nn",
)
def real_and_imag_arguments(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    b.mul_(2)
    return a.sum() + b.sum()


@program(
    custom(
        floats(6),
        (None, lambda b: b.view(torch.int32)),
        (lambda b: b[:4], lambda b: b[2:].view(torch.int32)),
        (lambda b: b[:3], lambda b: b[3:].view(torch.int32)),
    ),
    "nn",
)
def float_and_integer_views(x: Tensor, bits: Tensor) -> Tensor:
    x.neg_()
    return bits.bitwise_and(0xFF)


@program(
    custom(
        floats(6),
        (None, lambda b: b.view(torch.uint8)),
        (lambda b: b[2:], lambda b: b[:4].view(torch.uint8)),
    ),
    "nn",
)
def bytes_cleared_floats_read(x: Tensor, raw: Tensor) -> Tensor:
    raw[3::8] = 0
    return x * 2


@program(
    custom(
        complexes(5),
        (None, lambda z: z.conj()),
        (lambda z: z[1:], lambda z: z[:-1].conj()),
        (lambda z: z[:2], lambda z: z[3:].conj()),
    ),
    "nn",
)
def conjugate_argument_read(z: Tensor, c: Tensor) -> Tensor:
    z.mul_(1j)
    return c + 1


@program(
    custom(
        floats(8),
        (lambda b: b.unfold(0, 3, 1), lambda b: b[2:5]),
        (lambda b: b.unfold(0, 2, 2), lambda b: b[5:8]),
        (lambda b: b[:4].unfold(0, 2, 1), lambda b: b[4:7]),
    ),
    "nn",
)
def overlapping_windows_argument(windows: Tensor, x: Tensor) -> Tensor:
    x.add_(10)
    return windows.mean(1)


@program(
    custom(
        floats(4),
        (lambda b: b[:1].expand(3), lambda b: b[:3]),
        (lambda b: b[3:].expand(3), lambda b: b[:3]),
        (lambda b: b[:3], lambda b: b[1:]),
    ),
    "nn",
)
def expanded_argument_read(wide: Tensor, x: Tensor) -> Tensor:
    x.mul_(3)
    return wide + x.sum()


@program(layouts(floats(4, 4)), "x")
def view_across_graph_break(x: Tensor) -> Tensor:
    y = x[1:]
    torch._dynamo.graph_break()
    y.mul_(2)
    torch._dynamo.graph_break()
    x[0] = y[0]
    return x + 1


@program(group(floats(6), kinds="separate overlap same apart"), "nn")
def windows_across_graph_breaks(x: Tensor, y: Tensor) -> Tensor:
    a = x[::2]
    torch._dynamo.graph_break()
    y.add_(1)
    b = y[1::2]
    torch._dynamo.graph_break()
    a.mul_(2)
    b.sub_(a.clone())
    return x * y


class PickedWindow(nn.Module):
    """A local tensor that is a view of a buffer, made where the compiler does not look."""

    state: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.arange(10.0))

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def pick(self, k: int) -> Tensor:
        return self.state[k : k + 4] if k >= 0 else torch.zeros(4)

    def forward(self, x: Tensor, k: int) -> Tensor:
        window = self.pick(k)
        window.add_(x.detach())
        return self.state[2:6] * x


def steps(*positions: int) -> CallBuilder:
    def build(seed: int) -> list[SharedCall]:
        gen = seeded(seed)
        return [SharedCall(f"at {k}", [floats(4).fill(gen)], [View(0), k]) for k in positions]

    return build


@program(steps(-1, 0, 2, 6, 3), "x", factory=True)
def picked_window_of_buffer() -> nn.Module:
    return PickedWindow()


class TwoPickedWindows(PickedWindow):
    def forward(self, x: Tensor, k: int) -> Tensor:
        first, second = self.pick(k), self.pick(k // 2)
        first.mul_(2)
        second.add_(1)
        return first - second + x


@program(steps(-1, 0, 1, 2, 5), "x", factory=True)
def two_picked_windows() -> nn.Module:
    return TwoPickedWindows()


@program(
    custom(
        floats(6, 6),
        (lambda b: b[:3, :3], lambda b: b[3:, 3:]),
        (lambda b: b[:3, :3], lambda b: b[:3, :3].t()),
        (lambda b: b[:3, :3], lambda b: b[2:5, 2:5]),
        (lambda b: b[::2, ::2], lambda b: b[1::2, 1::2]),
        (lambda b: b[::2, ::2], lambda b: b[:3, :3]),
    ),
    "nn",
)
def blocks_of_one_matrix(a: Tensor, b: Tensor) -> Tensor:
    a.mul_(0.5)
    b.add_(1)
    return a @ b


@program(group(floats(4), count=4, kinds="separate same overlap shifted reverse"), "nnnn")
def four_windows_in_a_ring(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    a.add_(1)
    b.mul_(2)
    c.sub_(3)
    d.div_(4)
    return a + b + c + d


@program(group(floats(4), count=3, kinds="separate overlap same shifted"), "nnn")
def writes_in_two_branches(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    if a.sum() > 0:
        a.mul_(2)
    else:
        b.mul_(2)
    return a + b + c


@program(separate(floats(6), floats(6)), "xx")
def random_fill_order(x: Tensor, y: Tensor) -> Tensor:
    noise = torch.rand(6)
    with torch.no_grad():
        x.normal_()
        y.uniform_()
    return x + y * noise


@program(layouts(floats(4, 4)), "x")
def random_rows_dropped(x: Tensor) -> Tensor:
    keep = torch.empty(4, 1).bernoulli_(0.5)
    x.mul_(keep)
    return x + torch.randn_like(x)


@program(group(floats(5), kinds="separate overlap same disjoint"), "nn")
def random_noise_between_windows(x: Tensor, y: Tensor) -> Tensor:
    x.add_(torch.randn(5))
    y.mul_(torch.rand(5))
    return x + y + torch.rand(())


@program(group(ints(6, high=9), kinds="separate overlap same reverse"), "")
def scalar_read_between_writes(x: Tensor, y: Tensor) -> Tensor:
    x += 1
    k = int(y[0].item())
    y.fill_(k)
    return x * k


@program(group(floats(4), kinds="disjoint overlap separate same"), "nx")
def detached_alias_scaled(flat: Tensor, x: Tensor) -> Tensor:
    flat.mul_(2)
    return x * 3


@program(group(floats(4), kinds="disjoint separate same overlap"), "xn")
def detached_alias_read_and_written(x: Tensor, flat: Tensor) -> Tensor:
    y = x.sin()
    flat[:2].add_(1)
    return y + flat


class WeightDataAcrossBreak(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        data = self.weight.data
        torch._dynamo.graph_break()
        data.clamp_(-0.5, 0.5)
        return x @ self.weight + data.sum(0)


@program(separate(floats(2, 4)), "x", factory=True)
def weight_data_across_graph_break() -> nn.Module:
    return WeightDataAcrossBreak()


@program(pairs(floats(16), (4, 0, 1), (4, 2, 3), (4, 6, 7), (4, 3, 2)), "xx")
def same_distance_other_offset(x: Tensor, y: Tensor) -> Tensor:
    y.mul_(2)
    return x + 1
