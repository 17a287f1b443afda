"""`Draft`: a call while its arguments are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch.utils._pytree import tree_map_only

from aliasproof.generators.features import Features
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.program import Argument, Ref, names_in
from aliasproof.ir.regions import Region, overlap


@dataclass(slots=True)
class Draft:
    """The scene of a call, the arguments drawn so far by name, and the features of programs."""

    pick: Pick
    scene: Scene
    features: Features
    drawn: dict[str, Argument] = field(default_factory=dict)
    # The dtypes that the first tensor may have.
    accepts: Callable[[torch.dtype], bool] = lambda dtype: True

    @property
    def self_name(self) -> str:
        """The name of the first tensor argument."""
        if isinstance(own := self.drawn.get("self"), Ref):
            return own.name
        name = next(names_in(tuple(self.drawn.values())), None)
        if name is None:
            raise NoChoice
        return name

    @property
    def self(self) -> torch.Tensor:
        """The first tensor argument."""
        return self.scene.values[self.self_name]

    def overlaps_self(self, other: torch.Tensor) -> bool:
        """True if a tensor shares a byte with the first tensor argument."""
        return overlap(Region.of(other), Region.of(self.self))

    def integer(self, name: str) -> int:
        """An integer argument drawn before."""
        value = self.drawn[name]
        assert isinstance(value, int)
        return value

    def elements(self, name: str) -> tuple[Argument, ...]:
        """The elements of a list argument drawn before."""
        value = self.drawn[name]
        assert isinstance(value, tuple)
        return value

    def names(self, name: str) -> list[str]:
        """The names of the values in a list argument drawn before."""
        return [element.name for element in self.elements(name) if isinstance(element, Ref)]

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor argument drawn before."""
        value = self.drawn[name]
        assert isinstance(value, Ref)
        return self.scene.values[value.name]

    def new_full(
        self,
        shape: Sequence[int],
        value: Argument,
        dtype: torch.dtype | None = None,
        like: str | None = None,
    ) -> Ref:
        """A new tensor with the same number everywhere, added to the scene.

        By default, it has the dtype of the first tensor; with `like`, the dtype of that value.
        """
        options: dict[str, Argument] = {} if dtype is None else {"dtype": dtype}
        other = Ref(like or self.self_name)
        made = self.scene.call(
            "aten.new_full.default", other, tuple(shape), value, named=True, **options
        )
        return Ref(made[0])

    def value(self, name: str) -> object:
        """An argument drawn before, in the form that eager takes: tensors in place of names."""
        return tree_map_only(Ref, lambda ref: self.scene.values[ref.name], self.drawn[name])


# Draws one argument of a call, or raises `NoChoice`.
Drawer: TypeAlias = Callable[[Draft], Argument]
