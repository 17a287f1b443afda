"""Concatenations without copies: `cat`, `stack`, pads and scatters as stores into a new buffer.

    p = a * 2                                   buffer = empty
    q = b + 1                                   p = mul.out(a, 2, out=buffer[:n])
    c = cat([p, q])                             q = add.out(b, 1, out=buffer[n:])

Here, the graph stays functional: `c` becomes a chain of scatters into `empty`. The buffer comes
before the first part, the scatters are where `c` was. Reinplacing does the rest: it computes each
part where its scatter stores it (`offers`), and then the scatter is redundant.

The buffer is live from the first part on. That is a loss if the parts are made early, and are small
beside what is live in between. `join_buffers` says which parts are worth it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.emission import Emitter
from aliasproof.reference_pass.calls.operator_forms import SCATTERS, aten, bind
from aliasproof.reference_pass.calls.regions import Region, is_contiguous, is_dense

# (emitter, the value of a buffer, a part) -> the value of the buffer with the part stored
Store: TypeAlias = Callable[[Emitter, fx.Node, fx.Node], fx.Node]


@dataclass(frozen=True, slots=True)
class Join:
    """A call that copies parts into a new tensor, one store per part.

    Around the parts is a number, `fill`, or a copy of `base`.
    """

    node: fx.Node
    parts: tuple[tuple[fx.Node, Store], ...]
    fill: float | None = None
    base: fx.Node | None = None


def join_of(node: fx.Node) -> Join | None:
    """A call as a join; None if it is none, or if it converts what it copies."""
    made = JOINS[node.target](node) if node.target in JOINS else None
    if made is None:
        return None
    result = node.meta["val"]
    if made.fill is not None and not is_contiguous(result):
        return None  # so is the buffer
    for part, _ in made.parts:
        value = part.meta["val"]
        sizes = (*value.shape, *value.stride(), *result.shape, *result.stride())
        if not all(isinstance(size, int) for size in sizes):
            return None
        if (value.dtype, value.device) != (result.dtype, result.device):
            return None
    return made


def _of_cat(node: fx.Node) -> Join | None:
    given = bind(node.target, node.args, node.kwargs)  # type: ignore[arg-type]
    tensors, rank = given["tensors"], node.meta["val"].dim()
    # An empty tensor of one dimension may stand beside any other tensors.
    if not all(isinstance(part, fx.Node) and part.meta["val"].dim() == rank for part in tensors):
        return None
    dim = given.get("dim", 0) % rank
    parts, start = [], 0
    for part in tensors:
        end = start + part.meta["val"].shape[dim]
        parts.append((part, _by(aten.slice_scatter.default, dim, start, end)))
        start = end
    return Join(node, tuple(parts))


def _of_stack(node: fx.Node) -> Join | None:
    given = bind(node.target, node.args, node.kwargs)  # type: ignore[arg-type]
    dim = given.get("dim", 0) % node.meta["val"].dim()
    stores = enumerate(given["tensors"])
    return Join(
        node, tuple((part, _by(aten.select_scatter.default, dim, index)) for index, part in stores)
    )


def _of_pad(node: fx.Node) -> Join | None:
    given = bind(node.target, node.args, node.kwargs)  # type: ignore[arg-type]
    part, pads = given["self"], given["pad"]
    if not all(isinstance(pad, int) and pad >= 0 for pad in pads):
        return None  # a negative pad cuts
    # The pads begin with the last dimension.
    strides = node.meta["val"].stride()
    starts = zip(reversed(strides), pads[::2], strict=False)
    offset = sum(stride * before for stride, before in starts)
    layout = list(part.meta["val"].shape), list(strides), offset
    stored = part, _by(aten.as_strided_scatter.default, *layout)
    return Join(node, (stored,), given.get("value", 0))


def _of_scatter(node: fx.Node) -> Join | None:
    assert isinstance(node.target, OpOverload)
    base, part, *args = node.args
    if not isinstance(base, fx.Node) or not isinstance(part, fx.Node):
        return None
    value, result = base.meta["val"], node.meta["val"]
    own = result.numel() * result.itemsize
    # A scatter copies the whole storage of its base, which `as_strided` of the result may show.
    cloned = is_dense(Region.of(value)) and (0, own), value.stride()
    whole = (value.storage_offset(), value.untyped_storage().nbytes()), value.stride()
    layout = (result.storage_offset(), result.untyped_storage().nbytes()), result.stride()
    if layout not in (cloned, whole) or value.is_conj() or value.is_neg():
        return None
    return Join(node, ((part, _by(node.target, *args, **node.kwargs)),), base=base)


JOINS: dict[Any, Callable[[fx.Node], Join | None]] = {
    aten.cat.default: _of_cat,
    aten.stack.default: _of_stack,
    aten.constant_pad_nd.default: _of_pad,
    # Where nothing else needs the base, it is stored into.
    **dict.fromkeys(SCATTERS, _of_scatter),
}


def _by(scatter: OpOverload, *args: Any, **kwargs: Any) -> Store:
    """A store by a scatter with these arguments."""
    return lambda emit, buffer, part: emit.call(scatter, buffer, part, *args, **kwargs)
