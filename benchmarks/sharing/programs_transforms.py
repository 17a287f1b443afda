"""torch.func transforms around or inside functions that write in place."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call, grad, grad_and_value, jvp, vjp, vmap

from benchmarks.sharing.shared_arguments import floats, group, ints, layouts, program, separate


@program(layouts(floats(4), kinds="whole offset strided"), "n")
def grad_of_in_place_loss(x: Tensor) -> Tensor:
    def loss(v: Tensor) -> Tensor:
        h = v * 2
        h[0] = h[1].clone() * 3
        return h.pow(2).sum()

    return grad(loss)(x)


@program(layouts(floats(4), kinds="whole offset strided"), "n")
def gradient_step_on_input(x: Tensor) -> tuple[Tensor, Tensor]:
    g, value = grad_and_value(lambda v: v.cos().mul_(v).sum())(x)
    x.sub_(g, alpha=0.1)
    return x, value


@program(layouts(floats(3, 4)), "x")
def vmap_row_write(x: Tensor) -> Tensor:
    def one(row: Tensor) -> Tensor:
        out = row.clone()
        out[0] = row.sum()
        return out.mul_(2)

    return vmap(one)(x)


@program(layouts(floats(3, 4), floats(4)), "n")
def vmap_in_place_on_batched_input(x: Tensor, v: Tensor) -> Tensor:
    vmap(lambda row, other: row.add_(other), in_dims=(0, None))(x, v)
    return x * 2


@program(separate(floats(5, 3), ints(3, high=3)), "x")
def vmap_gathers_then_scatters(x: Tensor, index: Tensor) -> Tensor:
    def one(row: Tensor) -> Tensor:
        out = torch.zeros_like(row)
        return out.index_add(0, index, row)

    return vmap(one)(x)


@program(separate(floats(4, 3), floats(3), floats(4)), "n")
def per_sample_gradients(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    def loss(weight: Tensor, sample: Tensor, target: Tensor) -> Tensor:
        return (weight @ sample - target).square()

    grads = vmap(grad(loss), in_dims=(None, 0, 0))(w, x, y)
    norms = grads.norm(dim=1, keepdim=True)
    grads.div_(norms.clamp(min=1.0))
    w.sub_(grads.mean(0))
    return grads


@program(layouts(floats(4), kinds="whole offset strided"), "n")
def jvp_through_slice_write(x: Tensor) -> tuple[Tensor, Tensor]:
    def fn(v: Tensor) -> Tensor:
        h = v.sin()
        h[1:].mul_(2)
        return h

    return jvp(fn, (x,), (torch.ones_like(x),))  # type: ignore[return-value]


@program(layouts(floats(4), kinds="whole offset strided"), "n")
def vjp_pullback_of_fill(x: Tensor) -> Tensor:
    def fn(v: Tensor) -> Tensor:
        h = v * v
        h[:2] = 0
        return h

    out, pull = vjp(fn, x)  # type: ignore[misc]
    return pull(out + 1)[0]


@program(separate(floats(3, 2), floats(4, 2), floats(3)), "n")
def functional_linear_step(w: Tensor, x: Tensor, b: Tensor) -> Tensor:
    layer = torch.nn.Linear(2, 3)
    out = functional_call(layer, {"weight": w, "bias": b}, (x,))
    w.mul_(0.5)
    return out.relu_()


@program(group(floats(4), kinds="separate overlap same disjoint"), "nn")
def grad_then_write_other(x: Tensor, y: Tensor) -> Tensor:
    g = grad(lambda v: (v * v * y).sum())(x)
    y[1:].add_(g[:3])
    return g + x
