"""How arguments of views and conversions are drawn: dimensions, cuts, shapes of other tensors.

Every drawer takes the `Draft` of the call so far and gives one argument, or raises `NoChoice`.
"""

from __future__ import annotations

import torch

from aliasproof.generators.draft import Draft, Drawer
from aliasproof.generators.number_arguments import extent, one_of
from aliasproof.generators.scene import NoChoice
from aliasproof.generators.tensor_arguments import tensor_like
from aliasproof.ir.program import Argument, Ref

# --- dimensions -----------------------------------------------------------------------------------


def some_dimensions(draft: Draft) -> Argument:
    """One or two different dimensions, some counted from the back."""
    rank = draft.self.dim()
    if rank == 0:
        raise NoChoice
    return _different(draft, draft.pick.integer(1, min(rank, 2)))


def as_many_dimensions(draft: Draft) -> Argument:
    """As many different dimensions as `destination` has."""
    return _different(draft, len(draft.elements("destination")))


def _different(draft: Draft, count: int) -> tuple[int, ...]:
    rank = draft.self.dim()
    rest, chosen = list(range(rank)), []
    for _ in range(count):
        dim = rest.pop(draft.pick.integer(0, len(rest) - 1))
        chosen.append(dim - rank if draft.pick.chance(30) else dim)
    return tuple(chosen)


# --- cuts of a dimension --------------------------------------------------------------------------


def sizes_of_pieces(draft: Draft) -> Argument:
    """Sizes of up to three pieces, some perhaps empty, that fill the dimension drawn."""
    size = extent(draft)
    ends = sorted(draft.pick.integer(0, size) for _ in range(draft.pick.integer(0, 2)))
    return tuple(end - start for start, end in zip((0, *ends), (*ends, size), strict=True))


def cuts(draft: Draft) -> Argument:
    """Up to two indices at which to cut the dimension drawn."""
    return _cuts(draft, extent(draft))


def _cuts(draft: Draft, size: int) -> tuple[int, ...]:
    # A cut behind the end gives an empty piece, which torch allows.
    return tuple(sorted(draft.pick.integer(0, size + 1) for _ in range(draft.pick.integer(1, 2))))


def _size_to_split(draft: Draft, dim: int) -> int:
    """The size of the dimension that `vsplit` (0), `hsplit` (1) or `dsplit` (2) cuts."""
    shape = draft.self.shape
    if dim == 1 and len(shape) == 1:
        return shape[0]  # `hsplit` of a vector
    if len(shape) < max(dim + 1, 2):
        raise NoChoice
    return shape[dim]


def sections_of(dim: int) -> Drawer:
    """A drawer for a number of equal sections of a fixed dimension."""

    def drawer(draft: Draft) -> Argument:
        size = _size_to_split(draft, dim)
        return draft.pick.one([count for count in (1, 2, 3, 4) if size % count == 0])

    return drawer


def cuts_of(dim: int) -> Drawer:
    """A drawer for indices at which to cut a fixed dimension."""
    return lambda draft: _cuts(draft, _size_to_split(draft, dim))


# Tensors that decide about sizes: the program is then data-dependent.


def start_as_tensor(draft: Draft) -> Argument:
    """A 0-d tensor with the start of a slice of the dimension drawn."""
    return _numbers(draft, dims=0, low=0, high=extent(draft))


def length_behind_tensor(draft: Draft) -> Argument:
    """A length that fits behind `start`, a tensor."""
    return draft.pick.integer(0, extent(draft) - int(draft.tensor("start")))


def _numbers(draft: Draft, *, dims: int, low: int, high: int) -> Ref:
    """A tensor of up to three integers in this range."""

    def fits(tensor: torch.Tensor) -> bool:
        if tensor.dtype != torch.int64 or tensor.dim() != dims or not 0 < tensor.numel() < 4:
            return False
        return low <= int(tensor.min()) and int(tensor.max()) <= high

    fitting = draft.scene.newest_first(fits)
    if fitting:
        return Ref(draft.pick.one(fitting))
    made = draft.scene.call(
        "aten.new_full.default",
        Ref(draft.self_name),
        (1,) * dims,
        draft.pick.integer(low, min(high, 3)),
        dtype=torch.int64,
    )
    return Ref(made[0])


# --- shapes of other tensors ----------------------------------------------------------------------


def strides_of_reshape(draft: Draft) -> Argument:
    """The strides that a view of the first tensor has with the sizes drawn."""
    sizes = [size for size in draft.elements("size") if isinstance(size, int)]
    try:
        return tuple(draft.self.view(sizes).stride())
    except RuntimeError as reason:  # no view has these sizes
        raise NoChoice from reason


# --- dtypes ---------------------------------------------------------------------------------------


def dtype_to_convert_to(draft: Draft) -> Argument:
    """The dtype of the first tensor, for which nothing is to be done, or another one."""
    own = draft.self.dtype
    if draft.pick.chance(50):
        return own
    # Eager warns when a conversion discards imaginary parts.
    return draft.pick.one(
        [dtype for dtype in draft.features.dtypes if dtype.is_complex or not own.is_complex]
    )


def tensor_to_convert_like(draft: Draft) -> Argument:
    """A tensor of the first tensor's dtype, for which nothing is to be done, or of another one."""
    own = draft.self.dtype
    if draft.pick.chance(50):
        return tensor_like(draft, lambda tensor: tensor.dtype == own)
    return tensor_like(draft, lambda tensor: tensor.dtype.is_complex or not own.is_complex)


def own_device(draft: Draft) -> Argument:
    """The device of the program."""
    return str(draft.self.device)


def truth(draft: Draft) -> Argument:
    """True or false, mostly false."""
    return draft.pick.chance(20)


probability = one_of(0.5, 0.0, 0.25, 1.0)
