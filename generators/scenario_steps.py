"""`Steps`: what scenarios are made of, which choose, read, move or write a value.

Every step adds at most a few instructions to the scene, or raises `NoChoice`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch

from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.program import Argument, Ref

T = TypeVar("T")
# An op, and its arguments after the first tensor.
OpOn: TypeAlias = tuple[str, tuple[Argument, ...]]

LONG = 17  # elements: a vector register of 8-bit integers and one more
OPEN_END = 2**63 - 1  # how torch writes the end of a slice without one


# --- conditions on values -------------------------------------------------------------------------


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


# --- steps ----------------------------------------------------------------------------------------


# The name of a value, or a list of names, or any other argument.
Named: TypeAlias = "Argument | list[str]"


def _with_refs(argument: Named) -> Argument:
    """An argument with a reference in place of each name."""
    if isinstance(argument, list | tuple):
        return tuple(map(_with_refs, argument))
    return Ref(argument) if isinstance(argument, str) else argument


@dataclass(frozen=True, slots=True)
class Steps:
    """A scene, and what makes the choices."""

    pick: Pick
    scene: Scene

    def one(self, choices: Sequence[T]) -> T:
        """One of the choices (`Pick.one`)."""
        return self.pick.one(choices)

    def chance(self, percent: int) -> bool:
        """True with this probability, in percent."""
        return self.pick.chance(percent)

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return self.pick.integer(low, high)

    def at(self, name: str) -> torch.Tensor:
        """The value of this name."""
        return self.scene.values[name]

    def call(
        self,
        op: str,
        *args: Named,
        named: bool | None = None,
        **kwargs: Argument,
    ) -> tuple[str, ...]:
        """Add a call (`Scene.call`); a text among the arguments by position names a value."""
        return self.scene.call(op, *map(_with_refs, args), named=named, **kwargs)

    def new(self, op: str, *args: Named, **kwargs: Any) -> str:
        """Add a call, and return the name of its first result."""
        return self.call(op, *args, **kwargs)[0]

    def known(self, accepts: Callable[[torch.Tensor], bool] = lambda tensor: True) -> list[str]:
        """The values that `accepts` accepts, newest first."""
        return self.scene.newest_first(accepts)

    def wants(self, *names: str) -> None:
        """Declare that a bug would show if these values were returned, the last ones first."""
        self.scene.wants(*names)

    # --- which value ------------------------------------------------------------------------------

    def some(self, accepts: Callable[[torch.Tensor], bool] = lambda tensor: True) -> str:
        """A value that `accepts` accepts."""
        return self.one(self.known(accepts))

    def some_input(self, accepts: Callable[[torch.Tensor], bool] = lambda tensor: True) -> str:
        """An input that `accepts` accepts."""
        return self.one([view.name for view in self.scene.inputs if accepts(self.at(view.name))])

    # --- reads ------------------------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        """A new tensor like the named one, with other values."""
        if self.at(name).dtype == torch.bool:
            return self.new("aten.logical_not.default", name)
        if self.chance(30):
            return self.new("aten.neg.default", name)
        # Dynamo captures `x + 1` in the second form, so most patterns are written for that form.
        op = self.one(("aten.add.Scalar", "aten.add.Tensor"))
        return self.new(op, name, self.integer(1, 3))

    def some_or_new(
        self, percent: int, accepts: Callable[[torch.Tensor], bool] = lambda tensor: True
    ) -> str:
        """A value that `accepts` accepts; in `percent` percent of cases, a new one like it."""
        name = self.some(accepts)
        return self.fresh(name) if self.chance(percent) else name

    def one_call(self, name: str, calls: Sequence[OpOn]) -> str:
        """The first result of one of these calls on the named tensor."""
        op, args = self.one(calls)
        return self.new(op, name, *args)

    def combine(self, first: str, second: str) -> str:
        """A new tensor, computed from both."""
        if self.at(first).dtype == torch.bool:
            return self.new("aten.logical_xor.default", first, second)
        op = self.one(("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor"))
        return self.new(op, first, second)

    def rearrange(self, name: str) -> str:
        """Move the elements to other positions: a new tensor, or a view of equal sizes."""
        tensor = self.at(name)
        if tensor.dim() == 0:
            raise NoChoice
        dim = self.integer(0, tensor.dim() - 1)
        moves: list[OpOn] = [
            ("aten.flip.default", ((dim,),)),
            ("aten.roll.default", ((1,), (dim,))),
        ]
        if tensor.dim() >= 2 and tensor.shape[0] == tensor.shape[1]:
            moves.append(("aten.transpose.int", (0, 1)))
        return self.one_call(name, moves)

    def total(self, name: str) -> str:
        """A 0-d tensor that depends on all elements."""
        tensor = self.at(name)
        if is_real(tensor) and tensor.numel() and self.chance(40):
            return self.new("aten.amax.default", name)
        return self.new("aten.sum.default", name)

    def convert(self, name: str, dtype: torch.dtype) -> str:
        """The tensor in that dtype; a new tensor if the dtype differs."""
        source = self.at(name).dtype
        if source == dtype:
            return name
        if source.is_complex and not dtype.is_complex:  # eager warns
            raise NoChoice
        return self.new("aten._to_copy.default", name, dtype=dtype)

    def lengthen(self, name: str) -> str:
        """The tensor itself, or repeated until it fills more than a vector register."""
        tensor = self.at(name)
        if tensor.dim() == 0 or not 0 < tensor.shape[0] < LONG or self.chance(30):
            return name
        times = (LONG // tensor.shape[0] + 1, *(1,) * (tensor.dim() - 1))
        return self.new("aten.repeat.default", name, times)

    def iota(self, name: str, size: int) -> str:
        """The integers from 0 to `size` - 1, as a new tensor."""
        ones = self.new("aten.new_ones.default", name, (size,), dtype=torch.int64)
        sums = self.new("aten.cumsum.default", ones, 0)
        return self.new("aten.sub.Scalar", sums, 1)

    # --- views ------------------------------------------------------------------------------------

    def same_view(self, name: str) -> str:
        """A view that shows all of its base, unchanged."""
        shape = tuple(self.at(name).shape)
        views: list[OpOn] = [
            ("aten.alias.default", ()),
            ("aten.view.default", (shape,)),
            ("aten.expand.default", (shape,)),
            ("aten.permute.default", (tuple(range(len(shape))),)),
            ("aten.detach.default", ()),
        ]
        if shape:  # a 0-d tensor has no dimension to slice
            views.append(("aten.slice.Tensor", (0, 0, OPEN_END, 1)))
        return self.one_call(name, views)

    def any_view(self, name: str) -> str:
        """A view of all elements or some, in any order."""
        tensor = self.at(name)
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
            views.append(("aten.select.int", (0, self.one((0, -1)))))
        if tensor.is_contiguous():
            views.append(("aten.view.default", ((-1,),)) if tensor.numel() else views[0])
        return self.one_call(name, views)

    def viewed_as(self, name: str) -> str:
        """A view of the same bytes in another dtype, of equal item size or another."""
        own = self.at(name).dtype
        if own == torch.bool:
            raise NoChoice
        dtypes = (torch.int32, torch.int16, torch.int64, torch.uint8)
        dtype = self.one([dtype for dtype in dtypes if dtype != own])
        return self.new("aten.view.dtype", name, dtype)

    # --- writes -----------------------------------------------------------------------------------

    def overwrite(self, name: str) -> None:
        """Change the named tensor in place, by one of the simplest ops."""
        stores: list[OpOn] = [("aten.zero_.default", ()), ("aten.fill_.Scalar", (1,))]
        if self.at(name).dtype != torch.bool:
            stores = [
                ("aten.add_.Scalar", (1,)),
                ("aten.mul_.Tensor", (2,)),
                ("aten.neg_.default", ()),
                *stores,
            ]
        op, args = self.one(stores)
        self.call(op, name, *args, named=self.chance(30))

    def write_somewhere(self, name: str) -> None:
        """Change the named tensor in place: all of it, a view of it, or elements at some indices.

        A compiler keeps a write by index in place. For others, it recomputes the whole tensor.
        """
        kind = self.integer(0, 3)
        if kind == 0 or self.at(name).dim() == 0:
            self.overwrite(name)
        elif kind == 1:
            self.overwrite(self.any_view(name))
        else:
            self.put(name, value=self.a_number(name))

    def a_number(self, name: str) -> str:
        """A 0-d tensor of the named tensor's dtype."""
        dtype = self.at(name).dtype
        known = self.known(lambda tensor: tensor.dim() == 0 and tensor.dtype == dtype)
        if known and self.chance(40):
            return self.one(known)
        value = 1 if dtype == torch.bool else self.integer(5, 7)
        return self.new("aten.new_full.default", name, (), value)

    def put(self, name: str, value: str) -> None:
        """Store a 0-d value at some indices of dimension 0, or where a mask is true."""
        tensor = self.at(name)
        if tensor.dim() == 0:
            raise NoChoice
        if self.chance(35):
            index = self.mask_of(name)
        else:
            index = self.positions(name, tensor.shape[0])
        self.call("aten.index_put_.default", name, (index,), value)

    def mask_of(self, name: str) -> str:
        """A new tensor of bools: true where an element of the named tensor is large."""
        tensor = self.at(name)
        if tensor.dtype == torch.bool:
            return self.new("aten.logical_not.default", name)
        compare = "aten.ne.Scalar" if tensor.is_complex() else "aten.gt.Scalar"
        return self.new(compare, name, self.integer(1, 2))

    def positions(self, name: str, size: int) -> str:
        """A vector of distinct indices into a dimension of that size."""
        if size == 0:
            raise NoChoice

        def fits(tensor: torch.Tensor) -> bool:
            if tensor.dtype != torch.int64 or tensor.dim() != 1 or not 0 < tensor.numel() <= size:
                return False
            return int(tensor.min()) >= 0 and int(tensor.max()) < size

        known = self.known(fits)
        if known and self.chance(70):
            return self.one(known)
        return self.iota(name, self.integer(1, min(size, 3)))

    def may_write(self, percent: int, *names: str) -> None:
        """In `percent` percent of cases, write one of these values (`write_somewhere`)."""
        if self.chance(percent):
            self.write_somewhere(self.one(names))

    def may_overwrite(self, percent: int, *names: str) -> None:
        """In `percent` percent of cases, overwrite one of these values."""
        if self.chance(percent):
            self.overwrite(self.one(names))


# --- scenario -------------------------------------------------------------------------------------
#
# `Scenario`: an aliasing situation that is drawn on purpose; one line of a table.
#
# A scenario adds a few instructions to a scene, or raises `NoChoice` if no value fits. The rest of
# the program is drawn around it at random. Purely random programs rarely contain a scenario. It is
# a family of programs: the tensors, views and writes, and their order, are drawn.


Play: TypeAlias = Callable[[Steps], None]


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
