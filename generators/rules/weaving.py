"""`Weaving`: the calls of a plain match, played into a scene with other calls around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from aliasproof.generators.scenario_steps import fresh
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.program import Instruction, Program, Ref, rename

Accepts = Callable[[torch.Tensor], bool]


@dataclass(frozen=True, slots=True)
class Matched:
    """Where the calls of a match are in a program, and the operands that they take.

    `again` are the calls of a second match. `dtypes` are those that the operands usually have.
    """

    calls: tuple[int, ...]
    operands: tuple[str, ...]
    dtypes: frozenset[torch.dtype]
    again: tuple[int, ...] = ()


@dataclass(slots=True)
class Weaving:
    """A match that is played call by call. `names` has the values of the plain match."""

    pick: Pick
    scene: Scene
    plain: Program
    names: dict[str, str] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    played: int = 0

    def __post_init__(self) -> None:
        for view in self.plain.inputs:
            self.names[view.name] = view.name

    def compute_operands(self) -> None:
        """Let some operands be computed from inputs, or be views of what is computed."""
        for view in self.plain.inputs:
            if self.pick.chance(25):
                name = fresh(self.pick, self.scene, view.name)
                self.names[view.name] = self.view(name) if self.pick.chance(30) else name

    def play(self, until: int | None = None) -> None:
        """Play the next calls of the match; all that are left if `until` is None.

        Raises `NoChoice` if eager refuses one.
        """
        stop = len(self.plain) if until is None else until
        for call in self.plain.instructions[self.played : stop]:
            self._play(call)
        self.played = max(self.played, stop)

    def _play(self, call: Instruction) -> None:
        self.calls.append(len(self.scene.instructions))
        args = tuple(rename(argument, self.names) for argument in call.args)
        kwargs = {key: rename(value, self.names) for key, value in call.kwargs}
        results = self.scene.call(call.op, *args, named=True, **kwargs)
        self.names.update(zip(call.results, results, strict=False))

    # --- values of the match ----------------------------------------------------------------------

    def operand(self, accepts: Accepts = lambda tensor: True) -> str:
        """An operand of the match. Raises `NoChoice` if none is accepted."""
        operands = [name for name in self.operands() if accepts(self.value(name))]
        if not operands:
            raise NoChoice("the match takes no tensor")
        return self.pick.one(operands)

    def operands(self) -> list[str]:
        """The tensors that the match takes."""
        return list(dict.fromkeys(self.names[view.name] for view in self.plain.inputs))

    def inner(self) -> list[str]:
        """The values so far that one call of the match makes and another one reads."""
        read = {name for call in self.plain.instructions for name in call.refs}
        made = [name for call in self.plain.instructions for name in call.results]
        return [self.names[name] for name in made if name in read and name in self.names]

    def result(self) -> str:
        """A result of the match."""
        return self.pick.one(self.results())

    def results(self) -> list[str]:
        """The results of the match so far."""
        return [self.names[name] for name in self.plain.outputs if name in self.names]

    def value(self, name: str) -> torch.Tensor:
        """The tensor of that name."""
        return self.scene.values[name]

    def middle(self) -> int:
        """A number of calls after which some of the match are still to come."""
        if len(self.plain) < 2:
            raise NoChoice("the match is one call")
        return self.pick.integer(1, len(self.plain) - 1)

    def view(self, name: str) -> str:
        """Another view of all that a value shows."""
        return self.scene.call("aten.alias.default", Ref(name))[0]
