"""The steps that scenarios are made of: choose, read, move or write a value.

Every function here adds at most a few instructions to the scene, or raises `NoChoice`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.program import Argument, Ref

# An op, and its arguments after the first tensor.
OpOn: TypeAlias = tuple[str, tuple[Argument, ...]]

LONG = 17  # elements: a vector register of 8-bit integers and one more
OPEN_END = 2**63 - 1  # how torch writes the end of a slice without one


# --- which value ----------------------------------------------------------------------------------


def some(
    pick: Pick, scene: Scene, accepts: Callable[[torch.Tensor], bool] = lambda tensor: True
) -> str:
    """A value that `accepts` accepts."""
    return pick.one(scene.newest_first(accepts))


def some_input(
    pick: Pick, scene: Scene, accepts: Callable[[torch.Tensor], bool] = lambda tensor: True
) -> str:
    """An input that `accepts` accepts."""
    return pick.one([view.name for view in scene.inputs if accepts(scene.values[view.name])])


def not_empty(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 0


def has_rows(tensor: torch.Tensor) -> bool:
    """Whether dimension 0 has at least two elements."""
    return tensor.dim() >= 1 and tensor.shape[0] >= 2 and tensor.numel() > 0


def is_arithmetic(tensor: torch.Tensor) -> bool:
    return tensor.dtype != torch.bool


def is_real(tensor: torch.Tensor) -> bool:
    return tensor.dtype != torch.bool and not tensor.is_complex()


def is_matrix(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 2 and tensor.numel() > 0 and tensor.dtype != torch.bool


def shaped_like(tensor: torch.Tensor) -> Callable[[torch.Tensor], bool]:
    return lambda other: other.shape == tensor.shape


def like(tensor: torch.Tensor) -> Callable[[torch.Tensor], bool]:
    """Accepts tensors of the same sizes and dtype."""
    return lambda other: other.shape == tensor.shape and other.dtype == tensor.dtype


# --- reads ----------------------------------------------------------------------------------------


def fresh(pick: Pick, scene: Scene, name: str) -> str:
    """A new tensor like the named one, with other values."""
    if scene.values[name].dtype == torch.bool:
        return scene.call("aten.logical_not.default", Ref(name))[0]
    if pick.chance(30):
        return scene.call("aten.neg.default", Ref(name))[0]
    # Dynamo captures `x + 1` in the second form, so most patterns are written for that form.
    op = pick.one(("aten.add.Scalar", "aten.add.Tensor"))
    return scene.call(op, Ref(name), pick.integer(1, 3))[0]


def some_or_new(
    pick: Pick,
    scene: Scene,
    percent: int,
    accepts: Callable[[torch.Tensor], bool] = lambda tensor: True,
) -> str:
    """A value that `accepts` accepts; in `percent` percent of cases, a new one like it."""
    name = some(pick, scene, accepts)
    return fresh(pick, scene, name) if pick.chance(percent) else name


def one_call(pick: Pick, scene: Scene, name: str, calls: Sequence[OpOn]) -> str:
    """The first result of one of these calls on the named tensor."""
    op, args = pick.one(calls)
    return scene.call(op, Ref(name), *args)[0]


def combine(pick: Pick, scene: Scene, first: str, second: str) -> str:
    """A new tensor, computed from both."""
    if scene.values[first].dtype == torch.bool:
        return scene.call("aten.logical_xor.default", Ref(first), Ref(second))[0]
    op = pick.one(("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor"))
    return scene.call(op, Ref(first), Ref(second))[0]


def rearrange(pick: Pick, scene: Scene, name: str) -> str:
    """Move the elements of a tensor to other positions: a new tensor or a view of equal sizes."""
    tensor = scene.values[name]
    if tensor.dim() == 0:
        raise NoChoice
    dim = pick.integer(0, tensor.dim() - 1)
    moves: list[OpOn] = [("aten.flip.default", ((dim,),)), ("aten.roll.default", ((1,), (dim,)))]
    if tensor.dim() >= 2 and tensor.shape[0] == tensor.shape[1]:
        moves.append(("aten.transpose.int", (0, 1)))
    return one_call(pick, scene, name, moves)


def total(pick: Pick, scene: Scene, name: str) -> str:
    """A 0-d tensor that depends on all elements."""
    tensor = scene.values[name]
    if is_real(tensor) and tensor.numel() and pick.chance(40):
        return scene.call("aten.amax.default", Ref(name))[0]
    return scene.call("aten.sum.default", Ref(name))[0]


def convert(scene: Scene, name: str, dtype: torch.dtype) -> str:
    """The tensor in that dtype; a new tensor if the dtype differs."""
    source = scene.values[name].dtype
    if source == dtype:
        return name
    if source.is_complex and not dtype.is_complex:  # eager warns
        raise NoChoice
    return scene.call("aten._to_copy.default", Ref(name), dtype=dtype)[0]


def lengthen(pick: Pick, scene: Scene, name: str) -> str:
    """The tensor itself, or repeated until it fills more than a vector register."""
    tensor = scene.values[name]
    if tensor.dim() == 0 or not 0 < tensor.shape[0] < LONG or pick.chance(30):
        return name
    times = (LONG // tensor.shape[0] + 1, *(1,) * (tensor.dim() - 1))
    return scene.call("aten.repeat.default", Ref(name), times)[0]


def iota(scene: Scene, name: str, size: int) -> str:
    """The integers from 0 to `size` - 1, as a new tensor."""
    ones = scene.call("aten.new_ones.default", Ref(name), (size,), dtype=torch.int64)[0]
    sums = scene.call("aten.cumsum.default", Ref(ones), 0)[0]
    return scene.call("aten.sub.Scalar", Ref(sums), 1)[0]


# --- views ----------------------------------------------------------------------------------------


def same_view(pick: Pick, scene: Scene, name: str) -> str:
    """A view that shows all of its base, unchanged."""
    shape = tuple(scene.values[name].shape)
    views: list[OpOn] = [
        ("aten.alias.default", ()),
        ("aten.view.default", (shape,)),
        ("aten.expand.default", (shape,)),
        ("aten.permute.default", (tuple(range(len(shape))),)),
        ("aten.detach.default", ()),
    ]
    if shape:  # a 0-d tensor has no dimension to slice
        views.append(("aten.slice.Tensor", (0, 0, OPEN_END, 1)))
    return one_call(pick, scene, name, views)


def any_view(pick: Pick, scene: Scene, name: str) -> str:
    """A view of all elements or some, in any order."""
    tensor = scene.values[name]
    shape = tuple(tensor.shape)
    views: list[OpOn] = [("aten.view.default", (shape,)), ("aten.unsqueeze.default", (0,))]
    if shape:
        last = len(shape) - 1
        views += [
            ("aten.slice.Tensor", (0, 1, OPEN_END)),
            ("aten.slice.Tensor", (last, 0, max(shape[last] - 1, 1))),
            ("aten.slice.Tensor", (0, 0, OPEN_END, 2)),
            ("aten.transpose.int", (0, last)),
        ]
    if math.prod(shape) and shape:
        views.append(("aten.select.int", (0, pick.one((0, -1)))))
    if tensor.is_contiguous():
        views.append(("aten.view.default", ((-1,),)) if tensor.numel() else views[0])
    return one_call(pick, scene, name, views)


def viewed_as(pick: Pick, scene: Scene, name: str) -> str:
    """A view of the same bytes in another dtype, of equal item size or another."""
    own = scene.values[name].dtype
    if own == torch.bool:
        raise NoChoice
    dtypes = (torch.int32, torch.int16, torch.int64, torch.uint8)
    dtype = pick.one([dtype for dtype in dtypes if dtype != own])
    return scene.call("aten.view.dtype", Ref(name), dtype)[0]


# --- writes ---------------------------------------------------------------------------------------


def overwrite(pick: Pick, scene: Scene, name: str) -> None:
    """Change the named tensor in place, by one of the simplest ops."""
    stores: list[OpOn] = [("aten.zero_.default", ()), ("aten.fill_.Scalar", (1,))]
    if scene.values[name].dtype != torch.bool:
        stores = [
            ("aten.add_.Scalar", (1,)),
            ("aten.mul_.Tensor", (2,)),
            ("aten.neg_.default", ()),
            *stores,
        ]
    op, args = pick.one(stores)
    scene.call(op, Ref(name), *args, named=pick.chance(30))


def write_somewhere(pick: Pick, scene: Scene, name: str) -> None:
    """Change the named tensor in place: all of it, a view of it, or the elements at some indices.

    A compiler keeps a write by index in place, and recomputes the whole tensor for other writes.
    """
    kind = pick.integer(0, 3)
    if kind == 0 or scene.values[name].dim() == 0:
        overwrite(pick, scene, name)
    elif kind == 1:
        overwrite(pick, scene, any_view(pick, scene, name))
    else:
        put(pick, scene, name, value=a_number(pick, scene, name))


def a_number(pick: Pick, scene: Scene, name: str) -> str:
    """A 0-d tensor of the named tensor's dtype."""
    dtype = scene.values[name].dtype
    known = scene.newest_first(lambda tensor: tensor.dim() == 0 and tensor.dtype == dtype)
    if known and pick.chance(40):
        return pick.one(known)
    value = 1 if dtype == torch.bool else pick.integer(5, 7)
    return scene.call("aten.new_full.default", Ref(name), (), value)[0]


def put(pick: Pick, scene: Scene, name: str, value: str) -> None:
    """Store a 0-d value at some indices of dimension 0, or where a mask is true."""
    tensor = scene.values[name]
    if tensor.dim() == 0:
        raise NoChoice
    if pick.chance(35):
        index = mask_of(pick, scene, name)
    else:
        index = positions(pick, scene, name, tensor.shape[0])
    scene.call("aten.index_put_.default", Ref(name), (Ref(index),), Ref(value))


def mask_of(pick: Pick, scene: Scene, name: str) -> str:
    """A new tensor of bools: true where an element of the named tensor is large."""
    tensor = scene.values[name]
    if tensor.dtype == torch.bool:
        return scene.call("aten.logical_not.default", Ref(name))[0]
    compare = "aten.ne.Scalar" if tensor.is_complex() else "aten.gt.Scalar"
    return scene.call(compare, Ref(name), pick.integer(1, 2))[0]


def positions(pick: Pick, scene: Scene, name: str, size: int) -> str:
    """A vector of distinct indices into a dimension of that size."""
    if size == 0:
        raise NoChoice

    def fits(tensor: torch.Tensor) -> bool:
        if tensor.dtype != torch.int64 or tensor.dim() != 1 or not 0 < tensor.numel() <= size:
            return False
        return int(tensor.min()) >= 0 and int(tensor.max()) < size

    known = scene.newest_first(fits)
    if known and pick.chance(70):
        return pick.one(known)
    return iota(scene, name, pick.integer(1, min(size, 3)))


# --- scenario -------------------------------------------------------------------------------------
#
# `Scenario`: an aliasing situation that is drawn on purpose; one line of a table.
#
# A scenario adds a few instructions to a scene, or raises `NoChoice` if no value fits. The rest of
# the program is drawn around it at random. Purely random programs rarely contain a scenario. It is
# a family of programs: the tensors, views and writes, and their order, are drawn.


Play: TypeAlias = Callable[[Pick, Scene], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One line of the table.

    `name` is also a swarm switch. `sketch` is one program of the family, in ordinary syntax.
    `family` is its origin: an issue of PyTorch (#1), a known bug (`corpus/bugs`), or a rule of the
    compiler. Without `play`, the inputs are drawn in another way (`aliasproof.generators.inputs`).
    """

    name: str
    sketch: str
    family: str
    play: Play | None


class ScenarioTable(list[Scenario]):
    """Scenarios for one layer of the compiler, in their order."""

    def add(self, sketch: str, family: str, name: str = "") -> Callable[[Play], Play]:
        """Add the decorated function as a line; by default, under the name of the function."""

        def added(play: Play) -> Play:
            line = name or play.__name__.replace("_", " ")
            self.append(Scenario(line, sketch, family, play))
            return play

        return added
